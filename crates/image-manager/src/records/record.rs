//! [`PulledRecord`]: a record of a pulled image, as the kubelet keeps it. Plain data; `format.rs` reads and writes it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The record of a pulled image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PulledRecord {
    /// Time of the last change, in full seconds.
    pub(super) last_updated: Option<Timestamp>,
    /// Image ref of the runtime.
    pub(super) image_ref: String,
    /// The credentials of its pulls, by name without tag and digest as the request spelled it. Empty: the end of the pull
    /// was not observed.
    pub(super) mapping: BTreeMap<String, RecordedCredentials>,
}

/// The credentials that an image was pulled with under one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RecordedCredentials {
    /// Pull secrets, sorted by namespace, name, uid.
    #[serde(rename = "kubernetesSecrets", skip_serializing_if = "Vec::is_empty")]
    pub(super) secrets: Vec<RecordedSecret>,
    /// Service accounts, sorted in the same way.
    #[serde(rename = "kubernetesServiceAccounts", skip_serializing_if = "Vec::is_empty")]
    pub(super) accounts: Vec<RecordedAccount>,
    /// Without a credential, or with one of the node: every pod may use it. The lists are empty then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_pods_accessible: bool,
}

impl RecordedCredentials {
    /// Credentials of the node, or none: every pod may use the image.
    pub(super) fn node() -> Self {
        Self { node_pods_accessible: true, ..Self::default() }
    }

    /// Returns true if nothing is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.accounts.is_empty() && !self.node_pods_accessible
    }
}

/// A pull secret with the hash of the credential that it held.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RecordedSecret {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Empty where hashing failed; such a hash equals none.
    pub(super) credential_hash: String,
}

impl fmt::Debug for RecordedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the hash: a weak password could be found from it.
        write!(f, "RecordedSecret({}/{} {})", self.namespace, self.name, self.uid)
    }
}

/// A service account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RecordedAccount {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
}
