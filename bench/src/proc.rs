//! Processes and mounts, as the kernel shows them in `/proc`. Sends no signal and unmounts nothing.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Ticks of a second in `/proc/PID/stat`: the same on every architecture that this runs on.
const TICKS: f64 = 100.0;

/// The part of `/proc/PID/stat` that is read here.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct ProcessStat {
    /// `Z` is one that has ended and was not waited for.
    pub(crate) state: char,
    /// Ticks of CPU, user and system, with those of children that were waited for.
    pub(crate) ticks: u64,
    /// When it started, in ticks since the boot: with the id it names one process for good.
    pub(crate) started: u64,
}

impl ProcessStat {
    /// Reads the line. The name in parentheses may hold anything, parentheses too.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        // The state is field 3 of the manual; user, system and the children's two are 14 to 17, the start is 22.
        let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
        Some(Self { state: fields.first()?.chars().next()?, ticks, started: number(19)? })
    }

    /// Reads the figures of a running process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Returns true if the process has not ended.
    pub(crate) fn runs(self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Seconds of CPU of a process and its children until now.
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = ProcessStat::of(pid).with_context(|| format!("process {pid} is gone"))?;
    Ok(stat.ticks as f64 / TICKS)
}

/// Resets the peak memory of a process.
pub(crate) fn forget_peak(pid: u32) -> anyhow::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").with_context(|| format!("reset the peak memory of process {pid}"))
}

/// The most memory that a process held, in MiB.
pub(crate) fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    let kib = kib_of(&text, "VmHWM").with_context(|| format!("process {pid} says nothing of its peak memory"))?;
    Ok(kib as f64 / 1024.0)
}

/// A value of a text like `/proc/PID/status` or `/proc/meminfo`, in KiB.
pub(crate) fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Returns the mount points at and below a directory, in the order in which they can be unmounted.
pub(crate) fn mounts_below(mounts: &str, directory: &Path) -> Vec<String> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let mut below: Vec<String> = points.filter(|p| Path::new(p).starts_with(directory)).map(str::to_owned).collect();
    below.reverse();
    below
}

/// Where the first file system of a kind (with an option, if one is asked for) is mounted.
pub(crate) fn mounted(mounts: &str, kind: &str, option: Option<&str>) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, found, options) = (fields.next()?, fields.next()?, fields.next()?);
        let has = option.is_none_or(|option| options.split(',').any(|o| o == option));
        (found == kind && has).then(|| point.to_owned())
    })
}

#[cfg(test)]
#[path = "proc_tests.rs"]
mod tests;
