//! [`LogReader`]: the output of a container. Reads a log with its rotated files, from the first
//! requested line, and follows it over rotations. Never waits: each [`LogReader::step`] writes the available lines. Lines that
//! are not in CRI's format are left out: no runtime wrote them. Blocks; callers keep it off the async threads.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;

use flate2::read::MultiGzDecoder;
use jiff::Timestamp;

use super::files::{LogLocation, RotatedLog, identity, rotated_and_leftovers};
use super::line::LogLine;
use super::tail;
use crate::volumes::place::OpenDirectory;

const CHUNK: usize = 64 << 10;
/// A line that is longer is no runtime's, and is passed on before it ends.
const LONGEST_LINE: usize = 1 << 20;
/// Number of tries to open files that are renamed meanwhile.
const MOST_TRIES: usize = 5;

/// Selection of lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Maximum number of lines, counted from the end.
    pub tail: Option<u64>,
    /// Time of the oldest line.
    pub since: Option<Timestamp>,
    /// True if each line begins with its time.
    pub timestamps: bool,
    /// Maximum number of bytes.
    pub limit_bytes: Option<u64>,
}

/// Result of [`LogReader::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// All available lines were written; more may follow.
    UpToDate,
    /// No more bytes are wanted.
    Full,
    /// More data is available; only of [`LogReader::part`].
    More,
}

/// Reader of the log of a container and of the files that were rotated away from it.
pub struct LogReader {
    location: LogLocation,
    /// The directory of the log, which no link takes the place of once it is open.
    directory: OpenDirectory,
    options: LogOptions,
    /// Files after the one that is read.
    ahead: VecDeque<LogSegment>,
    now: Option<LogSegment>,
    /// The beginning of a line, or of its next part, whose end was not written yet.
    begun: Vec<u8>,
    /// The line whose first part was passed on before its end.
    long_line: Option<LongLine>,
    /// True once a line was left out.
    left_out: bool,
    /// True if the text that is written next begins a line.
    new_line: bool,
    /// True if the last line with a time was recent enough.
    young: bool,
    written: u64,
    /// True if the log was rotated, and had new data in the last step.
    rotated: bool,
    /// The file that was rotated last before the file that is read.
    known: Option<String>,
    buffer: Vec<u8>,
}

/// A file, or the rest of one.
struct LogSegment {
    source: LogInput,
    /// Number of lines at the start that were not asked for.
    skip: u64,
    /// True if the file may still grow.
    live: bool,
}

/// A line that is longer than any runtime's, of which the next part is to be read.
#[derive(Clone, Copy)]
enum LongLine {
    /// Text of a container; `partial` if the container's line continues after it.
    Text { partial: bool },
    /// A line of another format.
    Foreign,
}

/// End of a line, or of a part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Newline,
    /// The file ends in the line.
    File,
    /// The line is too long to be kept, and continues.
    TooLong,
}

enum LogInput {
    Plain { file: File, at: u64 },
    Compressed(Box<MultiGzDecoder<File>>),
}

impl LogInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain { file, at } => {
                let read = file.read_at(buffer, *at)?;
                *at += u64::try_from(read).unwrap_or_default();
                Ok(read)
            }
            Self::Compressed(file) => file.read(buffer),
        }
    }
}

impl LogReader {
    /// Opens the log at `location` with its rotated files, and finds the first requested line.
    ///
    /// # Errors
    /// The log is absent or cannot be read.
    pub fn open(location: &LogLocation, options: LogOptions) -> io::Result<Self> {
        let directory = location.open_directory()?;
        // The current log first: a log that is rotated meanwhile is then found twice rather than not at all.
        let current = match directory.read(location.file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let own = current.as_ref().map(identity).transpose()?;
        let rotated = open_rotated(&directory, location.file(), None)?;
        let mut ahead = VecDeque::new();
        let mut wanted = options.tail;
        // True if the requested lines reach back to the first byte of the file that was read last.
        let mut continued = false;
        if own.is_none() && rotated.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(file) = current {
            let end = file.metadata()?.len();
            let (at, found) = wanted.map_or(Ok((0, 0)), |lines| tail::start(&file, end, lines, false))?;
            wanted = wanted.map(|lines| lines.saturating_sub(found));
            continued = at == 0 && end > 0;
            ahead.push_front(LogSegment { source: LogInput::Plain { file, at }, skip: 0, live: true });
        }
        let mut known = None;
        // During a rotation there is no current log, and the runtime still writes to the last rotated one.
        let mut between = own.is_none();
        for (rotated, file) in rotated.into_iter().rev() {
            if own == Some(identity(&file)?) {
                continue;
            }
            let live = std::mem::take(&mut between) && !rotated.compressed;
            if !live {
                known.get_or_insert(rotated.when);
            }
            if wanted == Some(0) && !continued {
                break;
            }
            let segment = if rotated.compressed {
                let skip = match wanted {
                    Some(lines) => {
                        let (ended, open) = tail::count_compressed(file.try_clone()?)?;
                        let all = ended + u64::from(open && !continued);
                        wanted = Some(lines.saturating_sub(all));
                        continued = all <= lines;
                        all.saturating_sub(lines)
                    }
                    None => 0,
                };
                io::Seek::rewind(&mut &file)?;
                LogSegment { source: LogInput::Compressed(Box::new(MultiGzDecoder::new(file))), skip, live: false }
            } else {
                let end = file.metadata()?.len();
                let (at, found) = wanted.map_or(Ok((0, 0)), |lines| tail::start(&file, end, lines, continued))?;
                wanted = wanted.map(|lines| lines.saturating_sub(found));
                continued = at == 0 && (end > 0 || continued);
                LogSegment { source: LogInput::Plain { file, at }, skip: 0, live }
            };
            ahead.push_front(segment);
        }
        Ok(Self {
            location: location.clone(),
            directory,
            options,
            ahead,
            now: None,
            begun: Vec::new(),
            long_line: None,
            left_out: false,
            new_line: true,
            young: true,
            written: 0,
            rotated: false,
            known,
            buffer: vec![0; CHUNK],
        })
    }

    /// Writes all complete lines that are available.
    ///
    /// # Errors
    /// The log cannot be read, or `out` takes nothing more.
    pub fn step(&mut self, out: &mut dyn Write) -> io::Result<LogStep> {
        loop {
            match self.part(out)? {
                LogStep::More => {}
                step => return Ok(step),
            }
        }
    }

    /// Writes a part of what there is, so that a caller can hand it on before the next one.
    ///
    /// # Errors
    /// The log cannot be read, or `out` takes nothing more.
    pub fn part(&mut self, out: &mut dyn Write) -> io::Result<LogStep> {
        let Some(mut segment) = self.now.take().or_else(|| self.ahead.pop_front()) else {
            return Ok(LogStep::UpToDate);
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = segment.source.read(&mut buffer);
        let step = match &read {
            Ok(0) => None,
            Ok(length) => Some(self.take(&mut segment.skip, &buffer[..*length], out)),
            Err(_) => None,
        };
        self.buffer = buffer;
        match (read, step) {
            (Ok(0), _) if !segment.live => self.end_of_file(out)?,
            (Ok(0), _) => {
                let waits = self.at_the_end(&mut segment, out)?;
                if waits {
                    self.now = Some(segment);
                    return Ok(LogStep::UpToDate);
                }
            }
            (Ok(_), Some(step)) => {
                self.now = Some(segment);
                if step? == LogStep::Full {
                    return Ok(LogStep::Full);
                }
            }
            // A compressed file that was cut off or is no such file: what follows it is read all the same.
            (Err(error), _) if matches!(segment.source, LogInput::Compressed(_)) => {
                tracing::warn!(path = %self.location.path().display(), %error, "cannot read a part of the log");
                self.end_of_file(out)?;
            }
            (Err(error), _) => return Err(error),
            (Ok(_), None) => {}
        }
        Ok(LogStep::More)
    }

    /// Writes the rest of a log that is no longer being written, including a last line without an end.
    ///
    /// # Errors
    /// The log cannot be read, or `out` takes nothing more.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        // A rotated log is left at the second step.
        for _ in 0..3 {
            if self.step(out)? == LogStep::Full {
                return Ok(());
            }
            if !self.rotated {
                break;
            }
        }
        self.end_of_file(out)
    }

    /// Handles the end of the file that is being written. Returns true if more may be written to it.
    fn at_the_end(&mut self, segment: &mut LogSegment, out: &mut dyn Write) -> io::Result<bool> {
        let LogInput::Plain { file, at } = &mut segment.source else { return Ok(false) };
        let current = match self.directory.read(self.location.file()) {
            // The runtime has not created the new file yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            opened => opened?,
        };
        let own = identity(file)?;
        if identity(&current)? == own {
            if file.metadata()?.len() < *at {
                // The file was truncated.
                *at = 0;
                self.begun.clear();
                self.long_line = None;
            }
            return Ok(true);
        }
        // The runtime may have been in the middle of a line when it created the new file: read the old one once more.
        if !std::mem::replace(&mut self.rotated, true) {
            return Ok(true);
        }
        self.rotated = false;
        self.end_of_file(out)?;
        let newest = identity(&current)?;
        let mut rotated = open_rotated(&self.directory, self.location.file(), self.known.as_deref())?;
        // The new file may have been rotated as well in the meantime.
        rotated.retain(|(_, file)| identity(file).is_ok_and(|found| found != newest));
        // The first new one is the file that was read, now renamed and perhaps compressed.
        let of_own = rotated.iter().position(|(_, file)| identity(file).is_ok_and(|found| found == own)).unwrap_or(0);
        self.known = rotated.last().map(|(rotated, _)| rotated.when.clone()).or(self.known.take());
        for (rotated, file) in rotated.into_iter().skip(of_own + 1) {
            let source = match rotated.compressed {
                true => LogInput::Compressed(Box::new(MultiGzDecoder::new(file))),
                false => LogInput::Plain { file, at: 0 },
            };
            self.ahead.push_back(LogSegment { source, skip: 0, live: false });
        }
        self.ahead.push_back(LogSegment { source: LogInput::Plain { file: current, at: 0 }, skip: 0, live: true });
        Ok(false)
    }

    /// Processes bytes of a file.
    fn take(&mut self, skip: &mut u64, mut bytes: &[u8], out: &mut dyn Write) -> io::Result<LogStep> {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            let (part, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            let step = if self.begun.is_empty() {
                self.line(skip, part, LineEnd::Newline, out)?
            } else {
                let mut line = std::mem::take(&mut self.begun);
                line.extend_from_slice(part);
                let step = self.line(skip, &line, LineEnd::Newline, out)?;
                line.clear();
                self.begun = line;
                step
            };
            if step == LogStep::Full {
                return Ok(step);
            }
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LONGEST_LINE {
            let line = std::mem::take(&mut self.begun);
            return self.line(skip, &line, LineEnd::TooLong, out);
        }
        Ok(LogStep::UpToDate)
    }

    /// Handles the end of a file, which also ends an incomplete line.
    fn end_of_file(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let line = std::mem::take(&mut self.begun);
        if !line.is_empty() {
            self.line(&mut 0, &line, LineEnd::File, out)?;
        }
        self.long_line = None;
        Ok(())
    }

    /// Writes one line, or a part of a long one, if it is asked for and in CRI's format.
    fn line(&mut self, skip: &mut u64, bytes: &[u8], end: LineEnd, out: &mut dyn Write) -> io::Result<LogStep> {
        let (read, goes_on, text) = match self.long_line.take() {
            None => match LogLine::parse(bytes) {
                Some(line) => (Some(line), line.partial, line.text),
                None => {
                    self.leave_out();
                    self.long_line = (end == LineEnd::TooLong).then_some(LongLine::Foreign);
                    return Ok(LogStep::UpToDate);
                }
            },
            Some(LongLine::Text { partial }) => (None, partial, bytes),
            Some(LongLine::Foreign) => {
                self.long_line = (end == LineEnd::TooLong).then_some(LongLine::Foreign);
                return Ok(LogStep::UpToDate);
            }
        };
        self.long_line = (end == LineEnd::TooLong).then_some(LongLine::Text { partial: goes_on });
        if *skip > 0 {
            *skip -= u64::from(!goes_on && end != LineEnd::TooLong);
            return Ok(LogStep::UpToDate);
        }
        if let (Some(since), Some(time)) = (self.options.since, read.and_then(|line| line.timestamp())) {
            self.young = time >= since;
        }
        if self.options.since.is_some() && !self.young {
            return Ok(LogStep::UpToDate);
        }
        let time = read.filter(|_| self.options.timestamps && self.new_line).map(|line| line.shown_time() + " ");
        let end: &[u8] = if end == LineEnd::Newline && !goes_on { b"\n" } else { b"" };
        self.new_line = !end.is_empty();
        for part in [time.as_deref().unwrap_or_default().as_bytes(), text, end] {
            if self.write(part, out)? == LogStep::Full {
                return Ok(LogStep::Full);
            }
        }
        Ok(LogStep::UpToDate)
    }

    /// Logs once that lines are left out.
    fn leave_out(&mut self) {
        if !std::mem::replace(&mut self.left_out, true) {
            let path = self.location.path().display();
            tracing::warn!(%path, "leaving out lines of the log that are not in the format of a runtime's logs");
        }
    }

    fn write(&mut self, bytes: &[u8], out: &mut dyn Write) -> io::Result<LogStep> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let left = self.options.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.written));
        let fits = &bytes[..usize::try_from(length.min(left)).unwrap_or(bytes.len())];
        out.write_all(fits)?;
        self.written += length.min(left);
        Ok(if left <= length && self.options.limit_bytes.is_some() { LogStep::Full } else { LogStep::UpToDate })
    }
}

/// Opens the rotated logs of a log that are later than `after`, the oldest first.
fn open_rotated(directory: &OpenDirectory, log: &str, after: Option<&str>) -> io::Result<Vec<(RotatedLog, File)>> {
    let mut tries = 0;
    'again: loop {
        tries += 1;
        let mut opened = Vec::new();
        for rotated in rotated_and_leftovers(log, directory.names()?).rotated {
            if after.is_some_and(|after| rotated.when.as_str() <= after) {
                continue;
            }
            match directory.read(&rotated.name(log)) {
                Ok(file) => opened.push((rotated, file)),
                // The file was compressed or removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MOST_TRIES => continue 'again,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        return Ok(opened);
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
