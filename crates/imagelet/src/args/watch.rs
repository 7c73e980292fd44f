//! The argument of lists that go on. Parses, nothing more.

use clap::Args;

/// Whether a list goes on.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Watch {
    /// Print the list again whenever it changes
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
}
