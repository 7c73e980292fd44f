//! [`Store::podman_users`]: the images that podman uses, for whoever decides what may go.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oci::Digest;

use crate::error::StoreError;
use crate::records::tables::Records;
use crate::store::Store;

impl Store {
    /// The images that could not be removed, since podman uses layers which only they have, and those of which podman uses all
    /// layers; and where it does.
    ///
    /// # Errors
    /// The database could not be read, or the containers not be found.
    pub fn podman_users(&self) -> Result<BTreeMap<Digest, PathBuf>, StoreError> {
        let users = self.mounts.view.users()?;
        let mut found = BTreeMap::new();
        if users.is_empty() {
            return Ok(found);
        }
        self.catalog.db.read(|records| {
            for (id, entry) in records.images()? {
                let layers = entry.distinct_layers();
                let mut alone = Vec::new();
                for layer in &layers {
                    if records.layer_of_image(*layer)?.references <= 1 {
                        alone.push(*layer);
                    }
                }
                let user = users.iter().find(|user| {
                    let used = |layer| user.layers.contains(layer);
                    alone.iter().any(used) || !layers.is_empty() && layers.iter().all(used)
                });
                if let Some(user) = user {
                    found.insert(id, user.place.clone());
                }
            }
            Ok(found)
        })
    }
}
