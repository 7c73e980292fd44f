//! [`RuntimeHarness`]: what the suite needs to know of a runtime.

use std::sync::Arc;
use std::time::Duration;

use crate::{ImageSpec, PodSandboxConfig, RuntimeService};

/// A runtime under test.
pub trait RuntimeHarness: Send + Sync {
    /// Name of the implementation, for the report.
    fn name(&self) -> &str;

    /// Returns the runtime.
    fn service(&self) -> Arc<dyn RuntimeService>;

    /// Returns an image that is present and has busybox, or the program that [`RuntimeHarness::program`] needs.
    fn image(&self) -> ImageSpec;

    /// Brings a sandbox's config into a form that this runtime can run: cgroup, namespaces, log directory.
    fn fit(&self, config: &mut PodSandboxConfig);

    /// Returns the command line of a program, for a new container of this name.
    fn program(&self, container_name: &str, program: Program) -> Vec<String>;

    /// Returns the command line of a command in a container that runs [`Program::Sleeps`].
    fn command(&self, command: Command) -> Vec<String>;

    /// Content of a log file; `None`: this runtime writes none.
    fn log(&self, path: &str) -> Option<String> {
        let _ = path;
        None
    }

    /// Known ways in which this peer differs.
    fn deviations(&self) -> &[RuntimeDeviation] {
        &[]
    }

    /// Longest time for one case.
    fn case_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// The line that programs which run until they are stopped write to standard output once their signals are set.
pub const READY: &str = "ready for signals";

/// Program that a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Writes [`READY`], runs until it is asked to end, and then ends with code 143.
    Sleeps,
    /// Writes [`READY`] and runs, whatever it is asked.
    IgnoresSignals,
    /// Ends at once with this code.
    Ends(i32),
    /// Writes the variable `GREETING` and its first argument to standard output, `oh` to standard error, and ends well.
    Speaks,
}

/// Command that is run in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Writes `out` and `err` to the two outputs, and ends with code 3.
    Speaks,
    /// Does not end.
    Hangs,
}

/// A known difference of a peer. Never declared for an implementation of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeDeviation {
    /// containerd (all versions): what it refuses for its form, or for the state of things, has code `Unknown`.
    RefusalsAreUnknown,
    /// containerd before 2: a name that is taken is refused with code `Unknown`.
    TakenNamesAreUnknown,
    /// containerd 2: a container in a stopped sandbox is refused with code `Unknown`.
    StoppedSandboxIsUnknown,
    /// containerd 1.7: a sandbox that is removed in the moment in which its container ends may fail once with code `Unknown` ("container
    /// is still running, to stop first").
    RemovalsRaceWithExits,
}
