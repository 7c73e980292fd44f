//! The file trees of images and layers, for who wants to read them without mounting: [`Engine::view`] for this process, and
//! [`Engine::stack`] for another one that may read the store's root. What a view is stands in the store.

use cri_api::{Error, Kind, Result};
use store::view::{Stack, View, ViewError};
use store::{Lease, ResolveError};

use crate::background::Held;
use crate::engine::Engine;
use crate::error;

/// The layers of an image or a layer, which stay as long as this does.
pub struct HeldStack {
    stack: Stack,
    _lease: Held<Lease>,
}

impl HeldStack {
    /// Which they are.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
}

impl Engine {
    /// The layers of an image, by name or id, or of one layer, by its digest; held.
    ///
    /// # Errors
    /// `NotFound` when there is no such thing, or not whole.
    pub async fn stack(&self, text: &str) -> Result<HeldStack> {
        self.0.check_running()?;
        let (store, text) = (self.0.store.clone(), text.to_owned());
        let (stack, lease) = self
            .0
            .background
            .run(move || {
                let lease = store.lease();
                let stack = match store.stack(&lease, &text) {
                    Ok(stack) => stack,
                    // What cannot be a name may still be a layer, and is none.
                    Err(ResolveError::Store(error)) => return Err(error::from_store(store.root(), &error)),
                    Err(error) => return Err(error::from_resolve(store.root(), &error)),
                };
                let missing = || Error::new(Kind::NotFound, format!("no such image or layer: {text}"));
                Ok((stack.ok_or_else(missing)?, lease))
            })
            .await?;
        Ok(HeldStack { stack, _lease: self.0.background.hold(lease) })
    }

    /// The file tree of an image or a layer. This process must not remove it meanwhile.
    ///
    /// # Errors
    /// As for [`Engine::stack`], or a layer cannot be opened.
    pub async fn view(&self, text: &str) -> Result<View> {
        let held = self.stack(text).await?;
        let (root, stack) = (self.0.store.root().to_owned(), held.stack.clone());
        let open = move || View::open(&root, &stack).map_err(|error| from_view(&error));
        self.0.background.run(open).await
    }
}

fn from_view(error: &ViewError) -> Error {
    let kind = match error {
        ViewError::NotFound { .. } => Kind::NotFound,
        ViewError::Layer { .. } | ViewError::Read { .. } | ViewError::Name { .. } => Kind::DataLoss,
        ViewError::Cancelled => Kind::Cancelled,
        _ => Kind::FailedPrecondition,
    };
    Error::from_source(kind, error)
}
