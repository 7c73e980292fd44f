//! [`SecretReader`]: the pull secrets of sets. Each is read when a pull needs it, by name, in the namespace of the fleet. The last content
//! is kept in memory for the time when the API server is away; nothing is written to disk. Called by [`super::pull`].

use std::collections::BTreeMap;

use base::lock::Mutex;
use cluster::ClusterClient;
use cluster::client::{Failure, failure, text};
use cluster::pull_secrets;
use image_manager::PullSecret;

/// The secrets for a pull.
#[derive(Debug, Default)]
pub(super) struct PullCredentials {
    pub(super) secrets: Vec<PullSecret>,
    /// Names of secrets that do not exist.
    pub(super) missing: Vec<String>,
    /// Secrets that cannot be read, each with the reason.
    pub(super) unreadable: Vec<String>,
}

/// Reads secrets of one namespace.
pub(super) struct SecretReader {
    client: ClusterClient,
    namespace: String,
    /// Guards the content of the last successful reads.
    known: Mutex<BTreeMap<String, PullSecret>>,
}

impl SecretReader {
    pub(super) fn new(client: ClusterClient, namespace: String) -> Self {
        Self { client, namespace, known: Mutex::default() }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads the secrets with these names.
    pub(super) async fn read(&self, names: &[String]) -> PullCredentials {
        let mut all = PullCredentials::default();
        for name in names {
            match pull_secrets::read(&self.client, &self.namespace, name).await {
                Ok(secret) => {
                    self.known.lock().insert(name.clone(), secret.clone());
                    all.secrets.push(secret);
                }
                Err(error) if failure(&error) == Failure::NotFound => {
                    self.known.lock().remove(name);
                    all.missing.push(name.clone());
                }
                Err(error) => match self.known.lock().get(name) {
                    Some(secret) => all.secrets.push(secret.clone()),
                    None => all.unreadable.push(format!("{}/{name}: {}", self.namespace, text(&error))),
                },
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use cluster::fake::FakeServer;
    use serde_json::json;

    use super::*;

    const PATH: &str = "/api/v1/namespaces/fleet/secrets/registry";

    #[tokio::test(start_paused = true)]
    async fn last_content_of_a_secret_serves_while_the_server_is_away() {
        let server = FakeServer::new(true);
        let reader = SecretReader::new(server.client(), "fleet".to_owned());
        let names = ["registry".to_owned()];
        assert_eq!(reader.read(&names).await.missing, names);
        let data = json!({".dockerconfigjson": "e30="});
        server.put(
            PATH,
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "data": data}),
        );
        let read = reader.read(&names).await;
        assert_eq!(read.secrets[0].data[".dockerconfigjson"].expose(), "{}");
        assert!(read.secrets[0].origin.vouches() && !format!("{read:?}").contains("{}"));
        server.set_away(true);
        assert_eq!(reader.read(&names).await.secrets, read.secrets);
        let other = SecretReader::new(server.client(), "fleet".to_owned()).read(&names).await;
        assert!(other.secrets.is_empty() && other.unreadable[0].starts_with("fleet/registry: "), "{other:?}");
        server.set_away(false);
        server.remove(PATH);
        assert_eq!(reader.read(&names).await.missing, names);
        server.set_away(true);
        assert!(reader.read(&names).await.secrets.is_empty(), "a deleted secret is forgotten");
    }
}
