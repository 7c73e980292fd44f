//! Reads ImageSets and the Fleet from files. Every wrong field of every document is reported with file and line before anything is sent.
//! Called by the commands that read sets.

use std::path::PathBuf;

use fleet::api::{FLEET, GROUP, VERSION};
use fleet::console::{FleetManifest, SetManifest, problems};
use manifest::yaml::{self, Node};
use manifest::{FieldErrors, FieldPath, decode};
use serde_json::Value;

use crate::app::App;
use crate::cli::pods::{ManifestText, texts};
use crate::exit::{Failure, Outcome};

/// An object of the fleet's kinds, as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FleetObject {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) value: Value,
}

impl FleetObject {
    pub(super) fn of(value: Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self { kind: text(&value["kind"]), name: text(&value["metadata"]["name"]), value }
    }
}

/// Returns the objects of all files.
pub(super) async fn read(app: &App, files: &[PathBuf]) -> Outcome<Vec<FleetObject>> {
    let (mut objects, mut failures) = (Vec::new(), Vec::new());
    for text in texts(app, files, false).await? {
        let (found, wrong) = parse(&text);
        objects.extend(found);
        failures.extend(wrong.into_iter().map(Failure::failed));
    }
    match Failure::all(failures) {
        Some(failure) => Err(failure),
        None if objects.is_empty() => Err(Failure::failed("no ImageSet is in the files")),
        None => Ok(objects),
    }
}

/// Returns the objects of a file, and its errors with their lines.
fn parse(ManifestText { name, text }: &ManifestText) -> (Vec<FleetObject>, Vec<String>) {
    let file = if name == "-" { "standard input" } else { name };
    let documents = match yaml::documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            let place = error.position.map(|at| format!(":{}:{}", at.line, at.column)).unwrap_or_default();
            return (Vec::new(), vec![format!("{file}{place}: {}", error.message)]);
        }
    };
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for node in documents.iter().flat_map(items) {
        let (object, wrong) = object(node);
        objects.extend(object);
        errors.extend(wrong.into_iter().map(|(line, message)| format!("{file}:{line}: {message}")));
    }
    (objects, errors)
}

/// Returns the objects of a `v1` List, or the document itself.
fn items(node: &Node) -> Vec<&Node> {
    let text = |key: &str| match node.get(key).map(|node| &node.value) {
        Some(yaml::Value::Text(text)) => text.as_str(),
        _ => "",
    };
    match (text("apiVersion"), text("kind"), node.get("items").map(|items| &items.value)) {
        ("v1", "List", Some(yaml::Value::List(items))) => items.iter().collect(),
        _ => vec![node],
    }
}

/// Returns the object of a document, and its errors with their lines.
fn object(node: &Node) -> (Option<FleetObject>, Vec<(u64, String)>) {
    let line = node.position.line;
    let value = Value::from(node.value.clone());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind, name) = (text(&value["apiVersion"]), text(&value["kind"]), text(&value["metadata"]["name"]));
    let ours = format!("{GROUP}/{VERSION}");
    let kind = match kind.as_str() {
        "ImageSet" => "ImageSet",
        "Fleet" => "Fleet",
        "" => return (None, vec![(line, "kind is missing".to_owned())]),
        other => {
            let hint = base::nearest(other, ["ImageSet", "Fleet"]).map(|near| format!("; did you mean {near}?"));
            let hint = hint.unwrap_or_else(|| "; `kubectl apply` is for other kinds".to_owned());
            return (None, vec![(line, format!("kind {other} is neither ImageSet nor Fleet{hint}"))]);
        }
    };
    if version != ours {
        return (None, vec![(line, format!("apiVersion of {kind} is {version:?}, and must be {ours:?}"))]);
    }
    let (errors, further) = match kind {
        "Fleet" => (decode::<FleetManifest>(&value, &FieldPath::default()).1, Vec::new()),
        _ => {
            let (set, errors) = decode::<SetManifest>(&value, &FieldPath::default());
            (errors, problems(&set.spec))
        }
    };
    let mut wrong = lines(node, &value, errors);
    if wrong.is_empty() {
        wrong.extend(further.into_iter().map(|(path, problem)| {
            let shown = format!("{}: {problem}", path);
            (node.at(&path).position.line, shown)
        }));
    }
    if name.is_empty() {
        wrong.push((line, "metadata.name: Required value".to_owned()));
    } else if kind == "Fleet" && name != FLEET {
        wrong.push((line, format!("metadata.name: Invalid value: {name:?}: the only Fleet is named {FLEET}")));
    }
    (wrong.is_empty().then_some(FleetObject { kind: kind.to_owned(), name, value }), wrong)
}

/// Returns the errors with their lines, in the order of the document.
fn lines(node: &Node, value: &Value, errors: FieldErrors) -> Vec<(u64, String)> {
    let errors = errors.in_order_of(value, &FieldPath::default());
    errors.iter().map(|error| (node.at(error.field.as_str()).position.line, error.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<FleetObject>, Vec<String>> {
        let (objects, errors) = parse(&ManifestText { name: "web.yaml".to_owned(), text: text.to_owned() });
        if errors.is_empty() { Ok(objects) } else { Err(errors) }
    }

    const HEAD: &str = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageSet\nmetadata: {name: web}\n";

    #[test]
    fn objects_are_read_from_documents_and_lists() {
        let set = format!("{HEAD}spec:\n  images: [{{name: 'a:1'}}]\n  nodeSelector: {{}}\nstatus: {{}}\n");
        let fleet = "apiVersion: imagelet.dev/v1alpha1\nkind: Fleet\nmetadata: {name: default}\nspec: {paused: true}\n";
        let objects = read(&format!("{set}---\n{fleet}")).expect("read");
        let names: Vec<_> = objects.iter().map(|object| (object.kind.as_str(), object.name.as_str())).collect();
        assert_eq!(names, [("ImageSet", "web"), ("Fleet", "default")]);
        let list = format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{}]}}", objects[0].value);
        assert_eq!(read(&list).expect("read"), objects[..1]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let spec = |lines: &str| format!("{HEAD}spec:\n{lines}");
        let good = "  images: [{name: 'a:1'}]\n  nodeSelector: {}\n";
        for (text, want) in [
            (
                spec(&format!("{good}  rollout:\n    maxConcurent: 1\n")),
                "web.yaml:8: spec.rollout.maxConcurent: Unknown field; did you mean \"maxConcurrent\"?",
            ),
            (spec(&format!("{good}  pin: 3\n")), "web.yaml:7: spec.pin: Invalid value: 3: must be true or false"),
            (
                spec(&format!("{good}  mode: Sometimes\n")),
                "web.yaml:7: spec.mode: Invalid value: \"Sometimes\": unknown variant \"Sometimes\", expected \"Keep\" or \"Once\"",
            ),
            (
                spec("  images: []\n  nodeSelector: {}\n"),
                "web.yaml:5: spec.images: Required value: a set has at least one image",
            ),
            (
                spec("  images:\n  - name: a:1\n  - name: a:1\n  nodeSelector: {}\n"),
                "web.yaml:7: spec.images[1].name: Duplicate value: \"a:1\"",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n".to_owned(),
                "web.yaml:1: kind Pod is neither ImageSet nor Fleet; `kubectl apply` is for other kinds",
            ),
            (
                "apiVersion: imagelet.dev/v1alpha1\nkind: Imageset\n".to_owned(),
                "web.yaml:1: kind Imageset is neither ImageSet nor Fleet; did you mean ImageSet?",
            ),
            (
                spec(good).replace("v1alpha1", "v1"),
                "web.yaml:1: apiVersion of ImageSet is \"imagelet.dev/v1\", and must be \"imagelet.dev/v1alpha1\"",
            ),
        ] {
            assert_eq!(read(&text).expect_err(&text), [want], "{text}");
        }
        let several = read(&spec(&format!("{good}  pin: 3\n  modee: Once\n"))).expect_err("refused");
        assert_eq!(several.len(), 2, "{several:?}");
        let duration = read(&spec(&format!("{good}  releaseAfter: tomorrow\n"))).expect_err("refused");
        assert!(
            duration[0].starts_with("web.yaml:7: spec.releaseAfter: Invalid value: \"tomorrow\": "),
            "{duration:?}"
        );
    }
}
