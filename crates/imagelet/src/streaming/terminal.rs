//! The terminal of the user who streams: raw while a remote process controls it, its size, and notification of changes. Called by the
//! commands that enter containers.

use std::io::IsTerminal as _;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// Returns true if standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// The terminal of standard input, raw until this is dropped.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// Switches the terminal to raw mode.
    pub(crate) fn enter() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before) {
            tracing::debug!(%error, "cannot give the terminal back as it was");
        }
    }
}

/// Reports the size of the terminal: now, and on each change.
#[derive(Debug)]
pub(crate) struct Sizes {
    changes: Signal,
    last: Option<Size>,
}

impl Sizes {
    /// Starts to listen.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { changes: signal(SignalKind::window_change())?, last: None })
    }

    /// Waits for the next size that differs.
    pub(crate) async fn next(&mut self) -> Size {
        loop {
            if let Some(size) = size().filter(|size| Some(*size) != self.last) {
                self.last = Some(size);
                return size;
            }
            if self.changes.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn size() -> Option<Size> {
    let size = tcgetwinsize(std::io::stdin()).or_else(|_| tcgetwinsize(std::io::stdout())).ok()?;
    let size = Size { columns: size.ws_col, rows: size.ws_row };
    (size.columns > 0 && size.rows > 0).then_some(size)
}
