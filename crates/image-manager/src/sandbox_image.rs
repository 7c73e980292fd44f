//! [`SandboxImageLookup`]: asks which image pod sandboxes are created from. The binary implements it; collection keeps that image, and the
//! sync of pods ensures it before the first sandbox.

use std::pin::Pin;
use std::sync::Arc;

/// Name of the sandbox image, when it arrives; `None`: it is not known, and the runtime takes care of it.
type SandboxImageAnswer = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// Returns the name of the sandbox image. May ask the runtime.
pub type SandboxImageLookup = Arc<dyn Fn() -> SandboxImageAnswer + Send + Sync>;
