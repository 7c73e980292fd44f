//! The rights of this process, as far as the store's files depend on them.

/// User 0 of the machine, not of a user namespace that maps few users and may make no devices.
pub(crate) fn is_privileged() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
