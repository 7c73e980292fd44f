//! The file trees of images and layers, for reading without a mount: their layers are leased, and whoever reads them opens
//! them in the store. What a view is stands in the store.

use std::sync::Arc;

use cri_api::{Error, Kind, Result};
use engine_api::LayerLease;
use store::ResolveError;

use crate::error;
use crate::shared::Shared;

impl Shared {
    /// Leases the layers of an image, by name or id, or of one layer, by its digest.
    ///
    /// # Errors
    /// `NotFound` when there is no such thing, or not whole.
    pub(crate) async fn lease_layers(self: &Arc<Self>, text: &str) -> Result<LayerLease> {
        self.check_running()?;
        let (store, text) = (self.store.clone(), text.to_owned());
        let lease = move || {
            let lease = store.lease();
            let stack = match store.stack(&lease, &text) {
                Ok(stack) => stack,
                // What cannot be a name may still be a layer, and is none.
                Err(ResolveError::Store(error)) => return Err(error::from_store(store.root(), &error)),
                Err(error) => return Err(error::from_resolve(store.root(), &error)),
            };
            let stack = stack.ok_or_else(|| Error::new(Kind::NotFound, format!("no such image or layer: {text}")))?;
            let stack = serde_json::to_value(stack)
                .map_err(|error| Error::new(Kind::Internal, format!("describe the layers of {text}: {error}")))?;
            Ok((stack, lease))
        };
        let (stack, lease) = self.background.run(lease).await?;
        Ok(LayerLease::new(self.store.root().to_owned(), stack, self.background.hold(lease)))
    }
}
