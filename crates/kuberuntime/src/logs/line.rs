//! A line of a log in CRI's format: `2026-11-21T18:55:37.123456789Z stdout F text`. `P` instead of `F` says that the
//! line of the container goes on in the next one. Pure.

use jiff::Timestamp;

/// Digits of a second that are shown.
const DIGITS: usize = 9;

/// A line that is as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogLine<'a> {
    /// When, as written.
    pub(super) time: &'a str,
    /// True if the container's line goes on in the next one.
    pub(super) partial: bool,
    /// Text that the container wrote, without the end of the line.
    pub(super) text: &'a [u8],
}

impl<'a> LogLine<'a> {
    /// Reads a line without its end; `None`: it is something else.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
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

    /// When; `None`: nobody can tell.
    pub(super) fn timestamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }

    /// The time as people are shown it: with all digits, so that columns stay in place.
    pub(super) fn shown_time(&self) -> String {
        let (seconds, rest) = self.time.split_at_checked(19).unwrap_or((self.time, ""));
        let (digits, zone) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        format!("{seconds}.{digits:0<DIGITS$.DIGITS$}{zone}")
    }
}

/// Cheap: every line of a log is looked at.
fn looks_like_a_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes.len() <= 40 && bytes[4] == b'-' && bytes[10] == b'T' && bytes[0].is_ascii_digit()
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
