//! [`BeforeVisible`]: what whoever asks for an image wants to have done before it may appear, and not sooner than it must
//! be. Made by the image manager, called by whoever implements [`ImageService`](crate::ImageService).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::Result;

type Done = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Work that is called for, as often as somebody likes, by everybody who is about to make the image visible. The default
/// one is none.
#[derive(Clone, Default)]
pub struct BeforeVisible(Option<Arc<dyn Fn() -> Done + Send + Sync>>);

impl BeforeVisible {
    /// Calls `work`. It must be no loss to call it again.
    #[must_use]
    pub fn new<F: Future<Output = Result<()>> + Send + 'static>(work: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(move || Box::pin(work()))))
    }

    /// Answers when it is done.
    ///
    /// # Errors
    /// Error that prevented it. The image must not appear then.
    pub async fn done(&self) -> Result<()> {
        match &self.0 {
            Some(work) => work().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for BeforeVisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "BeforeVisible(set)" } else { "BeforeVisible(none)" })
    }
}
