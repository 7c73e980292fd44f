//! SIGINT and SIGTERM: the first one asks everything to stop, a second one ends the process immediately. SIGXFSZ ends nothing: a file that
//! reaches the limit of the process is an error of the write. Called by `main`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exit::Code;

/// Signal sent when a file would grow beyond the limit of the process. The number is the same on every supported platform.
const FILE_SIZE: i32 = 25;

/// The signals that the process received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Cancelled by the first signal.
    pub(crate) stop: CancellationToken,
    /// Exit code of the first signal, 0 before it arrives.
    code: Arc<AtomicU8>,
}

impl Signals {
    /// Starts to listen. Must be called within the runtime.
    pub(crate) fn listen(tasks: &TaskTracker) -> std::io::Result<Self> {
        let signals = Self::default();
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // With a listener, the signal no longer ends the process, and the write returns that the file is too large.
        drop(signal(SignalKind::from_raw(FILE_SIZE))?);
        tasks.spawn(signals.clone().wait(interrupt, terminate));
        Ok(signals)
    }

    /// Returns the exit code of a process that a signal ended.
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
        // The store is crash-safe at every point, so exiting here is no worse than a crash.
        let code = next().await;
        credentials::end_programs();
        std::process::exit(i32::from(code as u8));
    }
}
