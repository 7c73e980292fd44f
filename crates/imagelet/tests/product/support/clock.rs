//! Clocks for a program that is started: its time of day by faketime, for how long the machine is up by a time namespace of
//! its own, and which boot that is by another file in the place of the kernel's. A [`Clock`] can be set while programs run by
//! it. The machine's own clocks are left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::tool;
use super::scratch::Scratch;

/// How a program's clocks differ from the machine's, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) passed: i64,
    pub(crate) set: i64,
    /// The machine was booted this many seconds ago.
    pub(crate) booted: Option<i64>,
    /// All clocks are this many times as fast.
    pub(crate) speed: Option<u32>,
}

impl Time {
    /// The command that starts a program by these clocks.
    #[track_caller]
    pub(crate) fn command(self, program: &Path) -> Command {
        let up = match self.booted {
            Some(seconds) => seconds - uptime(),
            None => self.passed,
        };
        if up == 0 {
            return Command::new(program);
        }
        let mut command = tool("unshare");
        // Mounts below shared ones are seen outside, as those of a service are.
        let up = up.to_string();
        command.args([
            "--time",
            "--boottime",
            &up,
            "--mount",
            "--propagation",
            "unchanged",
            "--fork",
            "--kill-child",
            "--",
        ]);
        if let Some(seconds) = self.booted {
            // Another name for another boot; the mount ends with its namespace.
            let id = format!("{seconds:08x}-0000-4000-8000-{:012x}", self.passed.unsigned_abs());
            let file = std::env::temp_dir().join(format!("imagelet-boot-{id}"));
            fs::write(&file, format!("{id}\n")).expect("write the name of a boot");
            let script = "mount --make-private /proc && \
                          mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
            command.args(["/bin/sh", "-c", script, &file.display().to_string()]);
        }
        command.arg(program);
        command
    }

    /// The environment variables of a program with this time.
    #[track_caller]
    pub(crate) fn environment(self) -> Vec<(&'static str, String)> {
        let words = match (self.passed + self.set, self.speed) {
            (0, None) => return Vec::new(),
            (seconds, None) => format!("{seconds:+}"),
            (seconds, Some(times)) => format!("{seconds:+} x{times}"),
        };
        let monotonic = if self.speed.is_some() { "0" } else { "1" };
        vec![
            ("LD_PRELOAD", library()),
            ("FAKETIME", words),
            ("FAKETIME_DONT_FAKE_MONOTONIC", monotonic.to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }
}

/// A wall clock that can be set while programs run; they read it each time.
pub(crate) struct Clock(PathBuf);

impl Clock {
    /// A clock that shows the machine's time.
    #[track_caller]
    pub(crate) fn new(scratch: &Scratch) -> Self {
        let clock = Self(scratch.join("clock"));
        clock.set_by(0);
        clock
    }

    /// Sets it to this many seconds from the machine's clock.
    #[track_caller]
    pub(crate) fn set_by(&self, seconds: i64) {
        // A rename, so that no reader sees a partial file.
        let next = self.0.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n")).expect("write a clock");
        fs::rename(&next, &self.0).expect("set a clock");
    }

    /// The command that starts a program with this clock.
    #[track_caller]
    pub(crate) fn words(&self) -> Vec<String> {
        let variables = [
            ("LD_PRELOAD", library()),
            ("FAKETIME_TIMESTAMP_FILE", self.0.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ];
        let env = tool("env").get_program().display().to_string();
        [env].into_iter().chain(variables.map(|(name, value)| format!("{name}={value}"))).collect()
    }
}

/// The path of the library that gives a program another time of day.
#[track_caller]
fn library() -> String {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
    assert!(Path::new(&library).exists(), "{library} is not there: run scripts/prerequisites.sh");
    library
}

/// For how many seconds the machine is up.
fn uptime() -> i64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("the kernel tells");
    text.split('.').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
}
