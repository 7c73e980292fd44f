//! The argument of lists that are updated continuously. Parses, nothing more.

use clap::Args;

/// The flag of a list that goes on.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Watch {
    /// Print the list again whenever it changes
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
}
