//! [`Machine`] and [`Load`]: the machine of this node and how busy it is, read from files of the system. What cannot be read is empty.
//! Called by [`super::NodeKeeper`] and the binary.

use std::fs;

/// Properties of this machine. They do not change while the process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors that this process may use, at least 1: its affinity and the quota of its cgroup count.
    pub cpus: u64,
    /// Bytes.
    pub memory: u64,
    /// Bytes; `None` where there is no swap.
    pub swap: Option<u64>,
    /// Content of `/etc/machine-id`, or of D-Bus's file where that is empty.
    pub machine_id: String,
    /// UUID of the machine in DMI; `machine_id` where there is none.
    pub system_uuid: String,
    /// Id of this boot, which the kernel chose.
    pub boot_id: String,
    /// Release of the kernel, as `uname -r` shows it.
    pub kernel_version: String,
    /// `PRETTY_NAME` of `os-release`; `Linux` where there is none.
    pub os_image: String,
}

impl Machine {
    /// Reads the files of the system that say so; what cannot be read is empty. Blocks for as long as small files take.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let memory = text("/proc/meminfo");
        let first = |paths: [&str; 2]| paths.into_iter().map(text).find(|text| !text.is_empty()).unwrap_or_default();
        let machine_id = first(["/etc/machine-id", "/var/lib/dbus/machine-id"]);
        let system_uuid = text("/sys/class/dmi/id/product_uuid");
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            memory: memory_field(&memory, "MemTotal").unwrap_or_default(),
            swap: memory_field(&memory, "SwapTotal").filter(|bytes| *bytes > 0),
            system_uuid: if system_uuid.is_empty() { machine_id.clone() } else { system_uuid },
            machine_id,
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel_version: rustix::system::uname().release().to_string_lossy().into_owned(),
            os_image: pretty_name(&first(["/etc/os-release", "/usr/lib/os-release"])),
        }
    }
}

/// Bytes of memory that programs can have, and how many process ids are in use of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) memory_available: Option<u64>,
    pub(super) pids: Option<(u64, u64)>,
}

impl Load {
    /// Reads the files of the system that say so. Blocks for as long as small files take.
    pub(super) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let most = text("/proc/sys/kernel/pid_max").trim().parse().ok();
        Self {
            memory_available: memory_field(&text("/proc/meminfo"), "MemAvailable"),
            pids: tasks(&text("/proc/loadavg")).zip(most),
        }
    }
}

/// Parses the number of tasks in `/proc/loadavg`: the fourth field is `RUNNING/ALL`.
fn tasks(text: &str) -> Option<u64> {
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Returns a field of `/proc/meminfo` in bytes.
fn memory_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the name of the system in `os-release`, or `Linux` without one.
fn pretty_name(text: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let value = value.map(|value| value.trim().trim_matches(['"', '\'']).to_owned());
    value.filter(|value| !value.is_empty()).unwrap_or_else(|| "Linux".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        let memory = "MemTotal:        8000 kB\nMemFree: 1 kB\nMemAvailable:  10 kB\nSwapTotal: x kB\n";
        assert_eq!(memory_field(memory, "MemTotal"), Some(8_192_000));
        assert_eq!(memory_field(memory, "MemAvailable"), Some(10_240));
        assert_eq!((memory_field(memory, "SwapTotal"), memory_field(memory, "Mem")), (None, None));
        assert_eq!((tasks("0.1 0.2 0.3 2/345 678\n"), tasks("0.1"), tasks("")), (Some(345), None, None));
        assert_eq!(
            pretty_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
        assert_eq!((&*pretty_name("PRETTY_NAME=\n"), &*pretty_name("")), ("Linux", "Linux"));
    }

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::read();
        assert!(machine.cpus > 0 && machine.memory > 1 << 20 && !machine.kernel_version.is_empty(), "{machine:?}");
        let load = Load::read();
        assert!(load.pids.is_some_and(|(used, most)| 0 < used && used < most), "{load:?}");
    }
}
