//! Snapshots: prepared under a key, filled by the client that prepared them, committed under a name.

use crate::client::{answer, empty};
use crate::error::unless;
use crate::{Client, Error, ErrorKind, Labels, Lease, Result, filter, pb};

/// Label of Prepare with the name of the committed snapshot that is wanted: if it is there, the lease holds it and Prepare
/// makes nothing.
const TARGET: &str = "containerd.io/snapshot.ref";

/// Times that a snapshot is prepared again because the wanted one is collected at the same moment.
const MAX_RACES: usize = 5;

/// A mount of a snapshot, as a snapshotter answers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Kind: `bind`, `overlay`, `erofs`.
    pub kind: String,
    /// Source.
    pub source: String,
    /// Options.
    pub options: Vec<String>,
}

/// State of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Read-only, made for a reader.
    View,
    /// Writable, not committed.
    Active,
    /// Committed: other snapshots may have it as parent.
    Committed,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of a committed one, key of another one.
    pub name: String,
    /// Name of the parent; empty: none.
    pub parent: String,
    /// State.
    pub kind: SnapshotKind,
    /// Labels.
    pub labels: Labels,
}

/// Disk usage of a snapshot without its parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Outcome of Prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The snapshot is to be filled: its mounts.
    Active(Vec<Mount>),
    /// A committed snapshot of the wanted name is there; the lease holds it.
    Present,
}

impl Client {
    /// Returns the snapshot of this name or key, or `None` if there is none.
    ///
    /// # Errors
    /// The call failed.
    pub async fn snapshot(&self, snapshotter: &str, key: &str) -> Result<Option<Snapshot>> {
        const CALL: &str = "Snapshots.Stat";
        let request = pb::snapshots::StatSnapshotRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
        let found = unless(ErrorKind::NotFound, answer(CALL, key, self.snapshots().stat(request)).await)?;
        let Some(found) = found else { return Ok(None) };
        found.info.map(snapshot).ok_or_else(|| empty(CALL, key)).map(Some)
    }

    /// Committed snapshots with this value of a label.
    ///
    /// # Errors
    /// The call failed.
    pub async fn snapshots_with_label(&self, snapshotter: &str, key: &str, value: &str) -> Result<Vec<Snapshot>> {
        self.list(snapshotter, vec![format!("kind==committed,{}", filter::label(key, value))]).await
    }

    /// Committed snapshots with one of these values of a label. Without values, those are none.
    ///
    /// # Errors
    /// The call failed.
    pub async fn snapshots_with_labels(
        &self,
        snapshotter: &str,
        key: &str,
        values: &[String],
    ) -> Result<Vec<Snapshot>> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let of = |value: &String| format!("kind==committed,{}", filter::label(key, value));
        self.list(snapshotter, values.iter().map(of).collect()).await
    }

    /// Returns all committed snapshots.
    ///
    /// # Errors
    /// The call failed.
    pub async fn committed_snapshots(&self, snapshotter: &str) -> Result<Vec<Snapshot>> {
        self.list(snapshotter, vec!["kind==committed".to_owned()]).await
    }

    async fn list(&self, snapshotter: &str, filters: Vec<String>) -> Result<Vec<Snapshot>> {
        const CALL: &str = "Snapshots.List";
        let request = pb::snapshots::ListSnapshotsRequest { snapshotter: snapshotter.to_owned(), filters };
        let mut list = answer(CALL, snapshotter, self.snapshots().list(request)).await?;
        let mut found = Vec::new();
        while let Some(part) = list.message().await.map_err(|status| Error::of_status(CALL, snapshotter, &status))? {
            found.extend(part.info.into_iter().map(snapshot));
        }
        Ok(found)
    }

    /// Disk usage of a snapshot without its parents.
    ///
    /// # Errors
    /// The call failed; there is no such snapshot.
    pub async fn snapshot_usage(&self, snapshotter: &str, key: &str) -> Result<Usage> {
        let request = pb::snapshots::UsageRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
        let usage = answer("Snapshots.Usage", key, self.snapshots().usage(request)).await?;
        let of = |number| u64::try_from(number).unwrap_or(0);
        Ok(Usage { bytes: of(usage.size), inodes: of(usage.inodes) })
    }
}

impl Lease {
    /// Prepares `key` on `parent` (empty: none), to be committed as `name`. A key that was prepared before is taken as it is.
    ///
    /// # Errors
    /// A call failed; there is no such parent.
    pub async fn prepare(
        &self,
        snapshotter: &str,
        key: &str,
        parent: &str,
        name: &str,
        mut labels: Labels,
    ) -> Result<Prepared> {
        labels.insert(TARGET.to_owned(), name.to_owned());
        let request = pb::snapshots::PrepareSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels,
        };
        let mut races = 0;
        loop {
            let prepared = answer("Snapshots.Prepare", key, self.snapshots().prepare(request.clone())).await;
            if prepared.as_ref().is_err_and(was_in_the_way) && races < MAX_RACES {
                races += 1;
                continue;
            }
            if let Some(prepared) = unless(ErrorKind::AlreadyExists, prepared)? {
                return Ok(Prepared::Active(mounts(prepared.mounts)));
            }
            // containerd before 1.7 does not add to the lease what it answers so of.
            if self.hold_snapshot(snapshotter, name).await? {
                return Ok(Prepared::Present);
            }
            let mounted = pb::snapshots::MountsRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
            match answer("Snapshots.Mounts", key, self.snapshots().mounts(mounted)).await {
                Ok(answered) => return Ok(Prepared::Active(mounts(answered.mounts))),
                // The snapshot was there, and was collected before it was held.
                Err(error) if error.kind() == ErrorKind::NotFound && races < MAX_RACES => races += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits `key` as `name`, on `parent` if that is given: only with a snapshotter that [rebases](crate::Snapshotter::rebases). If another client has committed the name first, our key is removed, and the lease holds the other
    /// one's snapshot.
    ///
    /// # Errors
    /// A call failed; there is neither such a key nor such a name, or the other client's snapshot was collected meanwhile.
    pub async fn commit(
        &self,
        snapshotter: &str,
        key: &str,
        name: &str,
        parent: Option<&str>,
        labels: Labels,
    ) -> Result<()> {
        let request = pb::snapshots::CommitSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            labels,
            parent: parent.unwrap_or_default().to_owned(),
        };
        let committed = answer("Snapshots.Commit", key, self.snapshots().commit(request)).await;
        let Err(error) = committed else { return Ok(()) };
        match error.kind() {
            ErrorKind::AlreadyExists => {
                self.remove_snapshot(snapshotter, key).await?;
                // The other client may give its own up: what is built on it here must not be collected with that.
                match self.hold_snapshot(snapshotter, name).await? {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            // The answer was lost: the commit may have succeeded.
            ErrorKind::NotFound => match self.snapshot(snapshotter, name).await? {
                Some(found) if found.kind == SnapshotKind::Committed => Ok(()),
                _ => Err(error),
            },
            _ => Err(error),
        }
    }

    /// Holds the committed snapshot of this name, and with it those below. Returns false if it is not there.
    ///
    /// # Errors
    /// A call failed.
    pub async fn hold_snapshot(&self, snapshotter: &str, name: &str) -> Result<bool> {
        if !self.has_snapshot(snapshotter, name).await? {
            return Ok(false);
        }
        let resource = pb::leases::Resource { id: name.to_owned(), r#type: format!("snapshots/{snapshotter}") };
        let request = pb::leases::AddResourceRequest { id: self.id().to_owned(), resource: Some(resource) };
        answer("Leases.AddResource", name, self.leases().add_resource(request)).await?;
        // It may have been collected between the two calls.
        self.has_snapshot(snapshotter, name).await
    }

    async fn has_snapshot(&self, snapshotter: &str, name: &str) -> Result<bool> {
        let found = self.snapshot(snapshotter, name).await?;
        Ok(found.is_some_and(|found| found.kind == SnapshotKind::Committed))
    }

    /// Sets labels of a committed snapshot; its other labels stay.
    ///
    /// # Errors
    /// The call failed; there is no such snapshot.
    pub async fn set_snapshot_labels(&self, snapshotter: &str, name: &str, labels: &Labels) -> Result<()> {
        let info = pb::snapshots::Info { name: name.to_owned(), labels: labels.clone(), ..Default::default() };
        let paths = labels.keys().map(|key| format!("labels.{key}")).collect();
        let request = pb::snapshots::UpdateSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            info: Some(info),
            update_mask: Some(pb::types::FieldMask { paths }),
        };
        answer("Snapshots.Update", name, self.snapshots().update(request)).await.map(drop)
    }

    /// Makes a read-only snapshot of `name` under `key`, and answers its mounts.
    ///
    /// # Errors
    /// A call failed; there is no such name.
    pub async fn view(&self, snapshotter: &str, key: &str, name: &str) -> Result<Vec<Mount>> {
        let request = pb::snapshots::ViewSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            key: key.to_owned(),
            parent: name.to_owned(),
            labels: Labels::new(),
        };
        let mut viewed = answer("Snapshots.View", key, self.snapshots().view(request.clone())).await;
        if viewed.as_ref().is_err_and(was_in_the_way) {
            viewed = answer("Snapshots.View", key, self.snapshots().view(request)).await;
        }
        Ok(mounts(viewed?.mounts))
    }

    /// Removes a snapshot. An absent one is success.
    ///
    /// # Errors
    /// The call failed; [`ErrorKind::InUse`]: it has children.
    pub async fn remove_snapshot(&self, snapshotter: &str, key: &str) -> Result<()> {
        let request = pb::snapshots::RemoveSnapshotRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
        let removed = answer("Snapshots.Remove", key, self.snapshots().remove(request)).await;
        unless(ErrorKind::NotFound, removed).map(drop)
    }
}

/// Returns true for the error after containerd was killed while it created a snapshot: its directory blocks the next one, which
/// fails and removes it.
fn was_in_the_way(error: &Error) -> bool {
    error.kind() == ErrorKind::Failed && error.message().contains("file exists")
}

fn mounts(messages: Vec<pb::types::Mount>) -> Vec<Mount> {
    let of = |mount: pb::types::Mount| Mount { kind: mount.r#type, source: mount.source, options: mount.options };
    messages.into_iter().map(of).collect()
}

fn snapshot(info: pb::snapshots::Info) -> Snapshot {
    let kind = match info.kind() {
        pb::snapshots::Kind::Committed => SnapshotKind::Committed,
        pb::snapshots::Kind::View => SnapshotKind::View,
        pb::snapshots::Kind::Active | pb::snapshots::Kind::Unknown => SnapshotKind::Active,
    };
    Snapshot { name: info.name, parent: info.parent, kind, labels: info.labels }
}
