//! The arguments that name manifests. See [`super`].

use clap::Args;

/// Directories of manifests with all that is below them.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Recursive {
    /// Read the directories of -f recursively
    #[arg(long, short = 'R', requires = "files")]
    pub(crate) recursive: bool,
}

/// A flag of the past: objects without a pod are skipped in any case.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct SkipOtherKinds {
    /// Accepted for scripts; objects without a pod are skipped in any case
    #[arg(long = "skip-other-kinds", hide = true)]
    skip_other_kinds: bool,
}
