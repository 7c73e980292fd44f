//! The pull secrets of sets: read by name in the namespace of the fleet, where controller and nodes read them alike. Nothing is written.

use cluster::ClusterClient;
use cluster::client::within;
use credentials::{Origin, PullSecret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// Reads a secret. Keys that are not text are left out, since no pull secret has such.
///
/// # Errors
/// The secret does not exist, or cannot be read.
pub(crate) async fn read(client: &ClusterClient, namespace: &str, name: &str) -> Result<PullSecret, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.current(), namespace);
    let secret = within(api.get(name)).await?;
    let text = |(key, value): (String, ByteString)| Some((key, oci::Secret::new(String::from_utf8(value.0).ok()?)));
    Ok(PullSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: secret.metadata.uid.unwrap_or_default(),
        origin: Origin::ApiServer,
        kind: secret.type_.unwrap_or_default(),
        data: secret.data.into_iter().flatten().filter_map(text).collect(),
    })
}
