//! SIGINT and SIGTERM: the first one asks everything to stop, a second one ends the process on the spot. SIGXFSZ is no end: a file
//! that a limit keeps from growing is an error of whoever writes it. Called by `main`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exit::Code;

/// A file would grow beyond the limit of the process. It has this number wherever this program runs.
const FILE_SIZE: i32 = 25;

/// The signals that the process was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Cancelled by the first signal.
    pub(crate) stop: CancellationToken,
    /// Exit code that the first signal stands for, 0 before it came.
    code: Arc<AtomicU8>,
}

impl Signals {
    /// Listens from now on. Must be called within the runtime.
    pub(crate) fn listen(tasks: &TaskTracker) -> std::io::Result<Self> {
        let signals = Self::default();
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Once somebody listens, the signal ends nothing, and the call says that the file is too large.
        drop(signal(SignalKind::from_raw(FILE_SIZE))?);
        tasks.spawn(signals.clone().wait(interrupt, terminate));
        Ok(signals)
    }

    /// The exit code of a process that a signal ended.
    pub(crate) fn code(&self) -> Code {
        if self.code.load(Ordering::Relaxed) == Code::Terminated as u8 { Code::Terminated } else { Code::Interrupted }
    }

    async fn wait(self, mut interrupt: Signal, mut terminate: Signal) {
        let mut next = async || {
            tokio::select! {
                Some(()) = interrupt.recv() => Code::Interrupted,
                Some(()) = terminate.recv() => Code::Terminated,
            }
        };
        self.code.store(next().await as u8, Ordering::Relaxed);
        self.stop.cancel();
        // The store is safe whenever the process dies: this is no worse than a crash, which it is made for.
        std::process::exit(i32::from(next().await as u8));
    }
}
