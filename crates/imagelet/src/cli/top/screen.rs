//! [`Screen`]: the terminal while a picture is on it: a screen of its own, keys without a line end, its size. Leaves the terminal as it was.
//! Called by `top`.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::streaming::terminal::Sizes;

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// How long a look for keys takes, and how long the thread that looks may outlive the picture.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The size of a terminal that does not say its own.
const USUAL: (usize, usize) = (80, 24);

/// A terminal with a picture on it, until this is dropped.
pub(super) struct Screen {
    /// Word that somebody wants to quit; `None` where standard input is no terminal: then only signals end the picture.
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
            // Signals still come by their keys, and lines still end as always.
            changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
        }
        let quits = before.as_ref().map(|_| quits());
        let screen = Self { quits, before, sizes, size: USUAL };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Waits until `q` is pressed, which is true, or the size is another one. May be dropped and called again.
    pub(super) async fn until_quit_or_resized(&mut self) -> bool {
        tokio::select! {
            () = until_quit(self.quits.as_mut()) => true,
            size = self.sizes.next() => {
                self.size = (usize::from(size.columns), usize::from(size.rows));
                false
            }
        }
    }

    /// Shows these lines in the place of the last ones.
    pub(super) fn paint(&self, lines: &[String]) {
        // Where the terminal is gone there is nobody to show anything to.
        let _ = write(&painted(lines));
    }
}

async fn until_quit(quits: Option<&mut mpsc::Receiver<()>>) {
    match quits {
        // The end of the thread is the end of the terminal.
        Some(quits) => {
            quits.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Says when `q` was pressed, or the terminal is gone. A read of a terminal cannot be given up, so that a thread looks for keys that are
/// there, until nobody wants to know.
fn quits() -> mpsc::Receiver<()> {
    let (sender, quits) = mpsc::channel(1);
    let keys = move || {
        while !sender.is_closed() {
            if !matches!(quit_was_pressed(), Ok(false)) {
                // An error means that nobody wants to know any more.
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

/// Waits a moment for keys. Returns true if one of them means the end.
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

/// The text that makes a terminal show these lines from its first row on, and nothing else.
fn painted(lines: &[String]) -> String {
    let mut text = "\x1b[H".to_owned();
    for (row, line) in lines.iter().enumerate() {
        // A `String` takes all that is written to it.
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
        // The last row is full: that scrolls nothing.
        for picture in [&["one two three", "b", "c", "01234567890123456789"][..], &["x", "", "yy"], &["z"]] {
            terminal.feed(painted(&lines(picture)).as_str());
            assert_eq!(shown(&terminal), picture.join("\n"));
        }
        terminal.feed(LEAVE);
        assert_eq!(shown(&terminal), "$ imagelet top", "what was there is back");
    }
}
