//! The last message of a container that has ended: from the file that it had for that, or, where it failed and left none
//! and asked for it, from the end of its log; with the kubelet's limits. Follows no link below the directories of pods and of
//! logs. Reads files, and blocks. Called by [`super::observe`].

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use cri_api::ContainerStatus;

use crate::labels::POD_UID;
use crate::logs::{LogLine, LogLocation};
use crate::observed::ObservedContainer;
use crate::volumes::place::{CONTAINERS, OpenDirectory};

/// Bytes of a message from the file.
const FROM_FILE: u64 = 4096;
/// Bytes and lines of one from a log.
const FROM_LOG: usize = 2048;
const LINES: usize = 80;
/// Maximum number of bytes of a log that are read for a message: prefixes of lines are short, and a runtime splits long lines.
const READ_OF_LOG: u64 = 64 * 1024;

/// The places in which a termination message may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageSource {
    file: Option<MessageFile>,
    /// The log, which is read if the file is empty.
    log: Option<LogLocation>,
}

/// The file of a container's last message: `UID/containers/CONTAINER/FILE` in the directory of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MessageFile {
    path: PathBuf,
    pods: PathBuf,
    names: [String; 3],
    file: String,
}

impl MessageFile {
    /// Returns the file that is mounted from `path` if this program or a kubelet made it for the container. Another one is in a
    /// volume, and the writers of the volume decide which file that is.
    fn new(path: &Path, uid: &str, container: &str) -> Option<Self> {
        let mut names = path.iter().rev().map(OsStr::to_str);
        let file = names.next()??.to_owned();
        let [found_container, containers, found_uid] = [names.next()??, names.next()??, names.next()??];
        if (found_container, containers, found_uid) != (container, CONTAINERS, uid) {
            return None;
        }
        let names = [uid, CONTAINERS, container].map(str::to_owned);
        Some(Self { path: path.to_owned(), pods: path.ancestors().nth(4)?.to_owned(), names, file })
    }

    fn tail(&self) -> io::Result<Vec<u8>> {
        let mut directory = OpenDirectory::open(&self.pods)?;
        for name in &self.names {
            directory = directory.child(name)?;
        }
        tail(directory.read(&self.file)?, FROM_FILE)
    }
}

impl MessageSource {
    /// Returns the places in which the message of an ended container may be; `None` if there are none.
    pub(super) fn of(container: &ObservedContainer, status: &ContainerStatus) -> Option<Self> {
        let path = &container.info.termination_message_path;
        let uid = status.labels.get(POD_UID).map(String::as_str).unwrap_or_default();
        let mounts = status.mounts.iter().filter(|mount| !path.is_empty() && mount.container_path == *path);
        let file =
            mounts.filter_map(|mount| MessageFile::new(Path::new(&mount.host_path), uid, &container.info.name)).next();
        let asks = container.info.falls_back_to_logs && container.exit_code != 0;
        let log = LogLocation::of(status).filter(|_| asks);
        (file.is_some() || log.is_some()).then_some(Self { file, log })
    }

    /// Returns the message, which is empty if there is none.
    pub(super) fn read(&self) -> String {
        let said = match self.file.as_ref().map(|file| (&file.path, file.tail())) {
            Some((_, Ok(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
            Some((path, Err(error))) if error.kind() != io::ErrorKind::NotFound => {
                return format!("Error on reading termination log {}: {error}", path.display());
            }
            _ => String::new(),
        };
        match &self.log {
            Some(log) if said.is_empty() => {
                let file = log.open_directory().and_then(|directory| directory.read(log.file()));
                match file.and_then(|file| tail(file, READ_OF_LOG)) {
                    Ok(bytes) => last_of_log(&bytes, bytes.len() as u64 == READ_OF_LOG),
                    Err(error) => format!("Error on reading termination message from logs: {error}"),
                }
            }
            _ => said,
        }
    }
}

/// Reads the end of a file.
fn tail(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the text of the last lines of a log. `cut` is true if the first line may be incomplete.
fn last_of_log(bytes: &[u8], cut: bool) -> String {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').skip(usize::from(cut)).collect();
    lines.drain(..lines.len().saturating_sub(LINES));
    let mut text = Vec::new();
    for line in lines {
        let line = LogLine::parse(line.strip_suffix(b"\n").unwrap_or(line));
        let Some(line) = line else { continue };
        text.extend_from_slice(line.text);
        if !line.partial {
            text.push(b'\n');
        }
    }
    text.drain(..text.len().saturating_sub(FROM_LOG));
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use cri_api::Mount;

    use super::*;
    use crate::labels::{CONTAINER_NAME, ContainerInfo, POD_NAME, POD_NAMESPACE};

    const TIME: &str = "2026-01-01T00:00:00.000000000Z";

    /// A directory with pods and logs, and a container of the pod `shop/web` in it that has ended.
    struct Bench {
        top: tempfile::TempDir,
        status: ContainerStatus,
    }

    fn bench() -> Bench {
        let top = tempfile::tempdir().expect("a directory");
        for directory in ["pods/u/containers/main", "logs/shop_web_u/main", "secret"] {
            std::fs::create_dir_all(top.path().join(directory)).expect("made");
        }
        let labels = [(POD_NAMESPACE, "shop"), (POD_NAME, "web"), (POD_UID, "u"), (CONTAINER_NAME, "main")];
        let path = |path: &str| top.path().join(path).display().to_string();
        let status = ContainerStatus {
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            log_path: path("logs/shop_web_u/main/0.log"),
            mounts: vec![Mount {
                container_path: "/dev/termination-log".into(),
                host_path: path("pods/u/containers/main/0.message"),
                ..Mount::default()
            }],
            ..ContainerStatus::default()
        };
        Bench { top, status }
    }

    impl Bench {
        fn path(&self, path: &str) -> PathBuf {
            self.top.path().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::write(self.path(path), text).expect("written");
        }

        /// Puts a link in the place of a file or directory.
        fn link(&self, path: &str, to: &str) {
            let kept = self.path(path);
            std::fs::rename(&kept, self.path(&format!("{path}.kept"))).expect("renamed");
            std::os::unix::fs::symlink(self.path(to), &kept).expect("linked");
        }

        fn read(&self, exit_code: i32) -> Option<String> {
            let info = ContainerInfo {
                name: "main".into(),
                termination_message_path: "/dev/termination-log".into(),
                falls_back_to_logs: true,
                ..ContainerInfo::default()
            };
            let container = ObservedContainer { exit_code, info, ..ObservedContainer::default() };
            MessageSource::of(&container, &self.status).map(|source| source.read())
        }
    }

    #[test]
    fn the_message_file_is_preferred_to_the_log() {
        let mut bench = bench();
        let line = |n: usize| format!("{TIME} stderr F line {n}\n");
        bench.write("logs/shop_web_u/main/0.log", &(0..200).map(line).collect::<String>());
        assert_eq!(bench.read(0).as_deref(), Some(""));
        let from_log = bench.read(1).expect("a source");
        assert!(from_log.starts_with("line 120\n") && from_log.ends_with("line 199\n"), "{from_log}");
        bench.write("pods/u/containers/main/0.message", &"x".repeat(5000));
        assert_eq!(bench.read(1).map(|text| text.len()), Some(4096));
        bench.status.mounts.clear();
        bench.status.log_path.clear();
        assert_eq!(bench.read(1), None);
    }

    #[test]
    fn no_link_leads_to_a_message() {
        for path in ["pods/u/containers/main/0.message", "pods/u/containers/main", "pods/u/containers", "pods/u"] {
            let bench = bench();
            bench.write("pods/u/containers/main/0.message", "said");
            assert_eq!(bench.read(0).as_deref(), Some("said"));
            bench.link(path, &format!("{path}.kept"));
            let text = bench.read(0).expect("a source");
            assert!(text.starts_with("Error on reading termination log"), "{path}: {text}");
        }
        for path in ["logs/shop_web_u/main/0.log", "logs/shop_web_u/main", "logs/shop_web_u"] {
            let bench = bench();
            bench.write("logs/shop_web_u/main/0.log", &format!("{TIME} stdout F said\n"));
            assert_eq!(bench.read(1).as_deref(), Some("said\n"));
            bench.link(path, &format!("{path}.kept"));
            let text = bench.read(1).expect("a source");
            assert!(text.starts_with("Error on reading termination message from logs"), "{path}: {text}");
        }
    }

    #[test]
    fn a_volume_at_the_path_of_the_message_is_not_read() {
        let mut bench = bench();
        bench.write("secret/file", "swordfish");
        bench.write("pods/u/containers/main/0.message", "said");
        let secret = bench.path("secret/file").display().to_string();
        bench.status.mounts.insert(0, Mount { host_path: secret, ..bench.status.mounts[0].clone() });
        assert_eq!(bench.read(0).as_deref(), Some("said"));
        bench.status.mounts.pop();
        assert_eq!(bench.read(0), None);
    }

    #[test]
    fn lines_of_a_log_are_put_together() {
        let log = format!(
            "garbage\n{TIME} stdout P one \n{TIME} stdout F two\n{TIME} stderr F\n{TIME} other F no\nt stdout F no\n{TIME} stdout F last"
        );
        assert_eq!(last_of_log(log.as_bytes(), false), "one two\n\nlast\n");
        let long = format!("{TIME} stdout F {}\n{TIME} stdout F end\n", "y".repeat(9000));
        let text = last_of_log(long.as_bytes(), false);
        assert!(text.len() == 2048 && text.ends_with("y\nend\n"));
        assert_eq!(last_of_log(long.as_bytes(), true), "end\n");
    }
}
