//! The calls against a real containerd: Debian's, or the one in `CONTAINERD=DIR` (its programs in `DIR/usr/bin` or in `DIR`).

#![expect(clippy::disallowed_methods, reason = "the tests start containerd, and may be told which one")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cri_api::engine::runtime_store::{
    Deposit as _, Destination, Document, Documents, LayerFacts, OpenSlot, Slot, StackedLayer,
};
use imagelet_containerd::{
    CRI_NAMESPACE, Client, ContainerdDeposit, ErrorKind, ImageRecord, Labels, Prepared, SnapshotKind, SnapshotLayout,
    layout_of,
};
use oci::{Digest, Reference};

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
        let unused: Vec<String> = [
            "grpc.v1.cri",
            "snapshotter.v1.btrfs",
            "snapshotter.v1.zfs",
            "snapshotter.v1.aufs",
            "snapshotter.v1.devmapper",
        ]
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
        let process = program("containerd")
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

/// A program of the containerd under test, which finds the shim in its own directory.
fn program(name: &str) -> Command {
    let Some(at) = std::env::var_os("CONTAINERD").filter(|at| !at.is_empty()) else { return Command::new(name) };
    let directories = [Path::new(&at).join("usr/bin"), PathBuf::from(&at)];
    let found = directories.iter().find(|directory| directory.join("containerd").is_file());
    let directory = found.unwrap_or_else(|| panic!("CONTAINERD={}: no containerd is there", at.display()));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(directory.join(name));
    command.env("PATH", format!("{}:{path}", directory.display()));
    command
}

fn labels(of: &[(&str, &str)]) -> Labels {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn layout() -> &'static dyn SnapshotLayout {
    layout_of(SNAPSHOTTER, false).expect("a layout")
}

/// The directory of a snapshot that is to be filled.
fn directory(prepared: Prepared) -> PathBuf {
    let Prepared::Active(mounts) = prepared else { panic!("to be filled: {prepared:?}") };
    match layout().destination(&mounts, &Path::exists) {
        Ok(Destination::Directory(directory)) => directory,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "needs root and containerd: scripts/test.sh"]
async fn image_is_created_and_garbage_collected() {
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
    let found = client.snapshots_with_label(SNAPSHOTTER, DIFF_ID, "sha256:d1").await.expect("list");
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
        created_at: 0,
        updated_at: 0,
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
#[ignore = "needs root and containerd: scripts/test.sh"]
async fn content_record_without_its_file_is_rewritten() {
    let containerd = Containerd::start();
    let client = containerd.client();
    let lease = client.create_lease("one", "2100-01-01T00:00:00Z", Labels::new()).await.expect("created");
    let (short, long) = (b"a config".to_vec(), b"0123456789abcdef".repeat(200_000));
    let of_it = labels(&[("containerd.io/distribution.source.registry.example", "team/app")]);
    let file = containerd.directory.path().join("long");
    fs::write(&file, &long).expect("written");
    let write = async |bytes: &[u8], label: &Labels| {
        let digest = Digest::sha256(bytes);
        if bytes.len() < 100 {
            lease.write_blob(&digest, bytes, label).await.expect("written");
        } else {
            lease.write_file(&digest, fs::File::open(&file).expect("there"), label).await.expect("written");
        }
    };
    for bytes in [&short, &long] {
        let digest = Digest::sha256(bytes);
        assert!(!client.is_readable(&digest).await.expect("answered"), "not written yet");
        write(bytes, &of_it).await;
        write(bytes, &labels(&[("more", "yes")])).await;
        assert_eq!(client.blob_labels(&digest).await.expect("there").expect("there").len(), 2, "the first ones stay");

        // As after a power cut between the record and the name of the file.
        let blobs = containerd.directory.path().join("root/io.containerd.content.v1.content/blobs");
        fs::remove_file(blobs.join(digest.to_string().replace(':', "/"))).expect("it was there");
        assert!(client.blob_labels(&digest).await.expect("answered").is_some(), "its record stays");
        assert!(!client.is_readable(&digest).await.expect("answered"));
        write(bytes, &of_it).await;
        assert!(client.is_readable(&digest).await.expect("answered"));
        assert_eq!(client.read_blob(&digest, long.len()).await.expect("whole").as_ref(), Some(bytes));
        assert_eq!(client.blob_labels(&digest).await.expect("there").as_ref(), Some(&of_it));
    }
    // The lease holds the content that was written again.
    client
        .create_lease("two", "2100-01-01T00:00:00Z", Labels::new())
        .await
        .expect("created")
        .delete(true)
        .await
        .expect("swept");
    assert!(client.is_readable(&Digest::sha256(&short)).await.expect("answered"));
    lease.delete(true).await.expect("deleted");
    assert!(!client.is_readable(&Digest::sha256(&short)).await.expect("answered"));
}

#[tokio::test]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn existing_snapshot_is_kept_for_its_users() {
    let containerd = Containerd::start();
    let client = containerd.client();
    let (expires, first, second) = ("2100-01-01T00:00:00Z", "sha256:one", "sha256:two");
    let maker = client.create_lease("maker", expires, Labels::new()).await.expect("created");
    for (key, name) in [("key 1", first), ("key 2", second)] {
        directory(maker.prepare(SNAPSHOTTER, key, "", name, Labels::new()).await.expect("prepared"));
        maker.commit(SNAPSHOTTER, key, name, None, Labels::new()).await.expect("committed");
    }
    let holder = client.create_lease("holder", expires, Labels::new()).await.expect("created");
    let wanted = holder.prepare(SNAPSHOTTER, "key 3", "", first, Labels::new()).await.expect("prepared");
    assert_eq!(wanted, Prepared::Present);
    // Another puller was faster.
    directory(holder.prepare(SNAPSHOTTER, "key 4", "", "sha256:other", Labels::new()).await.expect("prepared"));
    holder.commit(SNAPSHOTTER, "key 4", second, None, Labels::new()).await.expect("the other one's commit");
    assert!(!holder.hold_snapshot(SNAPSHOTTER, "sha256:none").await.expect("stat"));
    maker.delete(true).await.expect("deleted");
    for name in [first, second] {
        assert!(client.snapshot(SNAPSHOTTER, name).await.expect("stat").is_some(), "{name} is held");
    }
    holder.delete(true).await.expect("deleted");
    assert_eq!(client.snapshot(SNAPSHOTTER, first).await.expect("stat"), None);
}

/// Opens the slot of a layer that is not yet in the store.
async fn open(deposit: &ContainerdDeposit, layer: StackedLayer<'_>) -> OpenSlot {
    match deposit.open(layer).await.expect("a slot") {
        Slot::Open(slot) => slot,
        other => panic!("{other:?}"),
    }
}

/// Two layers, the second with a whiteout, made by hand next to the snapshotter's directory, become an image that
/// starts.
#[tokio::test]
#[ignore = "needs root, containerd, runc and busybox: scripts/test.sh"]
async fn image_of_moved_layers_starts() {
    let containerd = Containerd::start();
    let home = containerd.directory.path();
    let client = containerd.client();
    let snapshotters = client.snapshotters().await.expect("introspection");
    let overlayfs = snapshotters.into_iter().find(|found| found.name == SNAPSHOTTER).expect("overlayfs");
    let ours = home.join("root/io.containerd.snapshotter.v1.overlayfs/imagelet");
    for (layer, file, text) in [("1", "etc/gone", "no"), ("1", "etc/stays", "one"), ("2", "etc/new", "two")] {
        let path = ours.join(layer).join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    fs::create_dir_all(ours.join("1/bin")).expect("made");
    fs::copy("/bin/busybox", ours.join("1/bin/busybox")).expect("busybox-static is installed");
    let (whiteout, mode) = (ours.join("2/etc/gone"), rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, whiteout, rustix::fs::FileType::CharacterDevice, mode, 0).expect("a whiteout");

    let (first, second) = (Digest::sha256(b"layer 1"), Digest::sha256(b"layer 2"));
    let top = oci::chain_id(Some(&first), &second);
    let lower = StackedLayer { diff_id: &first, chain_id: &first, parent: None };
    let upper = StackedLayer { diff_id: &second, chain_id: &top, parent: Some(&first) };
    let config = format!(
        r#"{{"architecture": "{}", "os": "linux", "config": {{}}, "rootfs": {{"type": "layers", "diff_ids": ["{first}", "{second}"]}}}}"#,
        if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
    );
    let layer = |digest: &Digest| {
        format!(r#"{{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "{digest}", "size": 1}}"#)
    };
    let manifest = format!(
        r#"{{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config":
        {{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "{}", "size": {}}}, "layers": [{}, {}]}}"#,
        Digest::sha256(config.as_bytes()),
        config.len(),
        layer(&first),
        layer(&second)
    );
    let reference = Reference::parse(IMAGE).expect("a name");
    let documents = Documents {
        indexes: Vec::new(),
        manifest: Document { bytes: manifest.as_bytes(), media_type: "application/vnd.oci.image.manifest.v1+json" },
        config: config.as_bytes(),
        top: Some(&top),
        source: &reference,
        kept_blobs: Vec::new(),
        evidence: None,
    };

    let lease = client.create_lease("imagelet-9", "2100-01-01T00:00:00Z", Labels::new()).await.expect("created");
    let deposit = ContainerdDeposit::new(lease, overlayfs.clone(), layout());
    deposit.write_documents(&documents).await.expect("documents");
    let slot = open(&deposit, lower).await;
    layout().place(&ours.join("1"), &slot.destination).expect("moved");
    deposit.commit(&slot, lower, &LayerFacts::default()).await.expect("committed");
    let slot = open(&deposit, upper).await;
    layout().place(&ours.join("2"), &slot.destination).expect("moved");
    deposit.commit(&slot, upper, &LayerFacts::default()).await.expect("committed");
    assert_eq!(deposit.open(upper).await.expect("a slot"), Slot::Present);
    for name in [&Digest::sha256(config.as_bytes()).to_string(), IMAGE] {
        deposit.write_record(&documents, name).await.expect("a record");
    }
    deposit.end().await.expect("deleted");

    let output = program("ctr")
        .args(["--address", &home.join("c.sock").display().to_string(), "--namespace", CRI_NAMESPACE, "run", "--rm"])
        .args([IMAGE, "imagelet-test-of-moved-layers", "/bin/busybox", "sh", "-c"])
        .arg("cd /etc; /bin/busybox cat stays new; /bin/busybox test -e gone || echo; /bin/busybox stat -c %a:%u:%g /")
        .output()
        .expect("ctr starts");
    let (printed, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((&*printed, output.status.code()), ("onetwo\n755:0:0\n", Some(0)), "{complained}");
}

#[tokio::test]
async fn missing_containerd_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let client = Client::new(&directory.path().join("none.sock"), CRI_NAMESPACE).expect("a client");
    let error = client.image("a").await.expect_err("nobody");
    assert_eq!((error.kind(), error.call(), error.subject()), (ErrorKind::Unavailable, "Images.Get", "a"));
    assert!(error.to_string().contains("No such file or directory"), "{error}");
    assert!(Client::new(directory.path(), "no\nheader").is_err());
}
