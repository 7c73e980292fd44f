//! [`ContainerdStore`]: the store of a containerd behind CRI, into which images are put; [`Finder`] detects it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use base::layer_mount::LayerRoots;
use base::lock::Mutex;
use cri_api::engine::runtime_store::{
    DamagedLayer, Deposit, FindRuntimeStore, HandlerStore, LayerUsage, NamedImage, RuntimeRecord, RuntimeStore,
    StackedLayer, StoreDetection, UnfinishedDeposit, UnpackedForm,
};
use cri_api::{FsInfo, RuntimeService};
use futures::future::{try_join, try_join_all};
use jiff::{SignedDuration, Timestamp};
use oci::Digest;
use tokio::net::UnixStream;

use crate::decodable::undecodable;
use crate::layout::{SnapshotLayout, layout_of};
use crate::mounted_layers::{MountedLayers, SNAPSHOTS, TREE};
use crate::{CRI_NAMESPACE, Client, ContainerdDeposit, ErrorKind, Labels, Result, SnapshotKind, Snapshotter};
use crate::{handlers, labels};

/// Time after which containerd may collect the content of a lease by itself. Longer than any pull, as a lease cannot be prolonged.
const LEASE_TIME: SignedDuration = SignedDuration::from_hours(24);
/// The same for the lease of a reader.
const READ_TIME: SignedDuration = SignedDuration::from_hours(1);
/// Name of the staging root in the directory of a snapshotter. Below `snapshots/`, containerd would delete it.
pub const STAGING_ROOT: &str = "imagelet";

/// Name of containerd's default snapshotter.
const OVERLAYFS: &str = "overlayfs";

/// Form of new layers in containerd's snapshotter overlayfs.
#[derive(Clone)]
pub enum LayerForm {
    /// EROFS files, if nothing is against it. The function returns the reason against EROFS files that are mounted by the host, for the
    /// directory of the snapshotter. It blocks.
    Auto(ReasonAgainstFiles),
    /// EROFS files.
    Erofs,
    /// Directories.
    Dir,
}

/// How the layers of images become snapshots.
#[derive(Clone)]
pub struct LayerSettings {
    /// Form of new layers.
    pub form: LayerForm,
    /// Where directories are recorded whose layers must be mounted after a start of the machine.
    pub roots: LayerRoots,
}

/// See [`LayerForm::Auto`].
pub type ReasonAgainstFiles = Arc<dyn Fn(&Path) -> Option<String> + Send + Sync>;

/// Finds the store of the containerd at a socket.
#[derive(Clone)]
pub struct Finder {
    client: Client,
    settings: LayerSettings,
    /// Guards the layers of the snapshotter that was found last: what is known of them outlives a detection.
    mounted: Arc<Mutex<Option<(PathBuf, MountedLayers)>>>,
    runtime: Arc<dyn RuntimeService>,
}

/// The snapshotter of images, or the reason why none can be filled.
type FoundSnapshotter = std::result::Result<Snapshotter, String>;

impl Finder {
    /// Creates a finder for the containerd that serves CRI, and its own API, at this socket. `runtime` is its runtime service, whose
    /// status names the snapshotters of runtime handlers.
    ///
    /// # Errors
    /// The socket cannot be named.
    pub fn new(socket: &Path, runtime: Arc<dyn RuntimeService>, settings: LayerSettings) -> Result<Self> {
        Ok(Self { client: Client::new(socket, CRI_NAMESPACE)?, settings, mounted: Arc::default(), runtime })
    }

    fn mounted(&self, snapshotter: &str, root: &Path) -> MountedLayers {
        let mut last = self.mounted.lock();
        match &*last {
            Some((of, mounted)) if of == root => mounted.clone(),
            _ => last.insert((root.to_owned(), MountedLayers::new(snapshotter, root))).1.clone(),
        }
    }

    /// Returns why new layers in the snapshotter overlayfs, which has its files in `root`, cannot be EROFS files.
    ///
    /// # Errors
    /// There is no reliable answer.
    async fn why_no_files(&self, root: &Path) -> cri_api::Result<Option<String>> {
        let against: ReasonAgainstFiles = match &self.settings.form {
            LayerForm::Dir => return Ok(Some("runtimeLayers is dir".to_owned())),
            LayerForm::Erofs => Arc::new(|_: &Path| None),
            LayerForm::Auto(against) => Arc::clone(against),
        };
        let peer = UnixStream::connect(self.client.socket()).await.and_then(|socket| socket.peer_cred());
        let runtime = peer.map_err(|error| of_system("find the process behind", self.client.socket(), &error))?.pid();
        let asked = root.to_owned();
        let answer = tokio::task::spawn_blocking(move || match mounts_unseen(runtime, &asked)? {
            None => Ok(against(&asked)),
            unseen => Ok(unseen),
        });
        let answer = answer.await.map_err(io::Error::other).flatten();
        answer.map_err(|error| of_system("find out who sees mounts in", root, &error))
    }

    /// Finds the snapshotter whose directory is that of the images of CRI.
    async fn snapshotter(&self, images: &FsInfo) -> cri_api::Result<FoundSnapshotter> {
        let mountpoint = images.image_filesystems.first().map(|fs| fs.mountpoint.as_str());
        let Some(mountpoint) = mountpoint else {
            return Ok(Err("the runtime names no directory of its images".to_owned()));
        };
        let found = match self.client.snapshotters().await {
            Ok(found) => found,
            Err(error) => return not_containerd(error).map(Err),
        };
        // Before 1.7, containerd does not report the directory of a snapshotter; its path ends with its name.
        let is_it = |snapshotter: &Snapshotter| match &snapshotter.root {
            Some(root) => root == Path::new(mountpoint),
            None => mountpoint.ends_with(&format!("/io.containerd.snapshotter.v1.{}", snapshotter.name)),
        };
        let found = found.into_iter().find(is_it);
        Ok(match found {
            Some(snapshotter) => Ok(Snapshotter { root: Some(PathBuf::from(mountpoint)), ..snapshotter }),
            None => Err(format!("no snapshotter of containerd has its files in {mountpoint}")),
        })
    }
}

/// Returns why the process cannot see mounts that are made below `root` here, or `None` if it can.
///
/// # Errors
/// The mounts cannot be read.
fn mounts_unseen(process: Option<i32>, root: &Path) -> io::Result<Option<String>> {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let process = process.filter(|process| *process > 0).map(|process| process.to_string());
    if let Some(process) = process
        && let (Ok(own), Ok(other)) = (namespace("self"), namespace(&process))
        && own == other
    {
        return Ok(None);
    }
    let unseen = "mounts of this process are not seen by containerd: it needs bidirectional mount propagation";
    Ok((!base::layer_mount::is_shared(root)?).then(|| unseen.to_owned()))
}

/// Returns the reason if a failed introspection call proves that the server is not containerd: only a server without the call is no
/// containerd.
fn not_containerd(error: crate::Error) -> cri_api::Result<String> {
    match error.kind() {
        ErrorKind::Unimplemented => Ok("the runtime is not containerd".to_owned()),
        _ => Err(cri_api::Error::from(error)),
    }
}

/// Returns why the files of a snapshotter cannot be reached from this process, or `None` if they can.
///
/// # Errors
/// The check failed.
fn unreachable(root: &Path, found: io::Result<bool>) -> cri_api::Result<Option<String>> {
    match found {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(format!("{} has no snapshots", root.display()))),
        // The path is that of containerd. If this process is in a container, the path may be another directory or missing.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Some(format!("{}: {error}", root.display())))
        }
        Err(error) => {
            let message = format!("find the snapshots in {}: {error}", root.display());
            Err(cri_api::Error::new(cri_api::Kind::Internal, message))
        }
    }
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finder").field("client", &self.client).finish_non_exhaustive()
    }
}

#[async_trait]
impl FindRuntimeStore for Finder {
    async fn find(&self, images: &FsInfo) -> cri_api::Result<StoreDetection> {
        let unsuited = |reason: String| Ok(StoreDetection::Unsuited(reason));
        let snapshotter = match self.snapshotter(images).await? {
            Ok(snapshotter) => snapshotter,
            Err(reason) => return unsuited(reason),
        };
        if layout_of(&snapshotter.name, false).is_none() {
            return unsuited(format!("containerd's snapshotter is {}", snapshotter.name));
        }
        if let Some(error) = &snapshotter.error {
            return unsuited(format!("containerd's snapshotter {} does not work: {error}", snapshotter.name));
        }
        let root = snapshotter.root.clone().unwrap_or_default();
        let found = tokio::task::spawn_blocking({
            let root = root.clone();
            move || std::fs::metadata(root.join(SNAPSHOTS)).map(|found| found.is_dir())
        });
        if let Some(reason) = unreachable(&root, found.await.unwrap_or_else(|error| Err(io::Error::other(error))))? {
            return unsuited(reason);
        }
        let why = if snapshotter.name == OVERLAYFS { self.why_no_files(&root).await? } else { None };
        if let (Some(why), LayerForm::Erofs) = (&why, &self.settings.form) {
            return unsuited(format!(
                "runtimeLayers is erofs, and EROFS files cannot be the layers of {}: {why}",
                root.display()
            ));
        }
        let Some(layout) = layout_of(&snapshotter.name, why.is_none()) else {
            return unsuited(format!("containerd's snapshotter is {}", snapshotter.name));
        };
        let store = ContainerdStore {
            why,
            roots: self.settings.roots.clone(),
            mounted: self.mounted(&snapshotter.name, &root),
            client: self.client.clone(),
            runtime: Arc::clone(&self.runtime),
            staging_root: root.join(STAGING_ROOT),
            snapshotter,
            layout,
            next: AtomicU64::new(0),
        };
        Ok(StoreDetection::Fillable(Arc::new(store)))
    }
}

/// Store of a containerd behind CRI.
pub struct ContainerdStore {
    client: Client,
    runtime: Arc<dyn RuntimeService>,
    snapshotter: Snapshotter,
    layout: &'static dyn SnapshotLayout,
    /// Why new layers are directories, where they could be EROFS files.
    why: Option<String>,
    mounted: MountedLayers,
    roots: LayerRoots,
    staging_root: PathBuf,
    /// Number of the next lease.
    next: AtomicU64,
}

impl std::fmt::Debug for ContainerdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerdStore").field("snapshotter", &self.snapshotter).finish_non_exhaustive()
    }
}

impl ContainerdStore {
    /// Returns the value of the label on leases of this staging slot.
    fn slot_label(&self, number: u32) -> String {
        format!("{}/{number}", self.snapshotter.name)
    }

    async fn lease(&self, id: &str, staging_slot: u32, manifest: &Digest) -> Result<ContainerdDeposit> {
        let now = now();
        let expires = now.saturating_add(LEASE_TIME).unwrap_or(now).to_string();
        let labels = Labels::from([
            (labels::STAGING_SLOT.to_owned(), self.slot_label(staging_slot)),
            (labels::MANIFEST.to_owned(), manifest.to_string()),
            (labels::BEGUN.to_owned(), now.as_second().to_string()),
        ]);
        let lease = self.client.create_lease(id, &expires, labels).await?;
        let deposit = ContainerdDeposit::new(lease, self.snapshotter.clone(), self.layout);
        Ok(deposit.with_layers(self.mounted.clone()))
    }
}

#[async_trait]
impl RuntimeStore for ContainerdStore {
    fn name(&self) -> String {
        format!("containerd's snapshotter {}", self.snapshotter.name)
    }

    fn staging_root(&self) -> &Path {
        &self.staging_root
    }

    fn form(&self) -> UnpackedForm {
        self.layout.form()
    }

    fn layers(&self) -> String {
        match (self.layout.form(), &self.why) {
            (UnpackedForm::Directory, Some(why)) => format!("directories: {why}"),
            (UnpackedForm::Directory, None) => "directories".to_owned(),
            (UnpackedForm::ErofsFile | UnpackedForm::NestedErofsFile, _) => "EROFS files".to_owned(),
        }
    }

    fn new_id(&self) -> String {
        let (number, pid) = (self.next.fetch_add(1, Ordering::Relaxed), std::process::id());
        format!("imagelet-{}-{pid}-{number}", now().as_nanosecond())
    }

    async fn begin(&self, id: &str, staging_slot: u32, manifest: &Digest) -> cri_api::Result<Arc<dyn Deposit>> {
        if self.layout.form() == UnpackedForm::NestedErofsFile {
            let (roots, snapshots) = (self.roots.clone(), self.mounted.snapshots().to_owned());
            let recorded = tokio::task::spawn_blocking(move || roots.record(&snapshots, TREE)).await;
            recorded
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .map_err(|error| of_system("record the layers in", self.mounted.snapshots(), &error))?;
        }
        Ok(Arc::new(self.lease(id, staging_slot, manifest).await?))
    }

    async fn hold_layers(&self, chain_id: &Digest) -> cri_api::Result<Option<Arc<dyn Deposit>>> {
        let now = now();
        let expires = now.saturating_add(READ_TIME).unwrap_or(now).to_string();
        let lease = self.client.create_lease(&self.new_id(), &expires, Labels::new()).await?;
        let deposit = ContainerdDeposit::new(lease, self.snapshotter.clone(), self.layout);
        let deposit = deposit.with_layers(self.mounted.clone());
        match deposit.hold(chain_id).await {
            Ok(true) => Ok(Some(Arc::new(deposit))),
            held => {
                let ended = deposit.end().await;
                held.and_then(|_| ended.map(|()| None))
            }
        }
    }

    async fn has_layers(&self, chain_id: &str) -> cri_api::Result<bool> {
        let found = self.client.snapshot(&self.snapshotter.name, chain_id).await?;
        Ok(found.is_some_and(|found| found.kind == SnapshotKind::Committed)
            && self.mounted.are_ready(&self.client, chain_id).await?)
    }

    async fn removal(&self) -> cri_api::Result<()> {
        Ok(self.client.removal().await?)
    }

    async fn sweep(&self) -> cri_api::Result<()> {
        let failed = |error| of_system("unmount the layers of removed images in", self.mounted.snapshots(), &error);
        self.mounted.sweep().await.map_err(failed)
    }

    async fn damaged_layers(&self, repair: bool) -> cri_api::Result<Vec<DamagedLayer>> {
        let failed = |error| of_system("check the layers in", self.mounted.snapshots(), &error);
        self.mounted.damaged_files(repair).await.map_err(failed)
    }

    async fn file_usage(&self) -> cri_api::Result<LayerUsage> {
        Ok(self.mounted.usage(&self.client).await?)
    }

    async fn record(&self, name: &str) -> cri_api::Result<Option<NamedImage>> {
        let found = self.client.image(name).await?;
        Ok(found.map(|record| NamedImage { evidence: labels::evidence(&record.labels), target: record.target }))
    }

    async fn handler_store(&self, handler: &str) -> cri_api::Result<HandlerStore> {
        let status = self.runtime.status(true).await?;
        handlers::handler_store(status.info.get("config").map(String::as_str), handler, &self.snapshotter.name)
    }

    async fn origin(&self, layer: StackedLayer<'_>, blob: &Digest) -> cri_api::Result<Option<String>> {
        let snapshot = self.client.snapshot(&self.snapshotter.name, &layer.chain_id.to_string()).await?;
        Ok(snapshot.and_then(|snapshot| labels::origin(&snapshot.labels, blob)))
    }

    async fn snapshots(&self) -> cri_api::Result<BTreeMap<String, String>> {
        let all = self.client.committed_snapshots(&self.snapshotter.name).await?;
        Ok(all.into_iter().map(|snapshot| (snapshot.name, snapshot.parent)).collect())
    }

    async fn snapshot_bytes(&self, name: &str) -> cri_api::Result<u64> {
        // containerd's own figure is of the moment of the commit: nothing, or the directory that the file has replaced.
        match self.mounted.bytes(&self.client, name).await? {
            Some(bytes) => Ok(bytes),
            None => Ok(self.client.snapshot_usage(&self.snapshotter.name, name).await?.bytes),
        }
    }

    async fn diff_ids(&self, blobs: &[Digest]) -> cri_api::Result<BTreeMap<Digest, Digest>> {
        let unpacked = async {
            let values: Vec<String> = blobs.iter().map(ToString::to_string).collect();
            let found = self.client.snapshots_with_labels(&self.snapshotter.name, labels::BLOB, &values).await?;
            Ok(found.iter().filter_map(|snapshot| labels::blob_of(&snapshot.labels)).collect::<Vec<_>>())
        };
        let by_the_runtime = try_join_all(blobs.iter().map(async |blob| {
            let labels = self.client.blob_labels(blob).await?;
            Ok::<_, crate::Error>(labels.and_then(|labels| Some((blob.clone(), labels::uncompressed(&labels)?))))
        }));
        let (ours, theirs) = try_join(unpacked, by_the_runtime).await?;
        Ok(theirs.into_iter().flatten().chain(ours).collect())
    }

    async fn has_blob(&self, blob: &Digest) -> cri_api::Result<bool> {
        Ok(self.client.is_readable(blob).await?)
    }

    async fn read_blob(&self, blob: &Digest, limit: usize) -> cri_api::Result<Option<Vec<u8>>> {
        Ok(self.client.read_blob(blob, limit).await?)
    }

    fn undecodable(&self, config: &[u8]) -> Option<String> {
        undecodable(config)
    }

    async fn records(&self) -> cri_api::Result<Vec<RuntimeRecord>> {
        let (key, value) = labels::MANAGED;
        let found = self.client.images_with_label(key, value).await?;
        let of = |record: crate::ImageRecord| RuntimeRecord {
            name: record.name,
            target: record.target,
            created_at: record.created_at,
            updated_at: record.updated_at,
        };
        Ok(found.into_iter().map(of).collect())
    }

    async fn remove_record(&self, record: &RuntimeRecord) -> cri_api::Result<()> {
        if self.client.image(&record.name).await?.is_some_and(|found| found.target == record.target) {
            self.client.delete_image(&record.name, false).await?;
        }
        Ok(())
    }

    async fn unfinished(&self, staging_slot: u32) -> cri_api::Result<Vec<UnfinishedDeposit>> {
        let leases = self.client.leases_with_label(labels::STAGING_SLOT, &self.slot_label(staging_slot)).await?;
        let label = |labels: &Labels, key: &str| labels.get(key).cloned();
        let of = |lease: crate::ExistingLease| UnfinishedDeposit {
            manifest: label(&lease.labels, labels::MANIFEST).and_then(|text| text.parse().ok()),
            begun_at: label(&lease.labels, labels::BEGUN).and_then(|text| text.parse().ok()).unwrap_or(0),
            id: lease.id,
        };
        Ok(leases.into_iter().map(of).collect())
    }

    async fn give_up(&self, id: &str) -> cri_api::Result<()> {
        // Without waiting, containerd collects the content only after a hundred other changes.
        Ok(self.client.lease(id)?.delete(true).await?)
    }
}

/// Returns the error of a system call.
fn of_system(operation: &str, path: &Path, error: &io::Error) -> cri_api::Error {
    cri_api::Error::new(cri_api::Kind::Internal, format!("{operation} {}: {error}", path.display()))
}

/// Returns the time of the wall clock, with which containerd compares the end of a lease.
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use cri_api::{Kind, Reason};
    use tonic::{Code, Status};

    use super::*;

    /// Every status that a call may end with, but success.
    const FAILURES: [Code; 16] = [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    #[test]
    fn failed_introspection_does_not_decide_about_the_store() {
        for code in FAILURES {
            let error = crate::Error::of_status("Plugins", "x", &Status::new(code, "it fails"));
            match (code, not_containerd(error)) {
                (Code::Unimplemented, answer) => assert_eq!(answer.as_deref(), Ok("the runtime is not containerd")),
                (_, Ok(answer)) => panic!("{code:?} is taken for the answer {answer:?}"),
                (Code::Unavailable, Err(error)) => assert_eq!(error.reason(), Some(Reason::Unreachable)),
                (_, Err(error)) => assert!(error.message().contains("it fails"), "{code:?}: {error}"),
            }
        }
    }

    #[test]
    fn unreadable_directory_does_not_decide_about_the_store() {
        let root = Path::new("/r");
        assert_eq!(unreachable(root, Ok(true)), Ok(None));
        for answer in [Ok(false), Err(io::ErrorKind::NotFound.into()), Err(io::ErrorKind::NotADirectory.into())] {
            assert!(unreachable(root, answer).is_ok_and(|reason| reason.is_some()));
        }
        // EIO, EMFILE, EACCES
        for number in [5, 24, 13] {
            let error = unreachable(root, Err(io::Error::from_raw_os_error(number))).expect_err("it may be there");
            assert_eq!(error.kind(), Kind::Internal);
        }
    }
}
