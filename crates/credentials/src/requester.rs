//! [`Requester`]: the pod for which a credential is sought, as far as that matters.

use std::collections::BTreeMap;

use oci::Secret;

use crate::{Origin, SecretCoordinates};

/// The pod for which a credential is sought.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// Pull secrets, in the order in which the pod names them.
    pub secrets: Vec<PullSecret>,
    /// Service account of the pod, if any.
    pub service_account: Option<ServiceAccount>,
}

/// A Kubernetes secret that a pod names as a pull secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullSecret {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Origin of the coordinates.
    pub origin: Origin,
    /// Type, for example `kubernetes.io/dockerconfigjson`.
    pub kind: String,
    /// The data, decoded, by key.
    pub data: BTreeMap<String, Secret>,
}

impl PullSecret {
    /// Which secret it is.
    #[must_use]
    pub fn coordinates(&self) -> SecretCoordinates {
        SecretCoordinates {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            origin: self.origin,
        }
    }
}

/// A Kubernetes service account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid; empty for an account of an API server, where it is read when a provider wants it.
    pub uid: String,
    /// Origin of the account: a pod of an API server has its account there.
    pub origin: Origin,
    /// Annotations; empty for an account of an API server, as the uid is.
    pub annotations: BTreeMap<String, String>,
}
