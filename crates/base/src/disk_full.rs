//! The rule that recognises a full disk by the error of the system.

use std::io;

/// Returns true for the errors of a full file system (ENOSPC) and of a used-up quota (EDQUOT).
#[must_use]
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn full_disk_and_exceeded_quota_are_recognised() {
        for (error, full) in
            [(Errno::NOSPC, true), (Errno::DQUOT, true), (Errno::FBIG, false), (Errno::ROFS, false), (Errno::IO, false)]
        {
            assert_eq!(is_disk_full(&error.into()), full, "{error}");
        }
        assert!(is_disk_full(&io::Error::new(io::ErrorKind::StorageFull, "an error of our own")));
    }
}
