//! Manifests of pods, secrets and service accounts, as a person would write them, in one file each scene. Knows what a
//! docker configuration looks like; reads nothing.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Documents for one file.
#[derive(Clone, Default)]
pub(crate) struct Manifests(Vec<Value>);

/// A pod with one container.
#[derive(Clone, Copy)]
pub(crate) struct Pod<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    pub(crate) policy: &'a str,
    /// Names of its pull secrets.
    pub(crate) secrets: &'a [&'a str],
}

/// A pull secret for one registry.
#[derive(Clone, Copy)]
pub(crate) struct PullSecret<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) registry: &'a str,
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
}

impl Manifests {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// With one more document.
    pub(crate) fn document(mut self, document: Value) -> Self {
        self.0.push(document);
        self
    }

    /// With a pod.
    pub(crate) fn pod(self, pod: Pod<'_>) -> Self {
        let secrets: Vec<Value> = pod.secrets.iter().map(|name| json!({"name": name})).collect();
        self.document(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": format!("uid-of-{}", pod.name)},
            "spec": {
                "imagePullSecrets": secrets,
                "containers": [{"name": "main", "image": pod.image, "imagePullPolicy": pod.policy}],
            },
        }))
    }

    /// With a secret of the type that `kubectl create secret docker-registry` makes.
    pub(crate) fn secret(self, secret: PullSecret<'_>) -> Self {
        let config = docker_config(&[(secret.registry, secret.user, secret.password)]).to_string();
        self.document(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"namespace": secret.namespace, "name": secret.name, "uid": secret.uid},
            "data": {".dockerconfigjson": STANDARD.encode(config)},
        }))
    }

    /// Writes them to a file; the answer is its path, for `-f`.
    #[track_caller]
    pub(crate) fn write(&self, path: &Path) -> String {
        let documents: Vec<String> = self.0.iter().map(Value::to_string).collect();
        std::fs::write(path, documents.join("\n---\n")).expect("write a manifest");
        path.display().to_string()
    }
}

/// The `config.json` of `docker login`, with an entry for each registry.
pub(crate) fn docker_config(entries: &[(&str, &str, &str)]) -> Value {
    let mut auths = serde_json::Map::new();
    for (registry, user, password) in entries {
        super::secrets::note(user, password);
        auths.insert((*registry).to_owned(), json!({"auth": STANDARD.encode(format!("{user}:{password}"))}));
    }
    json!({ "auths": auths })
}

/// The forms in which a password can stand somewhere: itself, and in the header of basic authentication.
pub(crate) fn forms_of(user: &str, password: &str) -> [String; 2] {
    [password.to_owned(), STANDARD.encode(format!("{user}:{password}"))]
}
