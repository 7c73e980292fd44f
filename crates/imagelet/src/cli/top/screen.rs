//! [`Screen`]: the terminal while it shows a view: the alternate screen, keys without a line end, its size. Restores the terminal at the
//! end. Called by `top`.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::streaming::terminal::Sizes;

/// Switches to the alternate screen, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Time limit of a poll for keys, and how long its thread may outlive the view.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The size of a terminal that does not report its own.
const USUAL: (usize, usize) = (80, 24);

/// A terminal that shows a view, until this is dropped.
pub(super) struct Screen {
    /// Receives the user's request to quit; `None` if standard input is no terminal: then only signals end the view.
    quits: Option<mpsc::Receiver<()>>,
    before: Option<Termios>,
    sizes: Sizes,
    size: (usize, usize),
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let sizes = Sizes::listen()?;
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut changed = before.clone();
            // Signal keys still work, and lines still end as always.
            changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
        }
        let quits = before.as_ref().map(|_| quits());
        let screen = Self { quits, before, sizes, size: USUAL };
        write(ENTER)?;
        Ok(screen)
    }

    /// Returns columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Waits until `q` is pressed, which returns true, or the size changes. Cancel-safe.
    pub(super) async fn until_quit_or_resized(&mut self) -> bool {
        tokio::select! {
            () = until_quit(self.quits.as_mut()) => true,
            size = self.sizes.next() => {
                self.size = (usize::from(size.columns), usize::from(size.rows));
                false
            }
        }
    }

    /// Replaces the displayed lines with these.
    pub(super) fn paint(&self, lines: &[String]) {
        // If the terminal is closed, there is nothing to paint on.
        let _ = write(&painted(lines));
    }
}

async fn until_quit(quits: Option<&mut mpsc::Receiver<()>>) {
    match quits {
        // A closed channel counts as a request to quit: its thread has ended.
        Some(quits) => {
            quits.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Reports that `q` was pressed, or that the terminal is closed. A read of a terminal cannot be cancelled, so a thread polls for keys until
/// the receiver is dropped.
fn quits() -> mpsc::Receiver<()> {
    let (sender, quits) = mpsc::channel(1);
    let keys = move || {
        while !sender.is_closed() {
            if !matches!(quit_was_pressed(), Ok(false)) {
                // An error means that the receiver is dropped.
                let _ = sender.try_send(());
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("keys".to_owned()).spawn(keys) {
        tracing::debug!(%error, "keys are not read");
    }
    quits
}

/// Waits briefly for keys. Returns true if one of them quits, or at the end of input.
fn quit_was_pressed() -> rustix::io::Result<bool> {
    let stdin = io::stdin();
    let mut waits = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut waits, Some(&MOMENT)) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    let mut pressed = [0; 64];
    let read = rustix::io::read(&stdin, &mut pressed)?;
    Ok(read == 0 || pressed[..read].iter().any(|key| matches!(key, b'q' | b'Q' | 0x03)))
}

/// Returns the escape sequences and text that show exactly these lines, starting in the first row.
fn painted(lines: &[String]) -> String {
    let mut text = "\x1b[H".to_owned();
    for (row, line) in lines.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\x1b[{};1H{line}\x1b[K", row + 1);
    }
    text.push_str("\x1b[J");
    text
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        if let Some(before) = &self.before
            && let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, before)
        {
            tracing::debug!(%error, "cannot give the terminal back as it was");
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_takes_the_place_of_the_last_one_and_nothing_of_it_is_left() {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let mut terminal = avt::Terminal::with_scrollback(20, 4, None).expect("a size");
        let shown = |terminal: &avt::Terminal| {
            let lines = terminal.screen().all_lines().map(|line| line.text().trim_end().to_owned());
            lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
        };
        terminal.feed("$ imagelet top\r\n");
        terminal.feed(ENTER);
        // Writing to the last row must not scroll.
        for picture in [&["one two three", "b", "c", "01234567890123456789"][..], &["x", "", "yy"], &["z"]] {
            terminal.feed(painted(&lines(picture)).as_str());
            assert_eq!(shown(&terminal), picture.join("\n"));
        }
        terminal.feed(LEAVE);
        assert_eq!(shown(&terminal), "$ imagelet top", "what was there is back");
    }
}
