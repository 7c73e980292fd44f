//! The document that the figures go into. `main.rs` hands the parts over as they come.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::table::replaced;

/// docs/performance.md, where each part has its place between two marks.
pub(crate) struct Document<'a> {
    root: &'a Path,
    write: bool,
}

impl<'a> Document<'a> {
    pub(crate) fn new(root: &'a Path, write: bool) -> Self {
        Self { root, write }
    }

    /// Prints a part, and puts it into the document if that is asked for.
    pub(crate) fn part(&self, part: &str, text: &str) -> anyhow::Result<()> {
        println!("\n{}\n", text.trim_end());
        if self.write {
            let path = self.root.join("docs/performance.md");
            let document = fs::read_to_string(&path).context("read docs/performance.md")?;
            let new = replaced(&document, part, text)
                .with_context(|| format!("docs/performance.md has no marks for {part}"))?;
            fs::write(&path, new).context("write docs/performance.md")?;
        }
        Ok(())
    }
}
