//! [`Private`]: a name under `ingest/` that one owner has, for a directory or a file that is deleted with the value.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::content::Content;
use crate::content::left::note_name;
use crate::disk::remove_tree;
use crate::error::StoreError;

impl Content {
    /// Reserves an unused name under `ingest/`. Creates no file.
    pub(crate) fn private(self: &Arc<Self>) -> Private {
        let number = self.next_ingest.fetch_add(1, Ordering::Relaxed);
        // Marked before the file exists, so that it is never taken for a leftover.
        self.note_busy(&number.to_string(), true);
        Private { content: Arc::clone(self), number, note: None, stays: false }
    }

    /// Marks this name under `ingest/` as in use, or no longer in use. The mark covers all names that begin with it and a dot.
    pub(crate) fn note_busy(&self, name: &str, busy: bool) {
        let mut names = self.busy.lock();
        if busy {
            names.insert(name.to_owned());
        } else {
            names.remove(name);
        }
    }
}

/// A directory or a file under `ingest/` that is deleted when this is dropped.
pub(crate) struct Private {
    content: Arc<Content>,
    pub(crate) number: u64,
    /// Suffix of the describing file next to it, if there is one.
    note: Option<&'static str>,
    stays: bool,
}

impl Private {
    /// Takes over the leftover with this number, and the file next to it.
    pub(crate) fn again(content: &Arc<Content>, number: u64, note: &'static str) -> Self {
        Self { content: Arc::clone(content), number, note: Some(note), stays: false }
    }

    pub(crate) fn content(&self) -> Arc<Content> {
        Arc::clone(&self.content)
    }

    pub(crate) fn note(&self) -> Option<&'static str> {
        self.note
    }

    /// Notes that a describing file is next to it, which is deleted first.
    pub(crate) fn set_note(&mut self, note: &'static str) {
        self.note = Some(note);
    }

    /// Gives up ownership without deleting anything. Returns the number.
    pub(crate) fn leave(mut self) -> u64 {
        self.stays = true;
        self.number
    }

    /// Deletes the describing file: the content no longer matches it.
    pub(crate) fn clear_note(&mut self) {
        let Some(note) = self.note.take() else { return };
        let name = note_name(self.number, note);
        match rustix::fs::unlinkat(&self.content.catalog.disk.layout.ingest, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!(%error, name, "the note of a leftover stays until the next start")
            }
        }
    }

    pub(crate) fn name(&self) -> String {
        self.number.to_string()
    }

    /// An error of something that was done with it.
    pub(crate) fn failed(&self, operation: &'static str, source: io::Error) -> StoreError {
        StoreError::io(operation, self.content.catalog.disk.layout.ingest_path(self.number), source)
    }
}

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Private").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.clear_note();
        let text = self.number.to_string();
        let name = CString::new(text.as_str()).expect("digits have no zero byte");
        if let Err(error) = remove_tree::remove_tree(self.content.catalog.disk.layout.ingest.as_fd(), &name) {
            tracing::warn!(%error, number = self.number, "what a pull had to itself stays for a while");
            self.content.catalog.disk.note_untidy();
        }
        self.content.note_busy(&text, false);
    }
}
