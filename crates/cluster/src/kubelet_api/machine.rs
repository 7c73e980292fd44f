//! CPU time and memory of the machine as a whole, as the kernel counts them. Reading is a thin shell; the files are read by pure functions.

use cri_api::{CpuUsage, MemoryUsage};
use jiff::Timestamp;

/// Use of the machine; what the kernel does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MachineUsage {
    pub(crate) cpu: Option<CpuUsage>,
    pub(crate) memory: Option<MemoryUsage>,
}

impl MachineUsage {
    /// Asks the kernel. Blocks for a moment.
    pub(crate) fn read(now: Timestamp) -> Self {
        let timestamp = i64::try_from(now.as_nanosecond()).unwrap_or_default();
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second().clamp(1, 1_000_000);
        let cpu = busy_ticks(&file("/proc/stat")).map(|busy| CpuUsage {
            timestamp,
            usage_core_nano_seconds: Some(busy.saturating_mul(1_000_000_000 / ticks)),
            ..CpuUsage::default()
        });
        let memory = memory(&file("/proc/meminfo")).map(|usage| MemoryUsage { timestamp, ..usage });
        Self { cpu, memory }
    }
}

/// Returns the time that all processors were busy, in ticks.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = line.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two.
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| numbers.get(*index)).sum();
    (numbers.len() >= 4).then_some(busy)
}

/// Returns memory as the kubelet counts it: the used memory without inactive files.
fn memory(meminfo: &str) -> Option<MemoryUsage> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    };
    let total = bytes("MemTotal")?;
    let usage = total.saturating_sub(bytes("MemFree")?);
    let working_set = usage.saturating_sub(bytes("Inactive(file)").unwrap_or(0));
    Some(MemoryUsage {
        usage_bytes: Some(usage),
        working_set_bytes: Some(working_set),
        available_bytes: Some(total.saturating_sub(working_set)),
        rss_bytes: bytes("AnonPages"),
        ..MemoryUsage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(busy_ticks("cpu  10 1 5 1000 50 2 3 4 0 0\ncpu0 1 1 1 1\n"), Some(25));
        assert_eq!(busy_ticks("cpu  10 1 5 1000\n"), Some(16));
        assert_eq!(busy_ticks("cpu  x\nintr 5\n"), None);
        let text = "MemTotal:  1000 kB\nMemFree:  400 kB\nInactive(file):  100 kB\nAnonPages:  50 kB\n";
        let usage = memory(text).expect("it can be read");
        assert_eq!(usage.usage_bytes, Some(600 << 10));
        assert_eq!(usage.working_set_bytes, Some(500 << 10));
        assert_eq!(usage.available_bytes, Some(500 << 10));
        assert_eq!(usage.rss_bytes, Some(50 << 10));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_has_both() {
        let usage = MachineUsage::read(Timestamp::now());
        assert!(usage.cpu.is_some_and(|cpu| cpu.usage_core_nano_seconds > Some(0)));
        assert!(usage.memory.is_some_and(|memory| memory.working_set_bytes > Some(0)));
    }
}
