//! The calls against a real containerd: Debian's, or that of `CONTAINERD=DIR` (its programs lie in `DIR/usr/bin`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use imagelet_containerd::{
    CRI_NAMESPACE, Client, ErrorKind, ImageRecord, Labels, Place, Prepared, SnapshotKind, place,
};
use oci::Digest;

const SNAPSHOTTER: &str = "overlayfs";
const DIFF_ID: &str = "containerd.io/snapshot/diff-id";
const IMAGE: &str = "registry.example/team/app:1";

/// A running containerd without CRI, in a directory of its own.
struct Containerd {
    process: Child,
    directory: tempfile::TempDir,
}

impl Containerd {
    fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("ctr").tempdir_in("/tmp").expect("a directory");
        let home = directory.path();
        let unused: Vec<String> =
            ["grpc.v1.cri", "snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.aufs", "snapshotter.v1.devmapper"]
                .iter()
                .map(|plugin| format!("\"io.containerd.{plugin}\""))
                .collect();
        let config = format!(
            "version = 2\nroot = \"{0}/root\"\nstate = \"{0}/state\"\ndisabled_plugins = [{1}]\n[grpc]\n  address = \"{0}/c.sock\"\n",
            home.display(),
            unused.join(", ")
        );
        fs::write(home.join("config.toml"), config).expect("written");
        let log = fs::File::create(home.join("log")).expect("created");
        let process = Command::new(program())
            .arg("-c")
            .arg(home.join("config.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("containerd starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::os::unix::net::UnixStream::connect(home.join("c.sock")).is_err() {
            let log = fs::read_to_string(home.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "containerd does not listen:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, directory }
    }

    fn client(&self) -> Client {
        Client::new(&self.directory.path().join("c.sock"), CRI_NAMESPACE).expect("a client")
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    std::env::var_os("CONTAINERD").map_or_else(|| "containerd".into(), |at| Path::new(&at).join("usr/bin/containerd"))
}

fn labels(of: &[(&str, &str)]) -> Labels {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The directory of a snapshot that is to be filled.
fn directory(prepared: Prepared) -> PathBuf {
    let Prepared::Active(mounts) = prepared else { panic!("to be filled: {prepared:?}") };
    match place(&mounts, Path::exists) {
        Place::Directory(directory) => directory,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "needs root and containerd"]
async fn an_image_is_made_and_collected() {
    let containerd = Containerd::start();
    let client = containerd.client();
    let snapshotters = client.snapshotters().await.expect("introspection");
    let overlayfs = snapshotters.iter().find(|found| found.name == SNAPSHOTTER).expect("overlayfs");
    assert_eq!(overlayfs.error, None);

    let expires = "2100-01-01T00:00:00Z";
    let lease = client.create_lease("imagelet-1", expires, labels(&[("owner", "im\"age")])).await.expect("created");
    client.create_lease("imagelet-1", expires, Labels::new()).await.expect("created again");
    let found = client.leases_with_label("owner", "im\"age").await.expect("leases");
    assert_eq!(found.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["imagelet-1"]);
    assert_eq!(client.leases_with_label("owner", "another").await.expect("leases"), []);

    // Two layers: a bind mount to fill, then an overlay.
    let (first, second) = ("sha256:first", "sha256:second");
    let of_layer = |diff_id| labels(&[(DIFF_ID, diff_id)]);
    let prepared = lease.prepare(SNAPSHOTTER, "key 1", "", first, of_layer("sha256:d1")).await.expect("prepared");
    let below = directory(prepared.clone());
    let again = lease.prepare(SNAPSHOTTER, "key 1", "", first, of_layer("sha256:d1")).await.expect("prepared again");
    assert_eq!(again, prepared);
    fs::write(below.join("file"), "content").expect("written");
    lease.commit(SNAPSHOTTER, "key 1", first, None, of_layer("sha256:d1")).await.expect("committed");
    lease.commit(SNAPSHOTTER, "key 1", first, None, of_layer("sha256:d1")).await.expect("the lost answer of a commit");
    let prepared = lease.prepare(SNAPSHOTTER, "key 2", first, second, of_layer("sha256:d2")).await.expect("prepared");
    assert_ne!(directory(prepared), below);
    lease.commit(SNAPSHOTTER, "key 2", second, None, of_layer("sha256:d2")).await.expect("committed");
    let top = client.snapshot(SNAPSHOTTER, second).await.expect("stat").expect("there");
    assert_eq!((top.parent.as_str(), top.kind), (first, SnapshotKind::Committed));
    let found = client.snapshots_of_layer(SNAPSHOTTER, "sha256:d1").await.expect("list");
    assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), [first]);
    assert!(client.snapshot_usage(SNAPSHOTTER, first).await.expect("usage").bytes > 0);
    let wanted = lease.prepare(SNAPSHOTTER, "key 3", "", first, Labels::new()).await.expect("prepared");
    assert_eq!(wanted, Prepared::Present);

    // Another puller was faster: its snapshot counts, and ours goes.
    let loser = lease.prepare(SNAPSHOTTER, "key 4", "", "sha256:other", Labels::new()).await.expect("prepared");
    directory(loser);
    lease.commit(SNAPSHOTTER, "key 4", first, None, Labels::new()).await.expect("the other one's commit");
    assert_eq!(client.snapshot(SNAPSHOTTER, "key 4").await.expect("stat"), None);

    // Blobs: short, longer than one message, there already.
    let long = vec![7; 3 * 1024 * 1024 + 1];
    let config = Digest::sha256(b"{}");
    let top_label = labels(&[("containerd.io/gc.ref.snapshot.overlayfs", second)]);
    lease.write_blob(&Digest::sha256(&long), &long, &Labels::new()).await.expect("written");
    lease.write_blob(&config, b"{}", &top_label).await.expect("written");
    lease.write_blob(&config, b"{}", &labels(&[("another", "label")])).await.expect("there");
    let set = client.blob_labels(&config).await.expect("info").expect("there");
    assert!(set.contains_key("another") && set.contains_key("containerd.io/gc.ref.snapshot.overlayfs"), "{set:?}");
    let read = client.read_blob(&Digest::sha256(&long), long.len()).await.expect("read");
    assert_eq!(read.as_deref(), Some(&*long));
    let error = client.read_blob(&Digest::sha256(&long), 100).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = lease.write_blob(&Digest::sha256(b"x"), b"y", &Labels::new()).await.expect_err("another digest");
    assert_ne!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(client.read_blob(&Digest::sha256(b"x"), 100).await.expect("read"), None);

    // The record keeps what it refers to; the rest goes with the lease.
    let record = ImageRecord {
        name: IMAGE.to_owned(),
        labels: labels(&[("io.cri-containerd.image", "managed")]),
        media_type: "application/vnd.oci.image.config.v1+json".to_owned(),
        target: config.clone(),
        size: 2,
    };
    lease.put_image(&record).await.expect("created");
    let other = ImageRecord { labels: labels(&[("pinned", "yes")]), ..record.clone() };
    lease.put_image(&other).await.expect("updated");
    let stored = client.image(IMAGE).await.expect("get").expect("there");
    assert_eq!((stored.labels.len(), &stored.target), (2, &record.target));
    lease.delete(true).await.expect("deleted");
    lease.delete(true).await.expect("deleted again");
    assert!(client.snapshot(SNAPSHOTTER, second).await.expect("stat").is_some(), "the record refers to it");
    assert_eq!(client.blob_labels(&Digest::sha256(&long)).await.expect("info"), None, "nothing refers to it");

    let cleaner = client.create_lease("imagelet-2", expires, Labels::new()).await.expect("created");
    let error = cleaner.remove_snapshot(SNAPSHOTTER, first).await.expect_err("it has a child");
    assert_eq!(error.kind(), ErrorKind::InUse);
    cleaner.delete_image(IMAGE, true).await.expect("deleted");
    cleaner.delete_image(IMAGE, true).await.expect("deleted again");
    assert_eq!(client.image(IMAGE).await.expect("get"), None);
    assert_eq!(client.snapshot(SNAPSHOTTER, second).await.expect("stat"), None, "collected");
    cleaner.delete(false).await.expect("deleted");
}

#[tokio::test]
async fn nobody_at_the_socket_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let client = Client::new(&directory.path().join("none.sock"), CRI_NAMESPACE).expect("a client");
    let error = client.image("a").await.expect_err("nobody");
    assert_eq!((error.kind(), error.call(), error.subject()), (ErrorKind::Unavailable, "Images.Get", "a"));
    assert!(error.to_string().contains("No such file or directory"), "{error}");
    assert!(Client::new(directory.path(), "no\nheader").is_err());
}
