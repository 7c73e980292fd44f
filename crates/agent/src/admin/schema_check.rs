//! Holds answers of the API against its document, for tests: the part of JSON Schema that the document uses, and stricter, because a
//! member that a schema does not name is an error.

use std::collections::BTreeSet;

use serde_json::Value;

/// The document, and the calls that were made.
pub(super) struct Document {
    document: Value,
    asked: BTreeSet<String>,
}

impl Document {
    pub(super) fn new() -> Self {
        Self { document: super::openapi_document(), asked: BTreeSet::new() }
    }

    /// Holds an answer against the document.
    #[track_caller]
    pub(super) fn check(&mut self, verb: &str, path: &str, answer: &Value) {
        let schema = &self.operation(verb, path)["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(schema.is_object() || *schema == true, "{verb} {path} has no JSON");
        if let Err(problem) = self.fits(schema, answer, "answer") {
            panic!("{verb} {path}: {problem}\n{answer:#}");
        }
        self.note(verb, path);
    }

    /// Holds an event of a stream against the document.
    #[track_caller]
    pub(super) fn check_event(&mut self, verb: &str, path: &str, name: &str, data: &Value) {
        let events = &self.operation(verb, path)["responses"]["200"]["content"]["text/event-stream"]["x-events"];
        let event = events.as_array().into_iter().flatten().find(|event| event["title"] == name);
        let schema = event.unwrap_or_else(|| panic!("{verb} {path} has no event {name}"));
        if let Err(problem) = self.fits(&schema["allOf"][0], data, name) {
            panic!("{verb} {path}: {problem}\n{data:#}");
        }
        self.note(verb, path);
    }

    /// Notes that a route was asked.
    pub(super) fn note(&mut self, verb: &str, path: &str) {
        self.operation(verb, path);
        self.asked.insert(format!("{verb} {path}"));
    }

    /// The routes that were not asked.
    pub(super) fn left(&self) -> Vec<String> {
        let paths = self.document["paths"].as_object().expect("paths");
        let all = paths.iter().flat_map(|(path, operations)| {
            operations.as_object().expect("operations").keys().map(move |verb| format!("{verb} {path}"))
        });
        all.filter(|route| !self.asked.contains(route)).collect()
    }

    #[track_caller]
    fn operation(&self, verb: &str, path: &str) -> &Value {
        let operation = &self.document["paths"][path][verb];
        assert!(operation.is_object(), "{verb} {path} is not documented");
        operation
    }

    fn fits(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        if *schema == true {
            return Ok(());
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.pointer(reference.trim_start_matches('#')).ok_or(format!("no {reference}"))?;
            return self.fits(target, value, at);
        }
        for (word, least) in [("anyOf", 1), ("oneOf", 1), ("allOf", usize::MAX)] {
            let Some(list) = schema[word].as_array() else { continue };
            let problems: Vec<String> = list.iter().filter_map(|one| self.fits(one, value, at).err()).collect();
            let fit = list.len() - problems.len();
            if fit < least.min(list.len()) || word == "oneOf" && fit > 1 {
                return Err(format!("{at}: {fit} of {word}: {}", problems.join("; ")));
            }
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            return Err(format!("{at}: {value} is none of {words:?}"));
        }
        if schema.get("const").is_some_and(|word| word != value) {
            return Err(format!("{at}: {value} is not {}", schema["const"]));
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let allowed = |word: &Value| word == kind || word == "number" && kind == "integer";
        let is_allowed = match &schema["type"] {
            Value::Null => true,
            Value::Array(words) => words.iter().any(allowed),
            word => allowed(word),
        };
        if !is_allowed {
            return Err(format!("{at}: {kind}, not {}", schema["type"]));
        }
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let schema = schema["prefixItems"].get(index).unwrap_or(&schema["items"]);
                    self.fits(schema, item, &format!("{at}[{index}]"))?;
                }
            }
            Value::Object(members) => {
                for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if !members.contains_key(name) {
                        return Err(format!("{at}: {name} is missing"));
                    }
                }
                for (name, member) in members {
                    match (&schema["properties"][name], &schema["additionalProperties"]) {
                        (Value::Null, Value::Null) if schema.get("properties").is_some() => {
                            return Err(format!("{at}: {name} is not documented"));
                        }
                        (Value::Null, other) => self.fits(other, member, &format!("{at}.{name}"))?,
                        (schema, _) => self.fits(schema, member, &format!("{at}.{name}"))?,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn what_does_not_fit_is_found() {
    let document = Document::new();
    let fits = |value: Value| {
        let schema = serde_json::json!({"$ref": "#/components/schemas/ApiError"});
        document.fits(&schema, &value, "error")
    };
    assert_eq!(fits(serde_json::json!({"code": "NotFound", "message": "x"})), Ok(()));
    for wrong in [
        serde_json::json!({"code": "NotFound"}),
        serde_json::json!({"code": 1, "message": "x"}),
        serde_json::json!({"code": "NotFound", "message": "x", "more": 1}),
        serde_json::json!([]),
    ] {
        assert!(fits(wrong.clone()).is_err(), "{wrong}");
    }
}
