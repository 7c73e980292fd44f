//! Reads Secrets and ServiceAccounts. An error names the place and the key, never the value. The keyring decides whether a
//! secret's type and content make it a pull secret. Called by [`crate::read`].

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credentials::{Origin, PullSecret, ServiceAccount};
use oci::Secret;

use crate::error::ManifestError;
use crate::object::{AccountObject, SecretObject};
use crate::place::{ManifestDocument, made_uid};
use crate::yaml::{Node, Value};

/// The keys that pull secrets have; what is behind them must be text.
const PULL_KEYS: [&str; 2] = [".dockerconfigjson", ".dockercfg"];

/// Namespace, name and uid of an object.
struct ObjectName {
    namespace: String,
    name: String,
    uid: String,
}

impl ManifestDocument<'_> {
    /// Reads a Secret.
    pub(super) fn secret(&self, node: &Node) -> Result<SecretObject, ManifestError> {
        let ObjectName { namespace, name, uid } = self.named(node, "Secret")?;
        let title = format!("Secret {namespace}/{name}");
        let mut data = BTreeMap::new();
        for (key, value) in self.entries(node, "data", &title)? {
            let bytes = self.text_of_secret(value, &format!("{title}: data.{key}"))?;
            let bytes: String = bytes.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            let Ok(bytes) = STANDARD.decode(bytes) else {
                return self.error(value, format!("{title}: data.{key} is not base64"));
            };
            match String::from_utf8(bytes) {
                Ok(text) => {
                    data.insert(key.clone(), Secret::new(text));
                }
                Err(_) if PULL_KEYS.contains(&key.as_str()) => {
                    return self.error(value, format!("{title}: data.{key} is not UTF-8 text"));
                }
                // Binary data that is not for pulls, for example a key or an archive.
                Err(_) => {}
            }
        }
        for (key, value) in self.entries(node, "stringData", &title)? {
            let text = self.text_of_secret(value, &format!("{title}: stringData.{key}"))?;
            data.insert(key.clone(), Secret::new(text));
        }
        let kind = match node.get("type") {
            None => "Opaque",
            Some(value) => self.text_of_secret(value, &format!("{title}: type"))?,
        };
        let secret = PullSecret { namespace, name, uid, origin: Origin::Manifest, kind: kind.to_owned(), data };
        Ok(SecretObject { source: self.source(node), secret })
    }

    /// Reads a ServiceAccount.
    pub(super) fn account(&self, node: &Node) -> Result<AccountObject, ManifestError> {
        let ObjectName { namespace, name, uid } = self.named(node, "ServiceAccount")?;
        Ok(AccountObject {
            source: self.source(node),
            pull_secrets: self.names(node, "imagePullSecrets", "imagePullSecrets")?,
            account: ServiceAccount {
                namespace,
                name,
                uid,
                origin: Origin::Manifest,
                annotations: self.annotations(node)?,
            },
        })
    }

    fn named(&self, node: &Node, kind: &str) -> Result<ObjectName, ManifestError> {
        let Some(name) = self.metadata(node, "name")? else {
            return self.error(node, format!("{kind} has no metadata.name"));
        };
        let namespace = self.metadata(node, "namespace")?.unwrap_or("default");
        let uid = match self.metadata(node, "uid")? {
            Some(uid) => uid.to_owned(),
            None => made_uid(kind, namespace, name),
        };
        Ok(ObjectName { namespace: namespace.to_owned(), name: name.to_owned(), uid })
    }

    fn entries<'n>(&self, node: &'n Node, key: &str, title: &str) -> Result<&'n [(String, Node)], ManifestError> {
        match node.get(key) {
            None => Ok(&[]),
            Some(Node { value: Value::Map(entries), .. }) => Ok(entries),
            Some(other) => self.error(other, format!("{title}: {key} must be a map, not {}", other.value.kind())),
        }
    }

    /// Text that an error does not show. Nothing at all is the empty text, as the API server has it.
    fn text_of_secret<'n>(&self, node: &'n Node, title: &str) -> Result<&'n str, ManifestError> {
        match &node.value {
            Value::Text(text) => Ok(text),
            Value::Null => Ok(""),
            other => self.error(node, format!("{title} must be text, not {}", other.kind())),
        }
    }
}

/// Returns the account of a pod without a manifest of the account: only its name is known.
pub(crate) fn unknown_account(namespace: &str, name: &str) -> ServiceAccount {
    ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: made_uid("ServiceAccount", namespace, name),
        origin: Origin::Manifest,
        annotations: BTreeMap::new(),
    }
}
