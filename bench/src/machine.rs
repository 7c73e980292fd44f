//! The machine and the versions of what was measured, as a sentence for the document. It measures nothing.

use std::fs;

use crate::proc::kib_of;
use crate::session::{BenchSession, program};

/// Processor, memory, kernel, distribution, versions of the engines, load.
pub(crate) fn describe(session: &BenchSession) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let said = |name: &str, args: &[&str]| session.output(program(name, &session.work).args(args)).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = field(&cpu, "model name", ':').unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = kib_of(&read("/proc/meminfo"), "MemTotal").unwrap_or(0) as f64 / f64::from(1 << 20);
    let system = field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let packages = ["containerd", "podman", "skopeo", "umoci", "docker-registry"];
    let list = said("dpkg-query", &[&["-W", "-f", "${Package} ${Version}, "], &packages[..]].concat());
    format!(
        "{cores} cores of {model}, {memory:.0} GiB of memory, Linux {}, {}; {}. Stores lie on a journaled ext4 over a loop device; the registry \
         is on loopback on the same cores, with its blobs in memory.",
        kernel.trim(),
        system.trim_matches('"'),
        list.trim_end_matches(", "),
    )
}

/// The three numbers of the load.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn field(text: &str, name: &str, separator: char) -> Option<String> {
    let (_, value) = text.lines().find(|line| line.starts_with(name))?.split_once(separator)?;
    Some(value.trim().to_owned())
}
