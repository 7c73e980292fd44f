//! [`ContainerdStore`]: the store of a containerd behind CRI, as far as images are put into it; [`Finder`], which finds it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use cri_api::FsInfo;
use engine_api::LayerShape;
use engine_api::runtime_store::{
    Deposit, FindRuntimeStore, RuntimeRecord, RuntimeStore, StackedLayer, UnfinishedDeposit, Unsuited,
};
use futures::future::{try_join, try_join_all};
use jiff::{SignedDuration, Timestamp};
use oci::Digest;

use crate::decodable::undecodable;
use crate::labels;
use crate::{CRI_NAMESPACE, Client, ContainerdDeposit, ErrorKind, Labels, Result, SnapshotKind, Snapshotter};

/// Time after which containerd may collect what a lease of ours holds by itself. A lease cannot be prolonged: longer than any pull.
const LEASE_TIME: SignedDuration = SignedDuration::from_hours(24);
/// Our directory in that of a snapshotter. Below `snapshots/`, containerd would delete it.
const WORKSHOP: &str = "imagelet";

/// Finds the store of the containerd at a socket.
#[derive(Clone, Debug)]
pub struct Finder {
    client: Client,
}

impl Finder {
    /// For the containerd that answers CRI at this socket: it answers its own API there as well.
    ///
    /// # Errors
    /// The socket cannot be named.
    pub fn new(socket: &Path) -> Result<Self> {
        Ok(Self { client: Client::new(socket, CRI_NAMESPACE)? })
    }

    async fn snapshotter(&self, images: &FsInfo) -> std::result::Result<Snapshotter, Unsuited> {
        let mountpoint = images.image_filesystems.first().map(|fs| fs.mountpoint.as_str());
        let mountpoint = mountpoint.ok_or_else(|| unsuited("the runtime names no directory of its images"))?;
        let found = self.client.snapshotters().await.map_err(|error| match error.kind() {
            ErrorKind::Unimplemented => unsuited("the runtime is not containerd"),
            ErrorKind::Unavailable | ErrorKind::TimedOut => Unsuited { reason: error.to_string(), is_temporary: true },
            _ => unsuited(error.to_string()),
        })?;
        // Before 1.7, containerd does not say where a snapshotter is; its directory ends with its name.
        let is_it = |snapshotter: &Snapshotter| match &snapshotter.root {
            Some(root) => root == Path::new(mountpoint),
            None => mountpoint.ends_with(&format!("/io.containerd.snapshotter.v1.{}", snapshotter.name)),
        };
        let mut snapshotter = found
            .into_iter()
            .find(is_it)
            .ok_or_else(|| unsuited(format!("no snapshotter of containerd has its files in {mountpoint}")))?;
        snapshotter.root = Some(PathBuf::from(mountpoint));
        Ok(snapshotter)
    }
}

#[async_trait]
impl FindRuntimeStore for Finder {
    async fn find(&self, images: &FsInfo) -> std::result::Result<Arc<dyn RuntimeStore>, Unsuited> {
        let snapshotter = self.snapshotter(images).await?;
        let shape = match snapshotter.name.as_str() {
            "overlayfs" => LayerShape::Dir,
            "erofs" => LayerShape::Erofs,
            other => return Err(unsuited(format!("containerd's snapshotter is {other}"))),
        };
        if let Some(error) = &snapshotter.error {
            return Err(unsuited(format!("containerd's snapshotter {} does not work: {error}", snapshotter.name)));
        }
        let root = snapshotter.root.clone().unwrap_or_default();
        // As containerd sees it: in a container of our own, the path may lead elsewhere or nowhere.
        let seen = tokio::task::spawn_blocking({
            let root = root.clone();
            move || std::fs::metadata(root.join("snapshots")).map(|found| found.is_dir())
        });
        match seen.await {
            Ok(Ok(true)) => {}
            Ok(Err(error)) => return Err(unsuited(format!("{}: {error}", root.display()))),
            _ => return Err(unsuited(format!("{} has no snapshots", root.display()))),
        }
        let store = ContainerdStore {
            client: self.client.clone(),
            workshop: root.join(WORKSHOP),
            snapshotter,
            shape,
            next: AtomicU64::new(0),
        };
        Ok(Arc::new(store))
    }
}

fn unsuited(reason: impl Into<String>) -> Unsuited {
    Unsuited { reason: reason.into(), is_temporary: false }
}

/// Store of a containerd behind CRI.
#[derive(Debug)]
pub struct ContainerdStore {
    client: Client,
    snapshotter: Snapshotter,
    shape: LayerShape,
    workshop: PathBuf,
    /// Number of the next lease.
    next: AtomicU64,
}

impl ContainerdStore {
    /// Value of the label that leases of this workplace have.
    fn workplace(&self, number: u32) -> String {
        format!("{}/{number}", self.snapshotter.name)
    }

    async fn lease(&self, id: &str, workplace: u32, manifest: &Digest) -> Result<ContainerdDeposit> {
        let now = now();
        let expires = now.saturating_add(LEASE_TIME).unwrap_or(now).to_string();
        let labels = Labels::from([
            (labels::WORKPLACE.to_owned(), self.workplace(workplace)),
            (labels::MANIFEST.to_owned(), manifest.to_string()),
            (labels::BEGUN.to_owned(), now.as_second().to_string()),
        ]);
        let lease = self.client.create_lease(id, &expires, labels).await?;
        Ok(ContainerdDeposit::new(lease, self.snapshotter.clone()))
    }
}

#[async_trait]
impl RuntimeStore for ContainerdStore {
    fn name(&self) -> String {
        format!("containerd's snapshotter {}", self.snapshotter.name)
    }

    fn workshop(&self) -> &Path {
        &self.workshop
    }

    fn shape(&self) -> LayerShape {
        self.shape
    }

    fn new_id(&self) -> String {
        let (number, pid) = (self.next.fetch_add(1, Ordering::Relaxed), std::process::id());
        format!("imagelet-{}-{pid}-{number}", now().as_nanosecond())
    }

    async fn begin(&self, id: &str, workplace: u32, manifest: &Digest) -> cri_api::Result<Arc<dyn Deposit>> {
        Ok(Arc::new(self.lease(id, workplace, manifest).await?))
    }

    async fn has_snapshot(&self, chain_id: &str) -> cri_api::Result<bool> {
        let found = self.client.snapshot(&self.snapshotter.name, chain_id).await?;
        Ok(found.is_some_and(|found| found.kind == SnapshotKind::Committed))
    }

    async fn target(&self, name: &str) -> cri_api::Result<Option<Digest>> {
        Ok(self.client.image(name).await?.map(|record| record.target))
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
        Ok(self.client.snapshot_usage(&self.snapshotter.name, name).await?.bytes)
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

    async fn unfinished(&self, workplace: u32) -> cri_api::Result<Vec<UnfinishedDeposit>> {
        let leases = self.client.leases_with_label(labels::WORKPLACE, &self.workplace(workplace)).await?;
        let label = |labels: &Labels, key: &str| labels.get(key).cloned();
        let of = |lease: crate::ExistingLease| UnfinishedDeposit {
            manifest: label(&lease.labels, labels::MANIFEST).and_then(|text| text.parse().ok()),
            begun_at: label(&lease.labels, labels::BEGUN).and_then(|text| text.parse().ok()).unwrap_or(0),
            id: lease.id,
        };
        Ok(leases.into_iter().map(of).collect())
    }

    async fn give_up(&self, id: &str) -> cri_api::Result<()> {
        // Without waiting, containerd collects what it held after a hundred other changes only.
        Ok(self.client.lease(id)?.delete(true).await?)
    }
}

/// By the wall clock: containerd compares the end of a lease with it.
fn now() -> Timestamp {
    Timestamp::now()
}
