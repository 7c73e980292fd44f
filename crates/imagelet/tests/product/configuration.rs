//! `imagelet config` as a person uses it: the schema as a validator reads it, the check of files, the values in force, and the migration
//! from a kubelet.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Imagelet, Scratch};

const HEAD: &str = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n";

/// Asks Debian's validator what is wrong with documents: the places of the errors of each.
const VALIDATOR: &str = "\
import json, sys
from jsonschema import Draft202012Validator as Validator
asked = json.load(sys.stdin)
Validator.check_schema(asked['schema'])
errors = Validator(asked['schema']).iter_errors
json.dump([['.'.join(str(part) for part in error.absolute_path) for error in errors(d)] for d in asked['documents']], sys.stdout)
";

/// The places of the errors of each document.
#[track_caller]
fn validate(schema: &Value, documents: &[Value]) -> Vec<Vec<String>> {
    // Debian's program, which has Debian's library.
    let mut child = std::process::Command::new("/usr/bin/python3")
        .args(["-c", VALIDATOR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3: run scripts/prerequisites.sh");
    let asked = json!({"schema": schema, "documents": documents}).to_string();
    child.stdin.take().expect("piped").write_all(asked.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "python3-jsonschema is there after scripts/prerequisites.sh");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A document with one field.
fn document(field: &str, value: &Value) -> Value {
    let mut document = json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageletConfiguration"});
    match field.split_once('.') {
        None => document[field] = value.clone(),
        Some((outer, inner)) => document[outer] = json!({ inner: value }),
    }
    document
}

/// Every setting with its schema.
fn settings(schema: &Value) -> Vec<(String, Value)> {
    let properties = schema["properties"].as_object().expect("properties");
    let mut settings = Vec::new();
    for (name, property) in properties.iter().filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str())) {
        match property["properties"].as_object() {
            Some(inner) => settings.extend(inner.iter().map(|(key, of)| (format!("{name}.{key}"), of.clone()))),
            None => settings.push((name.clone(), property.clone())),
        }
    }
    settings
}

/// A value that the schema of a setting must refuse.
fn wrong(schema: &Value) -> Value {
    match (schema["type"].as_str(), schema["minimum"].as_i64()) {
        (Some("integer"), Some(minimum)) => json!(minimum - 1),
        (Some("array" | "object"), _) => json!("one text"),
        (Some("string"), _) if schema["pattern"].is_string() => json!("ten"),
        (Some("string"), _) => json!(5),
        _ => json!("no such word"),
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_validator_takes_what_the_program_takes_and_refuses_what_it_refuses() {
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("root"));
    let schema: Value = serde_json::from_str(&imagelet.ok(&["config", "schema"])).expect("JSON");
    let example = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/config.yaml"));
    let example: Value = serde_saphyr::from_str(&example.expect("the example")).expect("YAML");
    let in_force: Value = serde_json::from_str(&imagelet.ok(&["config", "-o", "json"])).expect("JSON");
    let settings = settings(&schema);
    assert_eq!(settings.len(), 75, "every setting is tried");
    let mut good = vec![example, in_force];
    good.extend(settings.iter().filter(|(_, of)| !of["default"].is_null()).map(|(n, of)| document(n, &of["default"])));
    for (document, errors) in good.iter().zip(validate(&schema, &good)) {
        assert_eq!(errors, Vec::<String>::new(), "{document:#}");
    }

    let mut bad: Vec<Value> = settings.iter().map(|(name, of)| document(name, &wrong(of))).collect();
    let fields: Vec<&str> = settings.iter().map(|(name, _)| name.as_str()).collect();
    for ((document, errors), field) in bad.iter().zip(validate(&schema, &bad)).zip(&fields) {
        assert!(errors.iter().any(|error| error == field), "{field}: {errors:?}: {document:#}");
    }
    // The program refuses everything that the schema refuses, and reports all of it at once.
    let mut all = json!({});
    for document in &mut bad {
        for (key, value) in document.as_object().expect("an object") {
            match (all[key].as_object_mut(), value.as_object()) {
                (Some(there), Some(more)) => there.extend(more.clone()),
                _ => all[key] = value.clone(),
            }
        }
    }
    let path = scratch.join("bad.yaml");
    fs::write(&path, all.to_string()).expect("written");
    let done = imagelet.run(&["config", "check", &path.display().to_string()]);
    assert_eq!(done.code, Some(64), "{done:?}");
    for field in fields {
        // Any text is a keep rule's or a name's list, if it is one.
        assert!(done.stderr.contains(field), "{field} is not refused:\n{}", done.stderr);
    }
    let strange =
        [json!({"kind": "ImageletConfiguration"}), document("rot", &json!(1)), document("limits.x", &json!(1))];
    for (document, errors) in strange.iter().zip(validate(&schema, &strange)) {
        assert!(!errors.is_empty(), "{document:#}");
    }
}

#[test]
fn a_check_needs_no_good_configuration_and_tells_every_error() {
    let scratch = Scratch::new();
    let write = |name: &str, text: &str| {
        let path = scratch.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, format!("{HEAD}{text}")).expect("written");
        path.display().to_string()
    };
    let good = write("good.yaml", "imageGCHighThresholdPercent: 90\nmaxPods: 1\n");
    let broken = write("broken.yaml", "durability: fast\nimageGCHighThresholdPercent: 10\nrot: /x\n");
    // A broken configuration in force does not affect the check of another file.
    let imagelet = Imagelet::bare().env("IMAGELET_CONFIG", &broken).env("IMAGELET_MAX_PODS", "x");
    assert_eq!(imagelet.ok(&["config", "check", &good]), format!("{good} is good\n"));
    let done = imagelet.run(&["config", "check", &broken]);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!((done.code, lines.len()), (Some(64), 3), "{done:?}");
    assert!(lines[0].starts_with(&format!("error: {broken}:3: durability: \"fast\" is not allowed")), "{lines:?}");
    assert!(lines[1].contains("broken.yaml:5: unknown field \"rot\"; did you mean root?"), "{lines:?}");
    assert!(
        lines[2].contains("imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than"),
        "{lines:?}"
    );

    write("good.yaml.d/10-pods.yaml", "maxPods: 2\n");
    write("good.yaml.d/20-pods.conf", "maxPods: -3\n");
    let said = imagelet.fails(64, &["config", "check", &good]);
    assert!(said.contains("maxPods (--max-pods) -3 must not be a negative number") && said.contains("20-pods.conf:3"));
    fs::remove_file(scratch.join("good.yaml.d/20-pods.conf")).expect("removed");

    // The values in force, each with its place.
    let imagelet = Imagelet::bare().env("IMAGELET_CONFIG", &good).env("IMAGELET_DURABILITY", "relaxed");
    let printed = imagelet.ok(&["config", "print", "--image-pull-progress-deadline", "1s", "-o", "json"]);
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    let of = |field: &str| {
        let items = printed["items"].as_array().expect("a list");
        let one = items.iter().find(|item| item["field"] == field).expect("there");
        format!("{} {} {} {}", one["value"], one["source"], one["from"], one["reloads"]).replace('"', "")
    };
    assert_eq!(of("maxPods"), format!("2 file {good}.d/10-pods.yaml:3 false"));
    assert_eq!(of("imageGCHighThresholdPercent"), format!("90 file {good}:3 true"));
    assert_eq!(of("durability"), "relaxed variable IMAGELET_DURABILITY false");
    assert_eq!(of("imagePullProgressDeadline"), "1s flag --image-pull-progress-deadline true");
    assert_eq!(of("pullMemory"), "32Mi default null false");
    let table = imagelet.ok(&["config", "print"]);
    assert!(table.lines().any(|line| line.starts_with("maxPods ") && line.ends_with("10-pods.yaml:3")), "{table}");
    assert_eq!(imagelet.ok(&["config", "check"]), "the configuration in force is good\n");
}

#[test]
fn a_kubelets_configuration_becomes_one_of_ours() {
    let scratch = Scratch::new();
    let kubelet = scratch.join("kubelet.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 42\n\
                imageMinimumGCAge: 5m\ncgroupDriver: systemd\nstaticPodURLHeader: {Authorization: [s3cret]}\n\
                evictionHard: {imagefs.available: 7%, memory.available: 100Mi}\n";
    fs::write(&kubelet, text).expect("written");
    let kubelet = kubelet.display().to_string();
    let done = Imagelet::bare().run(&["config", "migrate", "--from-kubelet", &kubelet]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!format!("{done:?}").contains("s3cret"), "{done:?}");
    for left_out in ["cgroupDriver: ", "evictionHard.memory.available: ", "staticPodURLHeader: "] {
        assert!(done.stderr.contains(&format!("left out: {left_out}")), "{}", done.stderr);
    }
    let ours = scratch.join("config.yaml");
    fs::write(&ours, &done.stdout).expect("written");
    let imagelet = Imagelet::bare().global("--config", &ours.display().to_string());
    let printed = imagelet.ok(&["config", "-o", "json"]);
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((&printed["maxPods"], &printed["imageMinimumGCAge"]), (&json!(42), &json!("5m")));
    assert_eq!(printed["evictionHard"]["imagefs.available"], "7%");
    fs::write(scratch.join("bad.yaml"), "apiVersion: v1\nkind: Pod\n").expect("written");
    let bad = scratch.join("bad.yaml").display().to_string();
    let said = Imagelet::bare().fails(64, &["config", "migrate", "--from-kubelet", &bad]);
    assert!(said.contains("must be kubelet.config.k8s.io/v1beta1"), "{said}");
}
