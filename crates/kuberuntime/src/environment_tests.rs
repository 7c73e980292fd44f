//! Values of variables: order, references, the downward API, documents, and what is missing.

use serde_json::{Value, json};

use super::*;
use oci::Quantity;

fn pod(container: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("main");
    container["image"] = json!("app:1");
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1",
            "labels": {"app": "web", "tier": "front"}, "annotations": {"note/of": "a \"b\"\nc\\d"},
        },
        "spec": {
            "serviceAccountName": "clerk",
            "containers": [container, {"name": "other", "image": "x:1", "resources": {"limits": {"memory": "64Mi"}}}],
        },
    });
    let mut pod = Pod::from_json(&manifest).expect("a pod");
    crate::set_defaults(&mut pod);
    pod
}

fn documents() -> Documents {
    let document = |pairs: &[(&str, &[u8])]| Document {
        data: pairs.iter().map(|(key, value)| ((*key).to_owned(), DocumentContent::new(*value))).collect(),
        ..Document::default()
    };
    let settings = document(&[("COLOR", b"red"), ("bad=key", b"x"), ("SIZE", b"$(COLOR)")]);
    let login = document(&[("password", b"swordfish"), ("blob", &[0xff])]);
    Documents {
        config_maps: [("settings".to_owned(), settings)].into(),
        secrets: [("login".to_owned(), login)].into(),
        ..Documents::default()
    }
}

fn context() -> PodContext {
    PodContext {
        node_name: "edge-1".into(),
        host_ips: vec!["192.0.2.1".into(), "2001:db8::1".into()],
        pod_ips: vec!["10.0.0.7".into(), "2001:db8::7".into()],
        allocatable_cpu: Quantity::milli(1900),
        allocatable_memory: Quantity::bytes(1 << 30),
        allocatable_ephemeral_storage: Quantity::bytes(10 << 30),
    }
}

fn resolved(container: Value) -> Result<Vec<(String, String)>, String> {
    let pod = pod(container);
    let environment = resolve(&pod, &pod.spec.containers[0], &documents(), &context()).map_err(|e| e.to_string())?;
    Ok(environment.iter().map(|(name, value)| (name.to_owned(), value.expose().to_owned())).collect())
}

fn pairs(list: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
    Ok(list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

#[test]
fn each_sees_those_before_it_and_a_later_one_replaces() {
    let got = resolved(json!({
        "envFrom": [{"prefix": "", "configMapRef": {"name": "settings"}}],
        "env": [
            {"name": "A", "value": "$(B)"},
            {"name": "B", "value": "$(A)+$(COLOR)"},
            {"name": "COLOR", "value": "blue"},
            {"name": "C", "value": "$(COLOR)$$(COLOR)$"},
            {"name": "EMPTY"},
            {"name": "D", "value": "[$(EMPTY)]"},
        ],
    }));
    let want = [
        ("COLOR", "blue"),
        // A value from a document is not expanded.
        ("SIZE", "$(COLOR)"),
        ("A", "$(B)"),
        ("B", "$(B)+red"),
        ("C", "blue$(COLOR)$"),
        ("EMPTY", ""),
        ("D", "[]"),
    ];
    assert_eq!(got, pairs(&want));
}

#[test]
fn fields_and_amounts() {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let amount = |name: &str, resource: &str, container: &str, divisor: &str| {
        let reference = json!({"resource": resource, "containerName": container, "divisor": divisor});
        json!({"name": name, "valueFrom": {"resourceFieldRef": reference}})
    };
    let got = resolved(json!({
        "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "100M"}},
        "env": [
            field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("UID", "metadata.uid"),
            field("LABEL", "metadata.labels['tier']"), field("NOTE", "metadata.annotations['none']"),
            field("NODE", "spec.nodeName"), field("ACCOUNT", "spec.serviceAccountName"),
            field("HOST", "status.hostIP"), field("HOSTS", "status.hostIPs"),
            field("IP", "status.podIP"), field("IPS", "status.podIPs"),
            amount("CPU", "limits.cpu", "", "0"), amount("MILLI", "limits.cpu", "main", "1m"),
            amount("ASKED", "requests.cpu", "", "1m"), amount("MEM", "requests.memory", "", "1Mi"),
            amount("ALL", "limits.memory", "", "1Mi"), amount("OTHER", "limits.memory", "other", "1Mi"),
            amount("NONE", "requests.ephemeral-storage", "", "1"), amount("DISK", "limits.ephemeral-storage", "", "1Gi"),
        ],
    }));
    let want = [
        ("NAME", "web"),
        ("NS", "shop"),
        ("UID", "u-1"),
        ("LABEL", "front"),
        ("NOTE", ""),
        ("NODE", "edge-1"),
        ("ACCOUNT", "clerk"),
        ("HOST", "192.0.2.1"),
        ("HOSTS", "192.0.2.1,2001:db8::1"),
        ("IP", "10.0.0.7"),
        ("IPS", "10.0.0.7,2001:db8::7"),
        ("CPU", "2"),
        ("MILLI", "1500"),
        ("ASKED", "1500"),
        ("MEM", "96"),
        ("ALL", "1024"),
        ("OTHER", "64"),
        ("NONE", "0"),
        ("DISK", "10"),
    ];
    assert_eq!(got, pairs(&want));
}

#[test]
fn files_show_whole_maps() {
    let pod = pod(json!({}));
    let shown = |path: &str| PodField::parse(path, FieldUse::File).map(|field| field.value(&pod, &context()));
    assert_eq!(shown("metadata.labels").as_deref(), Some("app=\"web\"\ntier=\"front\""));
    assert_eq!(shown("metadata.annotations").as_deref(), Some(r#"note/of="a \"b\"\nc\\d""#));
    assert_eq!(shown("status.podIP"), None);
    assert_eq!(PodField::parse("metadata.labels", FieldUse::Variable), None);
}

#[test]
fn what_is_missing() {
    let key = |kind: &str, name: &str, key: &str, optional: bool| json!({"env": [{"name": "V", "valueFrom": {kind: {"name": name, "key": key, "optional": optional}}}]});
    let whole =
        |kind: &str, name: &str, optional: bool| json!({"envFrom": [{kind: {"name": name, "optional": optional}}]});
    let cases = [
        (key("configMapKeyRef", "settings", "COLOR", false), pairs(&[("V", "red")])),
        (key("secretKeyRef", "login", "password", false), pairs(&[("V", "swordfish")])),
        (key("configMapKeyRef", "none", "COLOR", false), Err("configmap \"none\" not found".to_owned())),
        (key("configMapKeyRef", "none", "COLOR", true), pairs(&[])),
        (
            key("configMapKeyRef", "settings", "k", false),
            Err("couldn't find key k in ConfigMap shop/settings".to_owned()),
        ),
        (key("configMapKeyRef", "settings", "k", true), pairs(&[])),
        (key("secretKeyRef", "none", "k", false), Err("secret \"none\" not found".to_owned())),
        (key("secretKeyRef", "login", "k", false), Err("couldn't find key k in Secret shop/login".to_owned())),
        (key("secretKeyRef", "login", "k", true), pairs(&[])),
        (
            key("secretKeyRef", "login", "blob", true),
            Err("key blob in Secret shop/login is not text in UTF-8".to_owned()),
        ),
        (whole("configMapRef", "none", false), Err("configmap \"none\" not found".to_owned())),
        (whole("secretRef", "none", false), Err("secret \"none\" not found".to_owned())),
        (whole("secretRef", "none", true), pairs(&[])),
        (whole("secretRef", "login", false), Err("key blob in Secret shop/login is not text in UTF-8".to_owned())),
    ];
    for (container, want) in cases {
        assert_eq!(resolved(container.clone()), want, "{container}");
    }
}

#[test]
fn no_output_shows_a_value_and_skipped_keys_are_reported() {
    let pod = pod(json!({
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
        "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}],
        "command": ["sh", "-c", "echo $(V) $(NONE)"],
    }));
    let container = &pod.spec.containers[0];
    let environment = resolve(&pod, container, &documents(), &context()).expect("resolved");
    assert!(!format!("{environment:?} {:?}", documents()).contains("swordfish"));
    assert_eq!(environment.filled_in(&container.command)[2], "echo swordfish $(NONE)");
    assert_eq!(environment.path("a/$(V)"), Ok("a/swordfish".to_owned()));
    assert!(environment.path("$(V)/../x").is_err() && environment.path("/a").is_err());
    assert_eq!(environment.path("a/$(NONE)").map_err(|e| e.to_string()), Err("missing value for \"NONE\"".to_owned()));
    assert_eq!(
        environment.skipped[0].to_string(),
        "Keys [P_bad=key] from the EnvFrom configMap shop/settings were skipped since they are considered invalid \
         environment variable names."
    );
}
