//! [`Store::podman_users`]: the images that podman uses, for callers that decide which images may be removed.

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
    /// Returns none if containers cannot be found; a removal refuses then.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn podman_users(&self) -> Result<BTreeMap<Digest, PathBuf>, StoreError> {
        let users = self.mounts.view.users().unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the images that podman uses are not known");
            Vec::new()
        });
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
