//! [`UniqueNames`]: names of which each may stand in a list once.

use std::collections::BTreeSet;

use crate::field::{FieldErrors, FieldPath};

/// The names of a list that were seen so far.
#[derive(Default)]
pub(super) struct UniqueNames<'a>(BTreeSet<&'a str>);

impl<'a> UniqueNames<'a> {
    pub(super) fn check(&mut self, errors: &mut FieldErrors, path: FieldPath, name: &'a str) {
        if !name.is_empty() && !self.0.insert(name) {
            errors.duplicate(path, name);
        }
    }
}
