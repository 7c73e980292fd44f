//! [`NamespaceAccess`]: images that every pod of a namespace may use, although no pull record proves it. A component of the agent that
//! pulls images for a cluster fills it; the manager reads it. Decides nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::lock::RwLock;

use crate::requested_name::RequestedName;

/// Repository and image ID, with the namespaces that may use the image by a name of this repository.
pub type NamespaceGrants = BTreeMap<(String, String), BTreeSet<String>>;

/// The images that namespaces may use. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct NamespaceAccess(Arc<RwLock<Arc<NamespaceGrants>>>);

impl NamespaceAccess {
    /// Replaces all grants.
    pub fn replace(&self, grants: NamespaceGrants) {
        *self.0.write() = Arc::new(grants);
    }

    /// Returns true if pods of this namespace may use the image by this name. The empty namespace is no pod's.
    pub(crate) fn permits(&self, image: &RequestedName<'_>, image_ref: &str, namespace: &str) -> bool {
        let grants = Arc::clone(&self.0.read());
        if grants.is_empty() || namespace.is_empty() {
            return false;
        }
        let Some(repository) = image.reference().map(oci::Reference::repository) else { return false };
        grants.get(&(repository, image_ref.to_owned())).is_some_and(|namespaces| namespaces.contains(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_for_one_image_by_one_repository_in_one_namespace() {
        let access = NamespaceAccess::default();
        let id = "sha256:1";
        assert!(!access.permits(&RequestedName::new("busybox"), id, "shop"));
        let key = ("docker.io/library/busybox".to_owned(), id.to_owned());
        access.clone().replace([(key, ["shop".to_owned()].into())].into());
        for (name, id, namespace, want) in [
            ("busybox", id, "shop", true),
            ("Docker.io/library/busybox:1", id, "shop", true),
            ("busybox", id, "other", false),
            ("busybox", id, "", false),
            ("busybox", "sha256:2", "shop", false),
            ("r.example/busybox", id, "shop", false),
            ("not a name", id, "shop", false),
        ] {
            assert_eq!(access.permits(&RequestedName::new(name), id, namespace), want, "{name} {id} {namespace}");
        }
    }
}
