//! A line of a log in CRI's format: `2026-11-21T18:55:37.123456789Z stdout F text`. `P` instead of `F` means that the
//! line of the container continues in the next one. Pure.

use jiff::Timestamp;

/// Digits of a second that are shown.
const DIGITS: usize = 9;

/// A line that is as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// When, as written.
    pub(crate) time: &'a str,
    /// True if the container's line continues in the next one.
    pub(crate) partial: bool,
    /// Text that the container wrote, without the end of the line.
    pub(crate) text: &'a [u8],
}

impl<'a> LogLine<'a> {
    /// Reads a line without its end; `None`: it is something else.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(4, |b| *b == b' ');
        let time = std::str::from_utf8(fields.next()?).ok()?;
        if !matches!(fields.next()?, b"stdout" | b"stderr") || !looks_like_a_time(time) {
            return None;
        }
        let tag = fields.next()?.split(|b| *b == b':').next()?;
        let partial = match tag {
            b"P" => true,
            b"F" => false,
            _ => return None,
        };
        Some(Self { time, partial, text: fields.next().unwrap_or_default() })
    }

    /// Time of the line; `None` if it cannot be parsed.
    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }

    /// Returns the time for output: with all digits, so that columns are aligned.
    pub(crate) fn shown_time(&self) -> String {
        let (seconds, rest) = self.time.split_at_checked(19).unwrap_or((self.time, ""));
        let (digits, zone) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        format!("{seconds}.{digits:0<DIGITS$.DIGITS$}{zone}")
    }
}

/// Returns true for a text of the form of a time. Cheap, because every line of a log is checked.
fn looks_like_a_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    (FORM.len() + 1..=40).contains(&bytes.len())
        && bytes.iter().zip(FORM).all(fits)
        && bytes[FORM.len()..]
            .iter()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'Z' | b'+' | b'-' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let read = |text: &'static str| LogLine::parse(text.as_bytes());
        let time = "2026-11-21T18:55:37.12Z";
        let line = |partial, text: &'static str| Some(LogLine { time, partial, text: text.as_bytes() });
        assert_eq!(read("2026-11-21T18:55:37.12Z stdout F a b  c "), line(false, "a b  c "));
        assert_eq!(read("2026-11-21T18:55:37.12Z stderr P:x:y "), line(true, ""));
        assert_eq!(read("2026-11-21T18:55:37.12Z stdout F"), line(false, ""));
        for other in [
            "",
            "panic: no log",
            "2026-11-21T18:55:37.12Z stdin F x",
            "2026-11-21T18:55:37.12Z stdout X x",
            "2026-11-21T18:55:37.12Z stdout",
            "yesterday stdout F x",
            "2026-11-21Tsomething:else stdout F x",
            "2026-11-21T18:55:37 stdout F x",
            "\0\0\0\0",
        ] {
            assert_eq!(read(other), None, "{other:?}");
        }
        assert_eq!(LogLine::parse(b"2026-11-21T18:55:37\xff.1Z stdout F x"), None);
    }

    #[test]
    fn times_have_all_their_digits() {
        for (text, shown) in [
            ("2026-11-21T18:55:37Z", "2026-11-21T18:55:37.000000000Z"),
            ("2026-11-21T18:55:37.5+02:00", "2026-11-21T18:55:37.500000000+02:00"),
            ("2026-11-21T18:55:37.123456789Z", "2026-11-21T18:55:37.123456789Z"),
        ] {
            let line = LogLine { time: text, partial: false, text: b"" };
            assert_eq!(line.shown_time(), shown);
            assert!(line.timestamp().is_some());
        }
    }
}
