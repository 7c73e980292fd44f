//! The OpenAPI document as a reader of that format understands it, which shares no code with what writes it.

use std::collections::BTreeSet;

use oas3::spec::{ParameterIn, Spec};
use serde_json::Value;

/// Every reference in a document.
fn references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        Value::Object(members) => {
            into.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, into));
        }
        _ => {}
    }
}

/// The places at which what was read differs from what was written.
fn compare(written: &Value, read: &Value, at: &str, into: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(members), Value::Object(others)) => {
            let names: BTreeSet<&String> = members.keys().chain(others.keys()).collect();
            for name in names {
                let of = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                compare(&of(members), &of(others), &format!("{at}/{name}"), into);
            }
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                compare(item, other, &format!("{at}/{index}"), into);
            }
        }
        _ if written == read => {}
        _ => into.push(format!("{at}: {written}, read as {read}")),
    }
}

/// Calls `each` with the place and the text of every description, summary and title.
fn for_each_text(value: &Value, at: &str, each: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| for_each_text(item, &format!("{at}/{n}"), each))
        }
        Value::Object(members) => {
            for (name, member) in members {
                let at = format!("{at}/{name}");
                match member {
                    Value::String(text) if ["description", "summary", "title"].contains(&name.as_str()) => {
                        each(&at, text)
                    }
                    member => for_each_text(member, &at, each),
                }
            }
        }
        _ => {}
    }
}

/// Returns the syntax of Rust in a text, which users of HTTP do not know.
fn rust_syntax(text: &str) -> Option<&str> {
    let words = ["None", "Some", "Vec", "Option", "Box", "Arc"];
    let is_code = |part: &&str| {
        let has_snake_case =
            part.contains('_') && part.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit());
        // Metrics are named as Prometheus has them.
        words.contains(part) || has_snake_case && !part.starts_with("imagelet_")
    };
    let parts = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    ["[`", "`]", "::"]
        .into_iter()
        .find(|mark| text.contains(mark))
        .or_else(|| parts.filter(|part| !part.is_empty()).find(is_code))
}

#[test]
fn descriptions_have_no_rust_syntax() {
    for text in
        ["`None` if absent", "see [`Pull`]", "a `Vec` of layers", "if `freed_bytes` is exact", "`Layer::Fetching`"]
    {
        assert!(rust_syntax(text).is_some(), "{text}");
    }
    for text in
        ["Nothing is reported.", "as in the metric `imagelet_pull_failures_total`", "`NAMESPACE/NAME` of the pod"]
    {
        assert_eq!(rust_syntax(text), None, "{text}");
    }
    let mut count = 0;
    for_each_text(&super::openapi_document(), "", &mut |at, text| {
        count += 1;
        assert_eq!(rust_syntax(text), None, "{at}: {text}");
    });
    assert!(count > 300, "{count} texts");
}

#[test]
fn a_reader_of_openapi_understands_all_of_the_document() {
    let document = super::openapi_document();
    let spec: Spec = oas3::from_json(document.to_string()).expect("OpenAPI 3.1");
    let version = spec.validate_version().expect("a version");
    assert_eq!((version.major, version.minor), (3, 1));
    // Nothing is passed over: what was read is the document, but for members that are null.
    let mut lost = Vec::new();
    compare(&document, &serde_json::to_value(&spec).expect("JSON"), "", &mut lost);
    assert_eq!(lost, Vec::<String>::new());

    let mut ids = BTreeSet::new();
    for (path, method, operation) in spec.operations() {
        let at = format!("{method} {path}");
        let id = operation.operation_id.as_deref().unwrap_or_else(|| panic!("{at} has no operationId"));
        assert!(ids.insert(id.to_owned()), "{id} is there twice");
        let parameters = operation.parameters(&spec).unwrap_or_else(|error| panic!("{at}: {error}"));
        let in_path: BTreeSet<&str> = parameters
            .iter()
            .filter(|parameter| parameter.location == ParameterIn::Path && parameter.required == Some(true))
            .map(|parameter| parameter.name.as_str())
            .collect();
        let named: BTreeSet<&str> = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        assert_eq!(in_path, named, "{at}");
        operation.request_body(&spec).unwrap_or_else(|error| panic!("{at}: {error}"));
        let responses = operation.responses(&spec);
        assert_eq!(
            Some(responses.len()),
            operation.responses.as_ref().map(|all| all.len()),
            "{at}: some do not resolve"
        );
        for content in responses.values().flat_map(|response| response.content.values()) {
            content.schema(&spec).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }
    assert!(ids.len() > 30, "{ids:?}");

    let mut all = BTreeSet::new();
    references(&document, &mut all);
    for reference in &all {
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        assert!(target.is_some(), "{reference} leads nowhere");
    }
    // And no schema that nothing uses.
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let unused: Vec<_> = schemas.keys().filter(|name| !all.contains(&format!("#/components/schemas/{name}"))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
