//! Tables as kubectl and crictl print them: columns padded with blanks, no borders, three blanks between columns, nothing after the last
//! one. Cells are cleaned, since some of their text is from registries and runtimes. Called by the commands through
//! [`crate::output::Printer`].

/// Blanks between columns.
const GAP: usize = 3;

/// A table that is being built.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Finished tables above this one.
    above: String,
    rows: Vec<Vec<String>>,
    /// For each column, true if it is left out.
    hidden: Vec<bool>,
}

impl Table {
    /// Creates a table with these column titles.
    pub(crate) fn new(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|&t| t.to_owned()).collect()], ..Self::default() }
    }

    /// Creates a table with these column titles; a leading `+` marks columns of the wide form only. Rows have all cells.
    pub(crate) fn with_wide(wide: bool, titles: &[&str]) -> Self {
        let hidden: Vec<bool> = titles.iter().map(|title| !wide && title.starts_with('+')).collect();
        let shown = titles.iter().zip(&hidden).filter(|(_, hidden)| !**hidden);
        let shown = shown.map(|(title, _)| title.trim_start_matches('+').to_owned()).collect();
        Self { rows: vec![shown], hidden, ..Self::default() }
    }

    /// Appends a row. Empty cells are shown as `-`, so that columns can be cut by blanks.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let hidden = self.hidden.iter().copied().chain(std::iter::repeat(false));
        let shown = cells.into_iter().zip(hidden).filter(|(_, hidden)| !hidden);
        self.rows.push(shown.map(|(cell, _)| clean(&cell)).collect());
    }

    /// Begins another table with these column titles below an empty line. Its columns have widths of their own.
    pub(crate) fn section(&mut self, titles: &[&str]) {
        let above = format!("{}\n", self.render());
        *self = Self { above, ..Self::new(titles) };
    }

    /// Returns the text; every line has a line end.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|c| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or_default())
            .collect();
        let mut text = self.above.clone();
        for row in &self.rows {
            for (c, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if c + 1 < row.len() {
                    let pad = widths[c] + GAP - cell.chars().count();
                    text.extend(std::iter::repeat_n(' ', pad));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Returns the text of a cell: `?` for every character that could control the terminal, `-` for no text.
pub(crate) fn clean(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    oci::text::printable(text, '?', &[]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["IMAGE", "TAG", "SIZE"]);
        table.row(["docker.io/library/busybox".into(), "1".into(), "4.27MB".into()]);
        table.row(["a".into(), String::new(), "é".into()]);
        table.row(["\u{1b}[31mred".into(), "latest".into(), "1B".into()]);
        table.row(["\u{9b}31mred".into(), "\u{202e}tsetal".into(), "1\u{7f}B".into()]);
        let want = "\
IMAGE                       TAG       SIZE
docker.io/library/busybox   1         4.27MB
a                           -         é
?[31mred                    latest    1B
?31mred                     ?tsetal   1?B
";
        assert_eq!(table.render(), want);
    }

    #[test]
    fn sections_have_columns_of_their_own() {
        let mut table = Table::new(&["A LONG TITLE", "B"]);
        table.row(["a".into(), "b".into()]);
        table.section(&["C", "D"]);
        table.row(["c".into(), "d".into()]);
        assert_eq!(table.render(), "A LONG TITLE   B\na              b\n\nC   D\nc   d\n");
    }

    #[test]
    fn titles_alone() {
        assert_eq!(Table::new(&["A", "B"]).render(), "A   B\n");
    }
}
