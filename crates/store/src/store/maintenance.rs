//! The public side of the check.

use crate::check::{CheckError, CheckOptions, CheckReport, Checker};
use crate::store::parts::Store;

impl Store {
    /// Returns true if the store was not closed cleanly before it was opened, and nobody has checked since what was written last.
    #[must_use]
    pub fn was_unclean(&self) -> bool {
        self.parts.catalog.lock.unclean_since().is_some()
    }

    /// Checks the store, and repairs it where `options` say so.
    ///
    /// # Errors
    /// See [`CheckError`]. What is wrong with the store is no error but a part of the answer.
    pub fn check(&self, options: &CheckOptions<'_>) -> Result<CheckReport, CheckError> {
        Checker::new(&self.parts.images).check(options)
    }
}
