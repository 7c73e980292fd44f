//! The arguments that name manifests. See [`super`].

use clap::Args;

/// Directories of manifests with all that is below them.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Recursive {
    /// Read the directories given with -f with all directories below them
    #[arg(long, short = 'R', requires = "files")]
    pub(crate) recursive: bool,
}

/// A flag of the past: objects that hold no pod are passed by in any case.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct SkipOtherKinds {
    /// Accepted for scripts; objects that hold no pod are passed by in any case
    #[arg(long = "skip-other-kinds", hide = true)]
    skip_other_kinds: bool,
}
