//! What an error of the system says: that the disk is full, or that data is lost.

use std::io;

/// Returns true if an error is that of a disk that is full, or of a used-up quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns true if a failed read says that the data is lost, and not that the system lacks something.
pub(crate) fn is_of_the_medium(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // Garbage where the recipe's compressed bytes were is told without a number.
    error.raw_os_error().is_none_or(|number| {
        [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA, Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ISDIR]
            .iter()
            .any(|errno| errno.raw_os_error() == number)
    })
}
