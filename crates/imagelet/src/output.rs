//! The only place that writes to stdout: tables, JSON, YAML and plain lines. A closed pipe is no error. Knows no command. Called by the
//! commands.
//!
//! Everything else that people read (errors, logs, progress) is written to stderr, see [`crate::logging`].

mod canvas;
mod document;
mod expression;
mod jsonpath;
mod sequence;
pub(crate) mod table;
pub(crate) mod units;

use std::io::{self, ErrorKind, IsTerminal as _, Write};

use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
pub(crate) use canvas::Canvas;
pub(crate) use expression::Expression;
pub(crate) use sequence::Sequence;
pub(crate) use table::Table;

/// The format of results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Format {
    /// Columns for users.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON with CRI's field names.
    Json,
    /// The same data as YAML.
    Yaml,
    /// Names only, one per line.
    Name,
    /// An expression over the JSON. A process has only one, so it may live as long as the process.
    Expression(&'static Expression),
}

impl Format {
    /// Names as written on the command line, in addition to [`Expression::FORMS`].
    pub(crate) const NAMES: [&str; 5] = ["table", "wide", "json", "yaml", "name"];

    /// Returns the format of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Table, Self::Wide, Self::Json, Self::Yaml, Self::Name];
        if let Some(Ok(expression)) = Expression::parse(name) {
            return Some(Self::Expression(Box::leak(Box::new(expression))));
        }
        Self::NAMES.iter().position(|n| *n == name).map(|i| all[i])
    }

    /// Returns true for JSON, YAML and expressions, which are all rendered from the same value.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml | Self::Expression(_))
    }
}

/// The output of a command, in every format.
pub(crate) trait Report: Serialize {
    /// Returns a table; `wide` adds columns, `whole` shows whole ids.
    fn table(&self, wide: bool, whole: bool) -> Table;

    /// Returns the names, one per line.
    fn names(&self) -> Vec<String>;

    /// Returns the ids, one per line, for `-q`.
    fn ids(&self) -> Vec<String>;
}

/// Writes results in the format that the command line asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Printer {
    /// Table, JSON and so on; `None` if the command may choose.
    pub(crate) format: Option<Format>,
    /// True to write only ids.
    pub(crate) quiet: bool,
    /// True to cut nothing.
    pub(crate) whole: bool,
}

impl Printer {
    /// Writes a report.
    pub(crate) fn report(&self, report: &impl Report) -> Outcome {
        if self.quiet {
            return self.lines(report.ids());
        }
        match self.format.unwrap_or_default() {
            Format::Table => write(&report.table(false, self.whole).render()),
            Format::Wide => write(&report.table(true, self.whole).render()),
            Format::Name => self.lines(report.names()),
            Format::Json => self.json(report),
            Format::Yaml => self.yaml(report),
            Format::Expression(expression) => self.expression(expression, report),
        }
    }

    /// Writes JSON or YAML; without a choice, `otherwise`. Tables and names are refused.
    pub(crate) fn document(&self, otherwise: Format, value: &impl Serialize) -> Outcome {
        match self.format.unwrap_or(otherwise) {
            Format::Json => self.json(value),
            Format::Yaml => self.yaml(value),
            Format::Expression(expression) => self.expression(expression, value),
            _ => Err(Failure::usage("this command writes json or yaml: choose one of them with -o")),
        }
    }

    /// Returns true if people read the result as a table, so that lines may follow below.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.format.unwrap_or_default(), Format::Table | Format::Wide) && !self.quiet
    }

    /// Writes lines.
    pub(crate) fn lines<L: AsRef<str>>(&self, lines: impl IntoIterator<Item = L>) -> Outcome {
        let mut text = String::new();
        for line in lines {
            text.push_str(line.as_ref());
            text.push('\n');
        }
        write(&text)
    }

    /// Replaces the lines that `canvas` painted on the terminal at standard output. Lines that do not fit are left out.
    pub(crate) fn repaint(&self, canvas: &mut Canvas, lines: Vec<String>) -> Outcome {
        let (columns, rows) = match rustix::termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 1 => (usize::from(size.ws_col), usize::from(size.ws_row)),
            _ => (80, 24),
        };
        let lines: Vec<String> =
            lines.into_iter().take(rows - 1).map(|line| line.chars().take(columns - 1).collect()).collect();
        write_as_is(&canvas.redraw(&lines, columns))
    }

    fn json(&self, value: &impl Serialize) -> Outcome {
        self.lines([document::json(value)?])
    }

    fn expression(&self, expression: &Expression, value: &impl Serialize) -> Outcome {
        let value = serde_json::to_value(value)
            .map_err(|error| Failure::caused(Code::Failed, "read the result for -o", &error))?;
        write(&expression.render(&value))
    }

    /// Writes a stream of YAML documents, each below `---`.
    pub(crate) fn yaml_stream(&self, values: &[serde_json::Value]) -> Outcome {
        let documents = values.iter().map(document::yaml).collect::<Outcome<Vec<String>>>()?;
        write(&documents.iter().map(|text| format!("---\n{text}")).collect::<String>())
    }

    fn yaml(&self, value: &impl Serialize) -> Outcome {
        write(&document::yaml(value)?)
    }
}

/// Writes text to stdout at once. On a terminal, characters that could control it become `?`.
fn write(text: &str) -> Outcome {
    let is_terminal = io::stdout().is_terminal();
    let text = if is_terminal { oci::text::printable(text, '?', &['\n', '\t']) } else { text.into() };
    write_as_is(&text)
}

fn write_as_is(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::caused(Code::Failed, "write to standard output", &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_name() {
        assert!(matches!(Format::from_name("wide"), Some(Format::Wide)));
        assert!(matches!(Format::from_name("name"), Some(Format::Name)));
        assert!(matches!(Format::from_name("jsonpath={.id}"), Some(Format::Expression(_))));
        assert!(Format::from_name("xml").is_none());
    }
}
