//! A terminal as a person has it: a pseudo-terminal with a terminal emulator behind it, which wraps its lines again when it
//! becomes narrower, as tmux and most windows do. Knows no program.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base::lock::Mutex;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::process::{PATIENCE, eventually, signal, wait};

/// A line that was there before the program.
const EARLIER: &str = "earlier\n";

/// A terminal with one program on it.
pub(crate) struct Pty {
    earlier: String,
    master: OwnedFd,
    terminal: Arc<Mutex<avt::Terminal>>,
    reader: Option<thread::JoinHandle<()>>,
    child: Child,
}

impl Pty {
    /// Starts a program with all three streams on a new terminal of this size.
    #[track_caller]
    pub(crate) fn start(mut command: Command, (columns, rows): (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("grant");
        unlockpt(&master).expect("unlock");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
        set_size(&master, (columns, rows));
        let slave = File::options().read(true).write(true).open(name).expect("open the terminal");
        let stream = || Stdio::from(slave.try_clone().expect("another descriptor"));
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().expect("start");
        // The slave's ends here close with these two, so that the end of the program is the end of its output.
        drop((command, slave));
        let mut terminal = avt::Terminal::with_scrollback(columns.into(), rows.into(), None).expect("a size");
        // The screen is full, as it is after some work: terminals move what is wrapped up, and never down.
        let earlier = EARLIER.repeat(rows.into());
        terminal.feed(earlier.replace('\n', "\r\n"));
        let terminal = Arc::new(Mutex::new(terminal));
        let (screen, mut output) = (Arc::clone(&terminal), File::from(master.try_clone().expect("another descriptor")));
        let reader = thread::spawn(move || {
            let mut buffer = [0; 1 << 12];
            // When the other end is closed, reading fails.
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                screen.lock().feed(String::from_utf8_lossy(&buffer[..n]).as_ref());
            }
        });
        Self { earlier, master, terminal, reader: Some(reader), child }
    }

    /// Changes the size of the terminal, between two frames of the program.
    pub(crate) fn resize(&self, (columns, rows): (u16, u16)) {
        signal(self.child.id(), Signal::STOP);
        eventually("the program stands still", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
            let is_stopped = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
            is_stopped && rustix::io::ioctl_fionread(&self.master).is_ok_and(|unread| unread == 0)
        });
        let mut terminal = self.terminal.lock();
        terminal.resize(columns.into(), rows.into());
        set_size(&self.master, (columns, rows));
        drop(terminal);
        signal(self.child.id(), Signal::CONT);
        // As the terminal of a session does.
        signal(self.child.id(), Signal::WINCH);
    }

    /// Types a text.
    pub(crate) fn type_in(&self, text: &str) {
        let written = rustix::io::write(&self.master, text.as_bytes()).expect("the terminal is there");
        assert_eq!(written, text.len(), "a line fits");
    }

    /// Everything of the program that was ever shown and not taken away, with wrapped lines made whole, and without blanks at the
    /// ends. What was there before the program has to be there still.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        let terminal = self.terminal.lock();
        let mut text = String::new();
        for line in terminal.primary_screen().all_lines() {
            if line.is_wrapped() {
                text.push_str(&line.text());
            } else {
                text.push_str(line.text().trim_end());
                text.push('\n');
            }
        }
        let own = text.strip_prefix(&self.earlier);
        format!("{}\n", own.unwrap_or_else(|| panic!("earlier lines are gone:\n{text}")).trim_end())
    }

    /// The lines that are on the terminal now, also where the program has a screen of its own.
    pub(crate) fn screen(&self) -> String {
        let terminal = self.terminal.lock();
        terminal.screen().visible_lines().map(|line| format!("{}\n", line.text().trim_end())).collect()
    }

    /// Presses keys.
    #[track_caller]
    pub(crate) fn press(&self, keys: &str) {
        rustix::io::write(&self.master, keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub(crate) fn until_screen(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.screen()) {
            assert!(Instant::now() < until, "it never comes to this: {what}:\n{}", self.screen());
            thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// True if a line is longer than the terminal is wide.
    pub(crate) fn wraps(&self) -> bool {
        self.terminal.lock().screen().visible_lines().any(avt::Line::is_wrapped)
    }

    /// Waits until the text is as wanted.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.text()) {
            assert!(Instant::now() < until, "it never comes to this: {what}:\n{}", self.text());
            thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the program. The answer is its exit code.
    #[track_caller]
    pub(crate) fn end(&mut self) -> Option<i32> {
        let status = wait(&mut self.child, PATIENCE).unwrap_or_else(|| panic!("it does not end:\n{}", self.text()));
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader");
        }
        status.code()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &OwnedFd, (ws_col, ws_row): (u16, u16)) {
    tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).expect("set the size");
}
