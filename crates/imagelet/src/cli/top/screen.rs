//! [`Screen`]: the terminal while it shows a view: the alternate screen, keys without a line end, its size. Restores the terminal at the
//! end. Called by `top`.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::frame::Frame;
use super::keys::{self, Key};
use crate::streaming::terminal::Sizes;

/// Switches to the alternate screen, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Time limit of a poll for keys, and how long its thread may outlive the view.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Number of keys that wait for the view.
const WAITING: usize = 64;
/// The size of a terminal that does not report its own.
const USUAL: (usize, usize) = (80, 24);

/// A terminal that shows a view, until this is dropped.
pub(super) struct Screen {
    /// Receives keys; `None` if standard input is no terminal: then only signals end the view.
    keys: Option<mpsc::Receiver<Key>>,
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
        let keys = before.as_ref().map(|_| keys());
        let screen = Self { keys, before, sizes, size: USUAL };
        write(ENTER)?;
        Ok(screen)
    }

    /// Returns columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Waits for a key, or for another size, which returns `None`. Cancel-safe.
    pub(super) async fn key_or_resize(&mut self) -> Option<Key> {
        tokio::select! {
            key = next(self.keys.as_mut()) => Some(key),
            size = self.sizes.next() => {
                self.size = (usize::from(size.columns), usize::from(size.rows));
                None
            }
        }
    }

    /// Replaces the displayed lines with these.
    pub(super) fn paint(&self, frame: &Frame) {
        // If the terminal is closed, there is nothing to paint on.
        let _ = write(&painted(frame, self.size.0));
    }
}

async fn next(keys: Option<&mut mpsc::Receiver<Key>>) -> Key {
    match keys {
        // A closed channel counts as a request to quit: its thread has ended.
        Some(keys) => keys.recv().await.unwrap_or(Key::Quit),
        None => std::future::pending().await,
    }
}

/// Sends the pressed keys; the channel is closed when the terminal is. A read of a terminal cannot be cancelled, so a thread polls for keys
/// until the receiver is dropped.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, keys) = mpsc::channel(WAITING);
    let read = move || {
        while !sender.is_closed() {
            let Ok(Some(pressed)) = pressed_keys() else { return };
            for key in pressed {
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("keys".to_owned()).spawn(read) {
        tracing::debug!(%error, "keys are not read");
    }
    keys
}

/// Waits briefly for keys. Returns `None` at the end of input.
fn pressed_keys() -> rustix::io::Result<Option<Vec<Key>>> {
    let stdin = io::stdin();
    let mut waits = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut waits, Some(&MOMENT)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Some(Vec::new())),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    let mut bytes = [0; 64];
    let read = rustix::io::read(&stdin, &mut bytes)?;
    Ok((read > 0).then(|| keys::parse(&bytes[..read])))
}

/// Returns the escape sequences and text that show exactly these lines, starting in the first row. The highlighted one is in reverse video
/// over all columns.
fn painted(frame: &Frame, columns: usize) -> String {
    let mut text = "\x1b[H".to_owned();
    for (row, line) in frame.lines.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = if frame.highlighted == Some(row) {
            write!(text, "\x1b[{};1H\x1b[7m{line:columns$}\x1b[0m", row + 1)
        } else {
            write!(text, "\x1b[{};1H{line}\x1b[K", row + 1)
        };
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
        let frame = |texts: &[&str], highlighted| Frame {
            lines: texts.iter().map(|text| (*text).to_owned()).collect(),
            highlighted,
        };
        let mut terminal = avt::Terminal::with_scrollback(20, 4, None).expect("a size");
        let shown = |terminal: &avt::Terminal| {
            let lines = terminal.screen().all_lines().map(|line| line.text().trim_end().to_owned());
            lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
        };
        terminal.feed("$ imagelet top\r\n");
        terminal.feed(ENTER);
        // Writing to the last row must not scroll.
        for (index, picture) in
            [&["one two three", "b", "c", "01234567890123456789"][..], &["x", "", "yy"], &["z"]].into_iter().enumerate()
        {
            for highlighted in [None, Some(index)] {
                terminal.feed(painted(&frame(picture, highlighted), 20).as_str());
                assert_eq!(shown(&terminal), picture.join("\n"));
            }
        }
        terminal.feed(LEAVE);
        assert_eq!(shown(&terminal), "$ imagelet top", "what was there is back");
    }
}
