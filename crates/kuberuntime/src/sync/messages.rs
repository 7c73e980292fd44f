//! The last message of a container that has ended: from the file that it had for that, or, where it failed and left none
//! and asked for it, from the end of its log; with the kubelet's limits. Reads files, and blocks. Called by
//! [`super::observe`].

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use cri_api::Mount;
use rustix::fs::{Mode, OFlags};

use crate::observed::ObservedContainer;

/// Bytes of a message from the file.
const FROM_FILE: u64 = 4096;
/// Bytes and lines of one from a log.
const FROM_LOG: usize = 2048;
const LINES: usize = 80;
/// So much of a log is read for them: what stands before the text of a line is short, and a runtime cuts lines.
const READ_OF_LOG: u64 = 64 * 1024;

/// Where a message may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageSource {
    file: Option<PathBuf>,
    /// Asked where the file says nothing.
    log: Option<PathBuf>,
}

impl MessageSource {
    /// Where the message of a container may be that has ended; `None`: nowhere.
    pub(super) fn of(container: &ObservedContainer, mounts: &[Mount]) -> Option<Self> {
        let path = &container.info.termination_message_path;
        let mount = mounts.iter().find(|mount| !path.is_empty() && mount.container_path == *path);
        let file = mount.filter(|mount| !mount.host_path.is_empty()).map(|mount| PathBuf::from(&mount.host_path));
        let asks = container.info.falls_back_to_logs && container.exit_code != 0 && !container.log_path.is_empty();
        let log = asks.then(|| PathBuf::from(&container.log_path));
        (file.is_some() || log.is_some()).then_some(Self { file, log })
    }

    /// The message; empty where there is none.
    pub(super) fn read(&self) -> String {
        let said = match self.file.as_deref().map(|path| (path, tail(path, FROM_FILE))) {
            Some((_, Ok(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
            Some((path, Err(error))) if error.kind() != io::ErrorKind::NotFound => {
                return format!("Error on reading termination log {}: {error}", path.display());
            }
            _ => String::new(),
        };
        match &self.log {
            Some(log) if said.is_empty() => match tail(log, READ_OF_LOG) {
                Ok(bytes) => last_of_log(&bytes, bytes.len() as u64 == READ_OF_LOG),
                Err(error) => format!("Error on reading termination message from logs: {error}"),
            },
            _ => said,
        }
    }
}

/// The end of a file. No link at the end of the path is followed, and nothing else than a file is read.
fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of the last lines of a log. `cut`: the first one may have no beginning.
fn last_of_log(bytes: &[u8], cut: bool) -> String {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').skip(usize::from(cut)).collect();
    lines.drain(..lines.len().saturating_sub(LINES));
    let mut text = lines.into_iter().filter_map(text_of).fold(Vec::new(), |mut text, line| {
        text.extend_from_slice(line.0);
        if line.1 {
            text.push(b'\n');
        }
        text
    });
    text.drain(..text.len().saturating_sub(FROM_LOG));
    String::from_utf8_lossy(&text).into_owned()
}

/// Text of a line of CRI's log format (`TIME STREAM TAGS TEXT`), and whether the line ends there; `None` for a line of
/// another form.
fn text_of(line: &[u8]) -> Option<(&[u8], bool)> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (_time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    matches!(stream, b"stdout" | b"stderr").then(|| (parts.next().unwrap_or_default(), !partial))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::ContainerInfo;

    fn ended(exit_code: i32, log: &Path) -> ObservedContainer {
        let info = ContainerInfo {
            termination_message_path: "/dev/termination-log".into(),
            falls_back_to_logs: true,
            ..ContainerInfo::default()
        };
        ObservedContainer { exit_code, log_path: log.display().to_string(), info, ..ObservedContainer::default() }
    }

    #[test]
    fn the_file_goes_before_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, log) = (directory.path().join("message"), directory.path().join("0.log"));
        let mounts = [Mount {
            container_path: "/dev/termination-log".into(),
            host_path: file.display().to_string(),
            ..Mount::default()
        }];
        let read = |code| MessageSource::of(&ended(code, &log), &mounts).map(|source| source.read());
        let line = |n: usize| format!("2026-01-01T00:00:00.000000000Z stderr F line {n}\n");
        std::fs::write(&log, (0..200).map(line).collect::<String>()).expect("written");
        assert_eq!(read(0).as_deref(), Some(""));
        let from_log = read(1).expect("a source");
        assert!(from_log.starts_with("line 120\n") && from_log.ends_with("line 199\n"), "{from_log}");
        std::fs::write(&file, "x".repeat(5000)).expect("written");
        assert_eq!(read(1).map(|text| text.len()), Some(4096));
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", &file).expect("linked");
        assert!(read(1).is_some_and(|text| text.starts_with("Error on reading termination log")));
        assert_eq!(MessageSource::of(&ended(0, &log), &[]), None);
    }

    #[test]
    fn lines_of_a_log_are_put_together() {
        let log = b"garbage\nt stdout P one \nt stdout F two\nt stderr F\nt other F no\nt stdout F last";
        assert_eq!(last_of_log(log, false), "one two\n\nlast\n");
        let long = format!("t stdout F {}\nt stdout F end\n", "y".repeat(9000));
        let text = last_of_log(long.as_bytes(), false);
        assert!(text.len() == 2048 && text.ends_with("y\nend\n"));
        assert_eq!(last_of_log(long.as_bytes(), true), "end\n");
    }
}
