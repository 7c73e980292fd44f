//! Pull secrets that an API server has: [`read`] asks the server for one, [`of_object`] converts one that a cache has. Nothing is written.
//! Called for pods by the binary, and for image sets by the daemon of a node and the controller.

use image_manager::{Origin, PullSecret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde::Deserialize as _;
use serde_json::Value;

use crate::ClusterClient;
use crate::client::within;

/// Reads a pull secret.
///
/// # Errors
/// The Secret does not exist, or cannot be read.
pub async fn read(client: &ClusterClient, namespace: &str, name: &str) -> Result<PullSecret, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.current(), namespace);
    let secret = convert(within(api.get(name)).await?);
    Ok(PullSecret { namespace: namespace.to_owned(), name: name.to_owned(), ..secret })
}

/// Converts a Secret object; `None` if the object is not a Secret.
#[must_use]
pub fn of_object(object: &Value) -> Option<PullSecret> {
    // An error of deserialization may quote the content.
    Secret::deserialize(object).ok().map(convert)
}

/// Converts a Secret. Keys that are not text are left out, since no pull secret has such.
fn convert(secret: Secret) -> PullSecret {
    let text = |(key, value): (String, ByteString)| Some((key, oci::Secret::new(String::from_utf8(value.0).ok()?)));
    PullSecret {
        namespace: secret.metadata.namespace.unwrap_or_default(),
        name: secret.metadata.name.unwrap_or_default(),
        uid: secret.metadata.uid.unwrap_or_default(),
        origin: Origin::ApiServer,
        kind: secret.type_.unwrap_or_default(),
        data: secret.data.into_iter().flatten().filter_map(text).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pull_secret_has_the_text_of_its_keys_and_is_vouched_for_by_the_server() {
        // As an item of a list, which has no kind.
        let object = json!({
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "s", "namespace": "shop", "uid": "u"},
            "data": {".dockerconfigjson": "e30=", "binary": "/w=="},
        });
        let secret = of_object(&object).expect("a secret");
        assert_eq!((&*secret.namespace, &*secret.name, &*secret.uid), ("shop", "s", "u"));
        assert!(secret.origin.vouches() && secret.data[".dockerconfigjson"].expose() == "{}");
        assert_eq!((secret.data.len(), &*secret.kind), (1, "kubernetes.io/dockerconfigjson"));
        assert!(!format!("{secret:?}").contains("{}"));
        for other in [json!({"kind": "ConfigMap"}), json!({"data": {"k": "not base64"}}), json!(7)] {
            assert!(of_object(&other).is_none(), "{other}");
        }
    }
}
