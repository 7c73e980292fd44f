//! Clocks for a program that is started: its time of day by faketime, for how long the machine is up by a time namespace of
//! its own, and which boot that is by another file in the place of the kernel's. The machine's own clocks are left alone.

use std::path::Path;
use std::process::Command;

use super::process::tool;

/// How a program's clocks differ from the machine's, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) passed: i64,
    pub(crate) set: i64,
    /// The machine was booted anew so long ago.
    pub(crate) booted: Option<i64>,
    /// All clocks go so many times as quickly.
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
        command.args(["--time", "--boottime", &up.to_string(), "--mount", "--fork", "--kill-child", "--"]);
        if let Some(seconds) = self.booted {
            // Another name for another boot; the mount ends with its namespace.
            let id = format!("{seconds:08x}-0000-4000-8000-{:012x}", self.passed.unsigned_abs());
            let script = "mount -t tmpfs none /mnt && echo $0 >/mnt/id && \
                          mount --bind /mnt/id /proc/sys/kernel/random/boot_id && exec \"$@\"";
            command.args(["/bin/sh", "-c", script, &id]);
        }
        command.arg(program);
        command
    }

    /// What else it needs.
    #[track_caller]
    pub(crate) fn environment(self) -> Vec<(&'static str, String)> {
        let words = match (self.passed + self.set, self.speed) {
            (0, None) => return Vec::new(),
            (seconds, None) => format!("{seconds:+}"),
            (seconds, Some(times)) => format!("{seconds:+} x{times}"),
        };
        let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
        assert!(Path::new(&library).exists(), "{library} is not there: run scripts/prerequisites.sh");
        let monotonic = if self.speed.is_some() { "0" } else { "1" };
        vec![
            ("LD_PRELOAD", library),
            ("FAKETIME", words),
            ("FAKETIME_DONT_FAKE_MONOTONIC", monotonic.to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }
}

/// For how many seconds the machine is up.
fn uptime() -> i64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("the kernel tells");
    text.split('.').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
}
