//! Results that are written one after the other as they are found: lines, or the items of one list in JSON or YAML. A closed pipe is no
//! error; nothing more is written after it. Called by the commands.

use std::io::{self, BufWriter, ErrorKind, IsTerminal as _, Stdout, Write};

use serde::Serialize;

use super::{Format, document};
use crate::exit::{Code, Failure, Outcome};

/// A sequence of results.
#[derive(Debug)]
pub(crate) struct Sequence {
    out: BufWriter<Stdout>,
    /// The format of a list's items; `None` for lines.
    format: Option<Format>,
    items: u64,
    /// The items, if an expression is evaluated at the end.
    kept: Vec<serde_json::Value>,
    terminal: bool,
    read: bool,
}

impl Sequence {
    /// Creates a sequence of lines.
    pub(crate) fn lines() -> Self {
        let out = io::stdout();
        let terminal = out.is_terminal();
        Self {
            out: BufWriter::with_capacity(64 << 10, out),
            format: None,
            items: 0,
            kept: Vec::new(),
            terminal,
            read: true,
        }
    }

    /// Creates a sequence of the items of a list.
    pub(crate) fn of(format: Format) -> Self {
        Self { format: Some(format), ..Self::lines() }
    }

    /// Writes a line of bytes that need not be text. Returns false if the reader has closed the pipe. On a terminal, characters that could
    /// control it become `?`, as in GNU `ls`.
    pub(crate) fn line(&mut self, line: &[u8]) -> Outcome<bool> {
        if self.terminal {
            let clean = super::table::clean(&String::from_utf8_lossy(line));
            return self.write(&[clean.as_bytes(), b"\n"].concat());
        }
        self.write(line)?;
        self.write(b"\n")
    }

    /// Writes an item. Returns false if the reader has closed the pipe.
    pub(crate) fn item(&mut self, item: &impl Serialize) -> Outcome<bool> {
        let text = if let Some(Format::Expression(_)) = self.format {
            let failed = |error| Failure::caused(Code::Failed, "read the result for -o", &error);
            self.kept.push(serde_json::to_value(item).map_err(failed)?);
            String::new()
        } else if let Some(Format::Yaml) = self.format {
            document::yaml(&[item])?
        } else {
            let text = document::json(item)?;
            let before = if self.items == 0 { "[\n" } else { ",\n" };
            format!("{before}  {}", text.replace('\n', "\n  "))
        };
        self.items += 1;
        self.write(text.as_bytes())
    }

    /// Writes the remaining output.
    pub(crate) fn end(mut self) -> Outcome {
        let last = match (self.format, self.items) {
            (Some(Format::Expression(expression)), _) => {
                let text = expression.render(&serde_json::Value::Array(std::mem::take(&mut self.kept)));
                if self.terminal { oci::text::printable(&text, '?', &['\n', '\t']).into_owned() } else { text }
            }
            (None, _) | (Some(Format::Yaml), 1..) => String::new(),
            (_, 0) => "[]\n".to_owned(),
            (_, _) => "\n]\n".to_owned(),
        };
        self.write(last.as_bytes())?;
        let flushed = if self.read { self.out.flush() } else { Ok(()) };
        Self::outcome(flushed).map(drop)
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome<bool> {
        if self.read {
            self.read = Self::outcome(self.out.write_all(bytes))?;
        }
        Ok(self.read)
    }

    fn outcome(written: io::Result<()>) -> Outcome<bool> {
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::caused(Code::Failed, "write to standard output", &error)),
        }
    }
}
