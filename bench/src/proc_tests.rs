//! Texts of the kernel, as they are.

use super::*;

#[test]
fn a_stat_line_is_read_behind_the_name() {
    let line = "4711 (tokio (rt) w) S 1 4711 4711 0 -1 4194560 900 10 0 0 120 30 4 5 20 0 9 0 98765 1000 200 18446744073709551615";
    let stat = ProcessStat::parse(line).expect("whole");
    assert_eq!(stat, ProcessStat { state: 'S', ticks: 159, started: 98765 });
    assert!(stat.runs());
    assert!(!ProcessStat::parse(&line.replace(") S", ") Z")).expect("whole").runs());
    assert_eq!(ProcessStat::parse("4711 (x) S 1 2"), None);
    assert_eq!(ProcessStat::parse(""), None);
}

#[test]
fn the_own_process_can_be_looked_at() {
    let own = std::process::id();
    assert!(ProcessStat::of(own).expect("it runs").runs());
    assert!(peak_mib(own).expect("it has memory") > 0.5);
    assert!(cpu_seconds(own).expect("it runs") >= 0.0);
}

#[test]
fn memory_is_read_by_its_name() {
    let text = "Name:\tx\nVmPeak:\t  123 kB\nVmHWM:\t   65432 kB\nVmHWMx: 1 kB\n";
    assert_eq!(kib_of(text, "VmHWM"), Some(65432));
    assert_eq!(kib_of(text, "VmRSS"), None);
    assert_eq!(kib_of("MemTotal:       24634812 kB\n", "MemTotal"), Some(24_634_812));
    assert_eq!(kib_of("Threads:\t4\n", "Threads"), None);
}

#[test]
fn mounts_are_found_by_place_and_by_kind() {
    let mounts = "/dev/vda / ext4 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
        /dev/loop0 /w/disk ext4 rw 0 0\noverlay /w/disk/a overlay rw 0 0\n/dev/loop1 /w/disk2 ext4 rw 0 0\n";
    assert_eq!(mounts_below(mounts, Path::new("/w/disk")), ["/w/disk/a", "/w/disk"]);
    assert_eq!(mounts_below(mounts, Path::new("/elsewhere")), [""; 0]);
    assert_eq!(mounted(mounts, "cgroup", Some("memory")).as_deref(), Some("/sys/fs/cgroup/memory"));
    assert_eq!(mounted(mounts, "cgroup2", None).as_deref(), Some("/sys/fs/cgroup/unified"));
    assert_eq!(mounted(mounts, "cgroup", Some("pids")), None);
}
