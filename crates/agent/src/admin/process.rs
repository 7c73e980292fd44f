//! Metrics of this process: from the kernel, under the names that every Prometheus client uses, and from its asynchronous runtime.
//! Read at each scrape; what cannot be read is left out. Called by the metrics registry.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;

/// Reads the values at each scrape.
#[derive(Debug)]
pub(super) struct Process;

/// Values of `/proc/self/stat` and its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Facts {
    /// User and system time, in seconds.
    cpu: Option<f64>,
    resident: Option<u64>,
    virtual_size: Option<u64>,
    /// Seconds since the epoch.
    started: Option<f64>,
    open_files: Option<u64>,
    max_files: Option<u64>,
    /// Asynchronous tasks that have not ended.
    tasks: Option<u64>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let facts = Facts::read();
        let mut tell = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        if let Some(cpu) = facts.cpu {
            tell("process_cpu_seconds", "User and system time in seconds.", &ConstCounter::new(cpu))?;
        }
        if let Some(started) = facts.started {
            let help = "When the process started, in seconds since 1970.";
            tell("process_start_time_seconds", help, &ConstGauge::new(started))?;
        }
        let counts = [
            ("process_resident_memory_bytes", "Memory that is in use, in bytes.", facts.resident),
            ("process_virtual_memory_bytes", "Size of the address space in bytes.", facts.virtual_size),
            ("process_open_fds", "Open file descriptors.", facts.open_files),
            ("process_max_fds", "File descriptors that may be open.", facts.max_files),
            ("imagelet_tasks", "Asynchronous tasks that have not ended.", facts.tasks),
        ];
        for (name, help, count) in counts {
            if let Some(count) = count {
                tell(name, help, &ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)))?;
            }
        }
        Ok(())
    }
}

impl Facts {
    fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let page = rustix::param::page_size() as u64;
        let ticks = rustix::param::clock_ticks_per_second();
        let open_files = std::fs::read_dir("/proc/self/fd").ok();
        Self {
            // The listing itself has one open.
            open_files: open_files.map(|entries| (entries.count() as u64).saturating_sub(1)),
            tasks: Handle::try_current().ok().map(|runtime| runtime.metrics().num_alive_tasks() as u64),
            ..Self::parse(&text("/proc/self/stat"), &text("/proc/stat"), &text("/proc/self/limits"), page, ticks)
        }
    }

    fn parse(stat: &str, machine: &str, limits: &str, page: u64, ticks: u64) -> Self {
        // The name of the program stands in brackets and may hold anything; field 3 follows it.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |count: u64| count as f64 / ticks as f64;
        let boot = machine.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
        Self {
            cpu: field(14).zip(field(15)).map(|(user, system)| seconds(user + system)),
            started: boot.zip(field(22)).map(|(boot, after)| boot + seconds(after)),
            virtual_size: field(23),
            resident: field(24).map(|pages| pages * page),
            open_files: None,
            tasks: None,
            max_files: files.and_then(|text| text.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let stat =
            "42 (a b) c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 1000 2097152 512 18446744073709551615";
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096  files\n";
        let facts = Facts::parse(stat, "cpu 1\nbtime 1700000000\n", limits, 4096, 100);
        let want = Facts {
            cpu: Some(2.0),
            resident: Some(512 * 4096),
            virtual_size: Some(2_097_152),
            started: Some(1_700_000_010.0),
            open_files: None,
            max_files: Some(1024),
            tasks: None,
        };
        assert_eq!(facts, want);
        let unlimited = "Max open files            unlimited            unlimited            files";
        assert_eq!(Facts::parse("", "", unlimited, 4096, 100), Facts::default(), "what is not told is left out");
    }

    #[tokio::test]
    async fn metrics_of_this_process() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name}:\n{text}"))
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_start_time_seconds") > 1.6e9);
        let before = value("imagelet_tasks");
        let task = tokio_util::task::TaskTracker::new().spawn(std::future::pending::<()>());
        text.clear();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix("imagelet_tasks ")).expect("there");
        assert_eq!(line.parse::<f64>().expect("a number"), before + 1.0);
        task.abort();
        for name in ["process_cpu_seconds counter", "process_resident_memory_bytes gauge"] {
            assert!(text.contains(&format!("# TYPE {name}\n")), "{text}");
        }
    }
}
