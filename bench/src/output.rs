//! Output of a run: progress on standard error, so that standard output has the tables alone, and the document of the
//! figures.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Prints a line of progress.
pub(crate) fn say(line: &str) {
    eprintln!("bench-pull: {line}");
}

/// docs/performance.md, where each part has its place between two marks.
pub(crate) struct PerformancePage<'a> {
    root: &'a Path,
    write: bool,
}

impl<'a> PerformancePage<'a> {
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

/// A document with the text between two marks replaced. None where the marks are not there.
pub(crate) fn replaced(document: &str, part: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- bench-pull {part}: begin -->\n"), format!("<!-- bench-pull {part}: end -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", text.trim_end()))
}
