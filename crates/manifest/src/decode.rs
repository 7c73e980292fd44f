//! [`decode`]: reads a type of the Kubernetes API out of JSON, strictly. Every unknown field and every value of a wrong type
//! is reported with its path, not only the first, so that a manifest can be corrected in one go. `serde_ignored` finds unknown
//! fields, `serde_path_to_error` names the value that failed; that value is then taken out and the rest is read again. Knows no
//! meaning of any field. Called by the readers of pods.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::{Segment, Track};

use crate::field::{FieldErrors, FieldPath, FieldProblem};
use crate::schema::{Shape, Step, shape_at};

/// Maximum number of reported values of a wrong type: each of them costs another pass.
const MAX_WRONG_VALUES: usize = 64;

/// Reads the value at `path` of its document as a `T`. A value of a wrong type counts as absent.
#[must_use]
pub fn decode<T: DeserializeOwned + Default>(value: &Value, path: &FieldPath) -> (T, FieldErrors) {
    let mut errors = FieldErrors::default();
    let mut value = with_quantities_as_text(value);
    for _ in 0..MAX_WRONG_VALUES {
        let mut unknown = Vec::new();
        match read::<T>(&value, &mut unknown) {
            Ok(read) => {
                unknown.iter().for_each(|steps| report_unknown::<T>(path, steps, &mut errors));
                return (read, errors);
            }
            Err(WrongValue { steps, expected }) => {
                let found = steps.iter().try_fold(&*value, entry).map_or_else(String::new, shown);
                errors.invalid_plain(field_path::<T>(path, &steps), found, expected.sentence());
                if !remove(value.to_mut(), &steps, &expected) {
                    return (T::default(), errors);
                }
            }
        }
    }
    errors.forbidden(path.clone(), format!("more than {MAX_WRONG_VALUES} values of a wrong type"));
    (T::default(), errors)
}

/// Reads a value out of the text of a JSON document, strictly; paths of errors begin with `name`.
///
/// # Errors
/// Everything that cannot be read.
pub fn decode_text<T: DeserializeOwned + Default>(text: &str, name: &str) -> Result<T, FieldErrors> {
    let path = FieldPath::new(name);
    match serde_json::from_str(text) {
        Ok(value) => {
            let (read, errors) = decode(&value, &path);
            errors.into_result().map(|()| read)
        }
        Err(_) => {
            let mut errors = FieldErrors::default();
            errors.invalid_plain(path, "text", "must be JSON");
            Err(errors)
        }
    }
}

/// Returns the names of the fields that a struct of the API has.
#[must_use]
pub fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    match shape_at::<T>(&[]) {
        Shape::Fields(fields) => fields,
        Shape::Entries | Shape::Other => &[],
    }
}

/// A value that is not of the type of its field.
struct WrongValue {
    steps: Vec<Step>,
    expected: Expected,
}

/// Type of a field.
enum Expected {
    Text,
    Bool,
    Int32,
    Int64,
    IntOrText,
    Quantity,
    List,
    Map,
    Time,
    /// The message of serde.
    Other(String),
}

impl Expected {
    /// Returns the type that serde's error names: visitors of the Kubernetes API have the names of their types.
    fn of(message: &str) -> Self {
        // Values of the fleet's objects: a word of a fixed set, a field without which there is no object, a duration.
        const SENTENCES: [&str; 5] =
            ["unknown variant", "missing field", "invalid unit", "missing a unit", "invalid floating-point number"];
        if SENTENCES.iter().any(|start| message.starts_with(start)) {
            return Self::Other(message.replace('`', "\""));
        }
        // A text that is read further has an error of its own; of such types, pods have times alone.
        if !message.starts_with("invalid type: ") && !message.starts_with("invalid value: ") {
            return Self::Time;
        }
        match message.rsplit_once("expected ").map_or("", |(_, expected)| expected) {
            "Quantity" => Self::Quantity,
            "a string" => Self::Text,
            "a boolean" => Self::Bool,
            "i32" => Self::Int32,
            "i64" => Self::Int64,
            "IntOrString" | "a 32-bit integer" => Self::IntOrText,
            "a sequence" => Self::List,
            "a map" => Self::Map,
            name if name.starts_with(char::is_uppercase) => Self::Map,
            _ => Self::Other(message.to_owned()),
        }
    }

    fn sentence(&self) -> &str {
        match self {
            Self::Text => "must be text",
            Self::Bool => "must be true or false",
            Self::Int32 => "must be a whole number of 32 bits",
            Self::Int64 => "must be a whole number of 64 bits",
            Self::IntOrText => "must be a whole number of 32 bits, or text",
            Self::Quantity => "must be a quantity",
            Self::List => "must be a list",
            Self::Map => "must be a map",
            Self::Time => "must be a time as in RFC 3339",
            Self::Other(message) => message,
        }
    }

    /// Returns a value of the type, for an entry of a list, so that later entries keep their index.
    fn empty(&self) -> Value {
        match self {
            Self::Text => Value::from(""),
            Self::Int32 | Self::Int64 | Self::IntOrText => Value::from(0),
            Self::Bool => Value::from(false),
            Self::List => Value::Array(Vec::new()),
            Self::Map | Self::Quantity | Self::Time | Self::Other(_) => Value::Object(Map::new()),
        }
    }
}

/// Reads a value, and collects the paths of fields that the type does not have.
fn read<T: DeserializeOwned>(value: &Value, unknown: &mut Vec<Vec<Step>>) -> Result<T, WrongValue> {
    let mut track = Track::new();
    let mut ignored = |path: serde_ignored::Path<'_>| {
        let mut steps = Vec::new();
        push_steps(&path, &mut steps);
        unknown.push(steps);
    };
    let reader = serde_ignored::Deserializer::new(value, &mut ignored);
    T::deserialize(serde_path_to_error::Deserializer::new(reader, &mut track)).map_err(|error| {
        let path = track.path();
        let steps = path.iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        WrongValue { steps: steps.collect(), expected: Expected::of(&error.to_string()) }
    })
}

fn push_steps(path: &serde_ignored::Path<'_>, steps: &mut Vec<Step>) {
    use serde_ignored::Path;
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            push_steps(parent, steps);
            steps.push(Step::Index(*index));
        }
        Path::Map { parent, key } => {
            push_steps(parent, steps);
            steps.push(Step::Key(key.clone()));
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            push_steps(parent, steps);
        }
    }
}

fn report_unknown<T: DeserializeOwned>(path: &FieldPath, steps: &[Step], errors: &mut FieldErrors) {
    let closest = match steps.split_last() {
        Some((Step::Key(key), parent)) => match shape_at::<T>(parent) {
            Shape::Fields(fields) => base::nearest(key, fields.iter().copied()).map(str::to_owned),
            Shape::Entries | Shape::Other => None,
        },
        _ => None,
    };
    errors.push(field_path::<T>(path, steps), FieldProblem::Unknown { closest });
}

/// Returns the steps below `path` in the notation of Kubernetes, in which keys of the user's own are in brackets.
fn field_path<T: DeserializeOwned>(path: &FieldPath, steps: &[Step]) -> FieldPath {
    let mut path = path.clone();
    for (length, step) in steps.iter().enumerate() {
        path = match step {
            Step::Index(index) => path.index(*index),
            Step::Key(key) if shape_at::<T>(&steps[..length]) == Shape::Entries => path.key(key),
            Step::Key(key) => path.child(key),
        };
    }
    path
}

fn entry<'v>(value: &'v Value, step: &Step) -> Option<&'v Value> {
    match step {
        Step::Key(key) => value.get(key),
        Step::Index(index) => value.get(index),
    }
}

/// Takes a value out. Returns false if there is nothing to take out.
fn remove(value: &mut Value, steps: &[Step], expected: &Expected) -> bool {
    let Some((last, parent)) = steps.split_last() else { return false };
    let parent = parent.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    });
    match (parent, last) {
        (Some(Value::Object(map)), Step::Key(key)) => map.shift_remove(key).is_some(),
        (Some(Value::Array(list)), Step::Index(index)) => match list.get_mut(*index) {
            Some(entry) => std::mem::replace(entry, expected.empty()) != *entry,
            None => false,
        },
        _ => false,
    }
}

/// Returns a value in one line, without parts that may be long or secret.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("{:?}…", text.chars().take(60).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

/// Quantities as the API has them: manifests may write a number, and the type is text.
fn with_quantities_as_text(value: &Value) -> Cow<'_, Value> {
    if !has_number(value, "", "") {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    write_numbers_as_text(&mut value, "", "");
    Cow::Owned(value)
}

/// Returns true for the entry `key` of the map `parent`, which is in the map `outer`, if it is a quantity.
fn is_quantity(outer: &str, parent: &str, key: &str) -> bool {
    match parent {
        "limits" | "requests" => outer == "resources",
        "overhead" => outer == "spec",
        "emptyDir" => key == "sizeLimit",
        "resourceFieldRef" => key == "divisor",
        _ => false,
    }
}

fn has_number(value: &Value, outer: &str, parent: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| match value {
            Value::Number(_) => is_quantity(outer, parent, key),
            _ => has_number(value, parent, key),
        }),
        Value::Array(list) => list.iter().any(|value| has_number(value, outer, parent)),
        _ => false,
    }
}

fn write_numbers_as_text(value: &mut Value, outer: &str, parent: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::Number(number) if is_quantity(outer, parent, key) => *value = number.to_string().into(),
                    _ => write_numbers_as_text(value, parent, key),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| write_numbers_as_text(value, outer, parent)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{LifecycleHandler, PodTemplateSpec};
    use serde_json::json;

    use super::*;

    fn errors(template: &Value) -> Vec<String> {
        let (_, errors) = decode::<PodTemplateSpec>(template, &FieldPath::default());
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_reported_with_its_path() {
        let template = json!({
            "metadata": {"name": 1, "labels": {"a/b": 2, "c": "d"}, "deletionTimestamp": "noon", "namespce": "x"},
            "spec": {
                "containers": [7, {"name": "c", "comand": [], "args": ["a", 3, "b"], "resources": {"limits": {"cpu": []}},
                               "livenessProbe": {"httpGet": {"port": true}, "periodSeconds": 3_000_000_000_i64}}],
                "hostNetwork": "yes", "volumes": {}, "terminationGracePeriodSeconds": 1.5,
            },
        });
        assert_eq!(
            errors(&template),
            [
                "metadata.name: Invalid value: 1: must be text",
                "metadata.labels[a/b]: Invalid value: 2: must be text",
                "metadata.deletionTimestamp: Invalid value: \"noon\": must be a time as in RFC 3339",
                "spec.containers[0]: Invalid value: 7: must be a map",
                "spec.containers[1].args[1]: Invalid value: 3: must be text",
                "spec.containers[1].resources.limits[cpu]: Invalid value: a list: must be a quantity",
                "spec.containers[1].livenessProbe.httpGet.port: Invalid value: true: must be a whole number of 32 bits, or text",
                "spec.containers[1].livenessProbe.periodSeconds: Invalid value: 3000000000: must be a whole number of 32 bits",
                "spec.hostNetwork: Invalid value: \"yes\": must be true or false",
                "spec.volumes: Invalid value: a map: must be a list",
                "spec.terminationGracePeriodSeconds: Invalid value: 1.5: must be a whole number of 64 bits",
                "metadata.namespce: Unknown field; did you mean \"namespace\"?",
                "spec.containers[1].comand: Unknown field; did you mean \"command\"?",
            ]
        );
    }

    #[test]
    fn a_wrong_value_counts_as_absent() {
        let template = json!({"spec": {"containers": [{"name": 1, "image": "x"}, null, {"name": "c"}], "hostPID": 1}});
        let (template, errors) = decode::<PodTemplateSpec>(&template, &FieldPath::default());
        let spec = template.spec.expect("read");
        let names: Vec<(&str, Option<&str>)> = spec.containers.iter().map(|c| (&*c.name, c.image.as_deref())).collect();
        assert_eq!((names, spec.host_pid), (vec![("", Some("x")), ("", None), ("c", None)], None));
        assert_eq!(errors.iter().count(), 3);
    }

    #[test]
    fn the_passes_over_a_document_are_bounded() {
        let wrong = |count: usize| json!({"spec": {"containers": vec![7; count]}});
        assert_eq!(errors(&wrong(MAX_WRONG_VALUES - 1)).len(), MAX_WRONG_VALUES - 1);
        let many = errors(&wrong(100_000));
        assert_eq!(many.len(), MAX_WRONG_VALUES + 1);
        assert_eq!(many[MAX_WRONG_VALUES], "the object: Forbidden: more than 64 values of a wrong type");
        assert_eq!(errors(&json!([])), ["the object: Invalid value: a list: must be a map"]);
    }

    #[test]
    fn quantities_may_be_numbers_and_labels_may_not() {
        let template = json!({
            "metadata": {"annotations": {"limits": 1, "sizeLimit": 2}},
            "spec": {
                "overhead": {"cpu": 1},
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": 5}}],
                "containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": 0.5}, "requests": {"cpu": "1m"}}}],
            },
        });
        assert_eq!(
            errors(&template),
            [
                "metadata.annotations[limits]: Invalid value: 1: must be text",
                "metadata.annotations[sizeLimit]: Invalid value: 2: must be text",
            ]
        );
        let (template, _) = decode::<PodTemplateSpec>(&template, &FieldPath::default());
        let spec = template.spec.expect("read");
        let limits =
            spec.containers[0].resources.as_ref().and_then(|resources| resources.limits.as_ref()).expect("set");
        assert_eq!((&*limits["cpu"].0, &*limits["memory"].0), ("1", "0.5"));
    }

    #[test]
    fn text_of_an_annotation_is_read_as_strictly() {
        let handler = decode_text::<LifecycleHandler>(r#"{"exec": {"command": ["bye"]}}"#, "handler").expect("read");
        assert_eq!(handler.exec.and_then(|exec| exec.command), Some(vec!["bye".to_owned()]));
        let error = |text: &str| decode_text::<LifecycleHandler>(text, "handler").expect_err("refused").to_string();
        assert_eq!(error("{"), "handler: Invalid value: text: must be JSON");
        assert_eq!(error(r#"{"exce": {}}"#), "handler.exce: Unknown field; did you mean \"exec\"?");
    }
}
