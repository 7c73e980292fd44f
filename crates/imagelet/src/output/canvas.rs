//! [`Canvas`]: lines on a terminal that the next ones replace. Every line ends with a line end and is narrower than the terminal, and the
//! cursor is below the last one. Writes nothing. Called by the display of progress and by commands that follow changes.

use std::fmt::Write as _;

/// The painted rows above the cursor.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    /// Widths of these lines.
    widths: Vec<usize>,
    /// Width of the terminal when they were written.
    columns: usize,
}

impl Canvas {
    /// Returns true if nothing is painted.
    pub(crate) fn is_empty(&self) -> bool {
        self.widths.is_empty()
    }

    /// Returns the escape sequences and text that replace the last lines with these.
    pub(crate) fn redraw(&mut self, lines: &[String], columns: usize) -> String {
        let rows: usize = self.widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        let mut text = "\r".to_owned();
        if rows > 0 {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\x1b[{rows}A");
        }
        if columns != self.columns {
            text.push_str("\x1b[J");
        }
        for line in lines {
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.widths = lines.iter().map(|line| line.chars().count()).collect();
        self.columns = columns;
        text
    }
}
