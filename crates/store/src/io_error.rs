//! The rule that distinguishes lost data from a missing feature of the system.

use std::io;

/// Returns true if a failed read says that the data is lost, and not that the system lacks something.
pub(crate) fn is_of_the_medium(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // Garbage in the recipe's compressed bytes is an error without a number.
    error.raw_os_error().is_none_or(|number| {
        [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA, Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ISDIR]
            .iter()
            .any(|errno| errno.raw_os_error() == number)
    })
}
