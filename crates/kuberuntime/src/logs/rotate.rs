//! [`LogRotator`]: rotates logs of running containers when they are too large, as the kubelet does: the file gets
//! another name, the runtime is asked to open a new one, older files are compressed, the oldest removed. Touches logs of
//! sandboxes that this program made, below the directory of logs, and no others. Started once, by the binary.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri_api::{Container, ContainerFilter, ContainerState, Kind, RuntimeService};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use image_manager::WallClock;
use image_manager::gc::Turns;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::files::{COMPRESSED, RotatedLog, UNFINISHED, rotated_and_leftovers};
use crate::config::{container_log_path, pod_log_directory_name};
use crate::labels::{CONTAINERS, ContainerInfo, PodOwner};
use crate::volumes::place::OpenDirectory;

/// Options of the rotation.
#[derive(Clone)]
pub struct LogRotationOptions {
    /// Directory with one directory for each pod.
    pub pods: PathBuf,
    /// Size in bytes from which a log is rotated.
    pub max_size: u64,
    /// Maximum number of files of one log, with the current one: at least two.
    pub max_files: usize,
    /// Number of logs that are rotated at the same time.
    pub workers: usize,
    /// Time between two rounds.
    pub interval: Duration,
    /// The time of day, for the names of files.
    pub wall_clock: WallClock,
}

impl LogRotationOptions {
    /// Returns the kubelet's defaults.
    #[must_use]
    pub fn new(pods: PathBuf, wall_clock: WallClock) -> Self {
        let interval = Duration::from_secs(10);
        Self { pods, max_size: 10 << 20, max_files: 5, workers: 1, interval, wall_clock }
    }
}

/// Result of a round of rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotationReport {
    /// IDs of containers whose logs were rotated.
    pub rotated: Vec<String>,
    /// IDs of containers whose logs were missing, and were created again by the runtime.
    pub reopened: Vec<String>,
    /// Failures, one line each.
    pub errors: Vec<String>,
}

/// Rotates the logs of running containers, as the kubelet does (`containerLogMaxSize`, `containerLogMaxFiles`).
pub struct LogRotator {
    runtime: Arc<dyn RuntimeService>,
    options: LogRotationOptions,
}

/// The log of a container, and where it stands.
#[derive(Clone, Debug)]
struct ContainerLog {
    id: String,
    pods: PathBuf,
    /// Directory of the pod, directory of the container, file.
    names: [String; 3],
}

/// Action on one log.
enum RotationOutcome {
    Nothing,
    Rotated,
    Reopened,
}

impl LogRotator {
    /// Over this runtime.
    #[must_use]
    pub fn new(runtime: Arc<dyn RuntimeService>, options: LogRotationOptions) -> Self {
        Self { runtime, options }
    }

    /// Runs rounds until `stop`. A round that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut turns = Turns::new(self.options.interval, None, stop);
        while turns.next().await {
            let report = self.rotate_all().await;
            for id in &report.rotated {
                tracing::debug!(container = %id, "rotated a log");
            }
            for error in &report.errors {
                tracing::warn!(%error, "cannot rotate a log");
            }
        }
    }

    /// Looks at all logs once.
    pub async fn rotate_all(&self) -> RotationReport {
        let mut report = RotationReport::default();
        let logs = match self.logs().await {
            Ok(logs) => logs,
            // Callers that need the runtime report that it does not answer.
            Err(error) => {
                tracing::debug!(%error, "cannot list logs");
                return report;
            }
        };
        let looked = futures::stream::iter(logs)
            .map(|log| async move { (log.id.clone(), self.one(log).await) })
            .buffer_unordered(self.options.workers.max(1));
        let mut looked: Vec<(String, Result<RotationOutcome, String>)> = looked.collect().await;
        looked.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (id, done) in looked {
            match done {
                Ok(RotationOutcome::Nothing) => {}
                Ok(RotationOutcome::Rotated) => report.rotated.push(id),
                Ok(RotationOutcome::Reopened) => report.reopened.push(id),
                Err(error) => report.errors.push(format!("cannot rotate the log of container {id}: {error}")),
            }
        }
        report
    }

    /// Returns the logs of our running containers.
    async fn logs(&self) -> cri_api::Result<Vec<ContainerLog>> {
        let ours: BTreeSet<String> = self
            .runtime
            .list_pod_sandboxes(None)
            .await?
            .into_iter()
            .filter(|sandbox| sandbox.annotations.contains_key(CONTAINERS))
            .map(|sandbox| sandbox.id)
            .collect();
        let filter = ContainerFilter { state: Some(ContainerState::Running), ..ContainerFilter::default() };
        let containers = self.runtime.list_containers(Some(&filter)).await?;
        let ours = containers.iter().filter(|container| ours.contains(&container.pod_sandbox_id));
        Ok(ours.filter_map(|container| self.log(container)).collect())
    }

    /// Returns the log of a container, if its path follows our rules.
    fn log(&self, container: &Container) -> Option<ContainerLog> {
        let owner = PodOwner::from_labels(&container.labels)?;
        let info = ContainerInfo::read(&container.labels, &container.annotations);
        let path = container_log_path(&info.name, info.restart_count);
        let (directory, file) = path.split_once('/')?;
        let names = [pod_log_directory_name(&owner), directory.to_owned(), file.to_owned()];
        Some(ContainerLog { id: container.id.clone(), pods: self.options.pods.clone(), names })
    }

    async fn one(&self, log: ContainerLog) -> Result<RotationOutcome, String> {
        let fits = |size: u64| size < self.options.max_size.max(1);
        if blocking(&log, ContainerLog::size).await?.is_some_and(fits) {
            return Ok(RotationOutcome::Nothing);
        }
        // The runtime has the last word on which file it is, and on whether it is written to.
        let status = match self.runtime.container_status(&log.id, false).await {
            Ok(status) if status.state == ContainerState::Running => status,
            Ok(_) => return Ok(RotationOutcome::Nothing),
            Err(error) if error.kind() == Kind::NotFound => return Ok(RotationOutcome::Nothing),
            Err(error) => return Err(error.to_string()),
        };
        let Some(log) = log.at(Path::new(&status.log_path)) else { return Ok(RotationOutcome::Nothing) };
        match blocking(&log, ContainerLog::size).await? {
            // A process was killed between renaming the log and asking the runtime to reopen it.
            None => {
                self.runtime.reopen_container_log(&log.id).await.map_err(|error| error.to_string())?;
                Ok(RotationOutcome::Reopened)
            }
            Some(size) if fits(size) => Ok(RotationOutcome::Nothing),
            Some(_) => self.rotate(&log).await.map(|()| RotationOutcome::Rotated),
        }
    }

    async fn rotate(&self, log: &ContainerLog) -> Result<(), String> {
        let (keep, now) = (self.options.max_files.max(2) - 2, (self.options.wall_clock)());
        let rotated = blocking(log, move |log| log.rename_log(keep, now)).await?;
        let Err(error) = self.runtime.reopen_container_log(&log.id).await else { return Ok(()) };
        // The runtime keeps writing to its open file: the file gets its name back, and the next round tries again.
        let back = blocking(log, move |log| log.undo_rotation(&rotated)).await;
        Err(match back {
            Ok(()) => error.to_string(),
            Err(back) => format!("{error}; and it keeps the name of one that was rotated: {back}"),
        })
    }
}

/// Runs an operation on a log on a thread that may block.
async fn blocking<T: Send + 'static>(
    log: &ContainerLog,
    work: impl FnOnce(&ContainerLog) -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let log = log.clone();
    let done = base::blocking(move || work(&log)).await;
    done.unwrap_or_else(|| Err(io::Error::other("the program ends"))).map_err(|error| error.to_string())
}

impl ContainerLog {
    /// Returns the log at another path, or `None` if that is not below the directory of logs.
    fn at(mut self, path: &Path) -> Option<Self> {
        let mut names = path.strip_prefix(&self.pods).ok()?.components();
        for name in &mut self.names {
            let Component::Normal(found) = names.next()? else { return None };
            name.clone_from(&found.to_str()?.to_owned());
        }
        names.next().is_none().then_some(self)
    }

    fn file(&self) -> &str {
        &self.names[2]
    }

    fn directory(&self) -> io::Result<OpenDirectory> {
        OpenDirectory::open(&self.pods)?.child(&self.names[0])?.child(&self.names[1])
    }

    /// Returns the size in bytes, or `None` if the log is absent.
    fn size(&self) -> io::Result<Option<u64>> {
        let found = self.directory().and_then(|directory| directory.stat(self.file()));
        match found {
            Ok((kind, bytes)) if kind.is_file() => Ok(Some(bytes)),
            Ok(_) => Err(io::Error::other("it is no ordinary file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes old logs, renames the log and returns the new name.
    fn rename_log(&self, keep: usize, now: Timestamp) -> io::Result<String> {
        let directory = self.directory()?;
        let newest = self.prune_rotated(&directory, keep)?;
        let mut when = now;
        // Names stay in order even if the clock was set back.
        for _ in 0..4 {
            let name = when.strftime("%Y%m%d-%H%M%S").to_string();
            if newest.as_ref().is_none_or(|newest| *newest < name) {
                let rotated = RotatedLog { when: name, compressed: false }.name(self.file());
                match directory.rename_new(self.file(), &rotated) {
                    Ok(()) => return Ok(rotated),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
            } else if let Some(after) = newest.as_ref().and_then(|newest| second_after(newest)) {
                when = after;
                continue;
            }
            when = when.checked_add(jiff::SignedDuration::from_secs(1)).map_err(io::Error::other)?;
        }
        Err(io::Error::other("there is no name left for it"))
    }

    /// Removes leftovers of killed programs and the oldest rotated logs, and compresses the `keep` that remain. Returns the time of the
    /// newest rotation. A full disk does not prevent rotation: a log that cannot be compressed stays plain.
    fn prune_rotated(&self, directory: &OpenDirectory, keep: usize) -> io::Result<Option<String>> {
        let found = rotated_and_leftovers(self.file(), directory.names()?);
        for name in &found.left {
            directory.unlink(name)?;
        }
        let (old, kept) = found.rotated.split_at(found.rotated.len().saturating_sub(keep));
        for rotated in old {
            directory.unlink(&rotated.name(self.file()))?;
        }
        for rotated in kept.iter().filter(|rotated| !rotated.compressed) {
            let name = rotated.name(self.file());
            if let Err(error) = compress(directory, &name) {
                tracing::warn!(path = %directory.path().join(&name).display(), %error, "cannot compress a rotated log");
                directory.unlink(&unfinished(&name))?;
            }
        }
        Ok(found.rotated.last().map(|rotated| rotated.when.clone()))
    }

    /// Restores the name of the log, unless a new log has been created meanwhile.
    fn undo_rotation(&self, rotated: &str) -> io::Result<()> {
        match self.directory()?.rename_new(rotated, self.file()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }
}

fn second_after(when: &str) -> Option<Timestamp> {
    let read = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", when).ok()?;
    let read = read.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    read.checked_add(jiff::SignedDuration::from_secs(1)).ok()
}

fn unfinished(name: &str) -> String {
    format!("{name}{COMPRESSED}{UNFINISHED}")
}

/// Compresses a file; the plain file is removed when the compressed one is on disk.
fn compress(directory: &OpenDirectory, name: &str) -> io::Result<()> {
    let mut plain = directory.read(name)?;
    let mode = std::os::unix::fs::MetadataExt::mode(&plain.metadata()?) & 0o777;
    let mut compressed = GzEncoder::new(directory.new_file(&unfinished(name), mode)?, Compression::default());
    io::copy(&mut plain, &mut compressed)?;
    compressed.finish()?.sync_data()?;
    directory.rename_over(&unfinished(name), &format!("{name}{COMPRESSED}"))?;
    directory.unlink(name)
}

#[cfg(test)]
#[path = "rotate_tests.rs"]
mod tests;
