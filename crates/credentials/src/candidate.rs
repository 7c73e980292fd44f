//! [`Candidate`]: a credential that may be tried for an image, with its source; and [`Note`], for a source that was left out.

use std::fmt;
use std::path::PathBuf;

use oci::RegistryAuth;

/// A credential that may be tried for an image.
#[derive(Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The credential itself.
    pub auth: RegistryAuth,
    /// Source of the credential.
    pub source: Source,
    /// The kubelet's hash of it (lower-case hexadecimal SHA-256), by which pulled records know it again.
    pub hash: String,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the hash: a weak password could be found from it.
        f.debug_struct("Candidate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Source of a credential. Shown to users: it names the source, never the secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A pull secret of the pod.
    Secret(SecretCoordinates),
    /// A credential provider that answered for the pod's service account.
    ServiceAccount {
        /// The provider.
        provider: String,
        /// The account.
        account: ServiceAccountCoordinates,
    },
    /// The node itself: every pod of the node may use it.
    Node(NodeSource),
}

/// Source of a credential on the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeSource {
    /// A docker configuration file.
    File(PathBuf),
    /// A docker credential helper.
    Helper(String),
    /// An exec credential provider.
    Provider(String),
}

/// Origin of the coordinates of a Secret or a service account. Namespace, name and uid prove nothing by themselves: they are
/// not secret, and the author of a manifest can write any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A manifest: a file, a document by URL, standard input. The coordinates are not verified.
    #[default]
    Manifest,
    /// An API server, which returns the object only under these coordinates.
    ApiServer,
}

impl Origin {
    /// Returns true where equal coordinates mean the same object, whatever its content is now.
    #[must_use]
    pub fn vouches(self) -> bool {
        self == Self::ApiServer
    }
}

/// A pull secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretCoordinates {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Origin of the coordinates.
    pub origin: Origin,
}

/// A service account.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAccountCoordinates {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(SecretCoordinates { namespace, name, .. }) => write!(f, "secret {namespace}/{name}"),
            Self::ServiceAccount { provider, account: ServiceAccountCoordinates { namespace, name, .. } } => {
                write!(f, "credential provider {provider} for service account {namespace}/{name}")
            }
            Self::Node(source) => source.fmt(f),
        }
    }
}

impl fmt::Display for NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Helper(name) => write!(f, "credential helper docker-credential-{name}"),
            Self::Provider(name) => write!(f, "credential provider {name}"),
        }
    }
}

/// A note on a lookup for users: a source that was left out, and the reason. One line, for logs, errors and explanations;
/// never a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, lower-case, without a full stop.
    pub text: String,
}

impl Note {
    /// A note.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
