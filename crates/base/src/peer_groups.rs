//! [`peer_groups`]: all groups of the process on the other end of a unix socket, as the kernel noted them when it connected.
//! Decides nothing. Has unsafe code, like the modules for loop devices and clones and no other of the crate: the request has no
//! safe wrapper. Called for connections whose rights depend on a group.
#![expect(unsafe_code, reason = "one getsockopt request that rustix does not know, which is argued for")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// No process has more groups (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// Returns the supplementary groups, without the primary one.
///
/// # Errors
/// The socket is no connected unix socket, or the kernel is older than 4.13.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut length = libc::socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the kernel writes at most `length` bytes to the buffer, which has that many, and the new length to `length`; both
        // live until the call returns, and the descriptor is open as long as `socket` is borrowed.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast::<c_void>(),
                &raw mut length,
            )
        };
        if result == 0 {
            groups.truncate(usize::try_from(length).unwrap_or_default() / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= MOST_GROUPS {
            return Err(error);
        }
        groups.resize(MOST_GROUPS, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn peer_groups_match_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let mut groups = peer_groups(&one).expect("groups");
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).expect("groups");
        let mut want: Vec<u32> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        groups.sort_unstable();
        want.sort_unstable();
        assert_eq!(groups, want);
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        assert!(peer_groups(&file).is_err());
    }
}
