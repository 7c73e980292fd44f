//! [`SecretStore`]: the Secrets and ServiceAccounts that pods may name, from the manifests of a command and from the
//! secrets directory. Resolves the names in a pod as API server and kubelet together would. Knows nothing of registries.
//! Called by the readers of pods.

use std::collections::BTreeMap;

use credentials::{PullSecret, ServiceAccount};

use crate::object::{AccountObject, Objects, Pod, SecretObject};
use crate::secret::unknown_account;

/// Namespace and name.
type ObjectKey = (String, String);

/// Secrets and accounts by name.
#[derive(Clone, Debug, Default)]
pub struct SecretStore {
    secrets: BTreeMap<ObjectKey, PullSecret>,
    accounts: BTreeMap<ObjectKey, (ServiceAccount, Vec<String>)>,
}

/// The pull secrets and the account of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Pull secrets that were found, in the pod's order.
    pub secrets: Vec<PullSecret>,
    /// The names of those that were not.
    pub missing: Vec<String>,
    /// Account of the pod.
    pub account: Option<ServiceAccount>,
}

impl SecretStore {
    /// Adds objects. Of several objects with the same name, the first one is kept.
    pub fn add(&mut self, objects: Objects) {
        for SecretObject { secret, .. } in objects.secrets {
            self.secrets.entry((secret.namespace.clone(), secret.name.clone())).or_insert(secret);
        }
        for AccountObject { account, pull_secrets, .. } in objects.accounts {
            let key = (account.namespace.clone(), account.name.clone());
            self.accounts.entry(key).or_insert((account, pull_secrets));
        }
    }

    /// Resolves the names in `pod`, in its namespace. As in the admission of service accounts, a pod that lists no pull
    /// secrets has those of its account.
    pub fn resolve(&self, pod: &Pod) -> Resolved {
        self.resolve_names(&pod.namespace, &pod.service_account, &pod.pull_secrets, |_| None)
    }

    /// Like [`SecretStore::resolve`], for a pod in this namespace that names this account and these secrets. A secret that
    /// `find_elsewhere` returns is preferred to one in the store.
    pub fn resolve_names(
        &self,
        namespace: &str,
        service_account: &str,
        pull_secrets: &[String],
        find_elsewhere: impl Fn(&str) -> Option<PullSecret>,
    ) -> Resolved {
        let account = self.accounts.get(&(namespace.to_owned(), service_account.to_owned()));
        let names = match account {
            Some((_, names)) if pull_secrets.is_empty() => names.as_slice(),
            _ => pull_secrets,
        };
        let mut resolved = Resolved {
            account: Some(
                account.map_or_else(|| unknown_account(namespace, service_account), |(account, _)| account.clone()),
            ),
            ..Resolved::default()
        };
        for name in names {
            let in_store = || self.secrets.get(&(namespace.to_owned(), name.clone())).cloned();
            match find_elsewhere(name).or_else(in_store) {
                Some(secret) => resolved.secrets.push(secret),
                None => resolved.missing.push(name.clone()),
            }
        }
        resolved
    }
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
