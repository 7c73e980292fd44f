//! The check of a kept blob: its file against its record, and where it is read, its bytes against the digest that it is kept by. Says
//! what is wrong in words; changes nothing.

use std::io::{self, Read as _};

use super::problem::ProblemKind;
use super::verdict::{Fault, Verdict};
use super::{BlobTarget, Depth};
use crate::check::Checker;
use crate::ingest::verify::{Cancelled, Progress, STEP};
use crate::io_error::is_of_the_medium;

impl Checker<'_> {
    pub(super) fn inspect_blob(&self, target: &BlobTarget, read: Progress<'_>, cancelled: Cancelled<'_>) -> Verdict {
        let BlobTarget { digest, entry, depth } = target;
        let mut file = match self.store.content.open_blob(entry.number) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return bad("its file is gone", true),
            Err(error) => return bad(format!("it cannot be opened: {error}"), is_of_the_medium(&error)),
        };
        match file.metadata() {
            Ok(metadata) if metadata.len() != entry.size => {
                return bad(format!("it has {} bytes instead of {}", metadata.len(), entry.size), true);
            }
            Ok(_) => {}
            Err(error) => return bad(format!("it cannot be looked at: {error}"), is_of_the_medium(&error)),
        }
        if *depth == Depth::Sizes {
            return Verdict::Good;
        }
        let mut hasher = digest.algorithm().hasher();
        let (mut buffer, mut untold) = (vec![0; 256 << 10], 0);
        loop {
            if cancelled() {
                return Verdict::Cancelled;
            }
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    hasher.update(&buffer[..length]);
                    untold += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return bad(format!("it cannot be read: {error}"), is_of_the_medium(&error)),
            }
            if untold >= STEP {
                read(std::mem::take(&mut untold));
            }
        }
        read(untold);
        let got = hasher.finish();
        if got == *digest { Verdict::Good } else { bad(format!("its content has the digest {got}"), true) }
    }
}

fn bad(detail: impl Into<String>, certain: bool) -> Verdict {
    Verdict::Fault(Fault { kind: ProblemKind::DamagedBlob, detail: detail.into(), certain })
}
