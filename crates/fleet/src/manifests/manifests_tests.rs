//! Tests of the manifests: schemas are structural and bounded, every field has a description, and rights are as small as promised.

use super::*;

/// Calls `check` for each schema, with its path.
fn walk(path: &str, schema: &Value, check: &mut impl FnMut(&str, &Value)) {
    check(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), child, check);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            walk(&format!("{path}[]"), &schema[part], check);
        }
    }
}

fn schemas() -> Vec<(String, Value)> {
    let schema = |crd: Value| {
        let kind = crd["spec"]["names"]["kind"].as_str().expect("a kind").to_owned();
        (kind, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
    };
    crds().into_iter().map(schema).collect()
}

#[test]
fn every_schema_is_structural_bounded_and_described() {
    let mut problems = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema, &mut |path, schema| {
            let mixed = schema["x-kubernetes-int-or-string"] == true;
            if !schema["type"].is_string() && !mixed {
                problems.push(format!("{path}: no type: {schema}"));
            }
            if schema["type"] == "array" && !schema["maxItems"].is_u64() {
                problems.push(format!("{path}: no maxItems"));
            }
            let is_bounded =
                schema["maxLength"].is_u64() || schema["enum"].is_array() || schema["format"] == "date-time";
            if schema["type"] == "string" && !is_bounded && path.contains("spec") {
                problems.push(format!("{path}: no maxLength"));
            }
            if schema["description"].as_str().is_none_or(str::is_empty) && !path.ends_with("[]") {
                problems.push(format!("{path}: no description"));
            }
            // Kubernetes 1.20 reads an empty text as null, and refuses it.
            if schema["default"] == "" {
                problems.push(format!("{path}: an empty default"));
            }
            for word in ["allOf", "anyOf", "oneOf", "$ref"] {
                if !schema[word].is_null() && !mixed {
                    problems.push(format!("{path}: {word}"));
                }
            }
        });
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn kinds_have_short_names_columns_statuses_and_rules() {
    for (crd, short, rules) in
        crds().iter().zip(["imgset", "nimg", ""]).zip([2, 0, 1]).map(|((crd, short), rules)| (crd, short, rules))
    {
        let (names, version) = (&crd["spec"]["names"], &crd["spec"]["versions"][0]);
        assert_eq!(names["shortNames"][0].as_str().unwrap_or_default(), short);
        assert_eq!(
            (crd["spec"]["scope"].as_str(), names["categories"][0].as_str()),
            (Some("Cluster"), Some("imagelet"))
        );
        assert!(version["subresources"]["status"].is_object());
        assert!(version["additionalPrinterColumns"].as_array().is_some_and(|columns| columns.len() >= 4));
        let mut found = 0;
        walk("", &version["schema"]["openAPIV3Schema"], &mut |_, schema| {
            found += schema["x-kubernetes-validations"].as_array().map_or(0, Vec::len);
        });
        assert_eq!(found, rules, "{short}");
    }
}

#[test]
fn lists_with_keys_merge() {
    let (_, schema) = &schemas()[0];
    let spec = &schema["properties"]["spec"]["properties"];
    for list in [&spec["images"], &spec["pullSecrets"]] {
        assert_eq!(list["x-kubernetes-list-type"], "map");
        assert_eq!(list["x-kubernetes-list-map-keys"], json!(["name"]));
    }
    assert_eq!(spec["nodeNames"]["x-kubernetes-list-type"], "set");
    assert_eq!(spec["releaseAfter"]["default"], "86400s");
    let (_, report) = &schemas()[1];
    let images = &report["properties"]["status"]["properties"]["images"];
    assert_eq!(images["x-kubernetes-list-map-keys"], json!(["set", "name"]));
}

#[test]
fn a_set_with_the_fewest_fields_has_the_defaults() {
    let set: ImageSet = serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"name": "s"},
        "spec": {"images": [{"name": "app:1"}]},
    }))
    .expect("a set");
    let default = crate::api::ImageSetSpec { images: set.spec.images.clone(), ..Default::default() };
    assert_eq!(set.spec, default);
}

#[test]
fn nothing_may_write_secrets_or_pods() {
    for object in rbac::objects() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            assert!(!text.contains("\"*\"") && !text.contains("\"pods\""), "{text}");
            if text.contains("secrets") {
                assert_eq!(rule["verbs"], json!(["get"]));
            }
        }
    }
}

#[test]
fn the_base_has_every_object_once() {
    let mut names: Vec<String> =
        install().iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    let files: Vec<&str> = base().iter().map(|(name, _)| *name).collect();
    let listed = kustomization();
    assert!(
        files.iter().all(|file| *file == "kustomization.yaml"
            || listed["resources"].as_array().expect("a list").contains(&json!(file)))
    );
}

#[test]
fn every_workload_has_probes_on_the_port_of_its_metrics() {
    let all = install();
    let workloads =
        all.iter().filter(|object| ["Deployment", "DaemonSet"].contains(&object["kind"].as_str().unwrap_or_default()));
    let mut count = 0;
    for workload in workloads {
        count += 1;
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["ports"], json!([{"name": "metrics", "containerPort": 9095}]));
        for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/livez")] {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "metrics"}));
        }
        let address = "0.0.0.0:9095";
        let config = all.iter().find(|object| object["kind"] == "ConfigMap").expect("a ConfigMap");
        let settings = [container["args"].to_string(), config["data"]["config.yaml"].to_string()];
        assert!(settings.iter().any(|text| text.contains(address)), "{settings:?}");
    }
    assert_eq!(count, 2);
}
