//! Small layers and images, pulled into a store the way the image service does it.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri_api::engine::CheckReport;
use imagelet_store::check::{CheckOptions, Depth};
use imagelet_store::{
    CommitError, Durability, ImageCommit, ImageRecord, LayerFormat, LayerSource, Lease, NewBlob, OpenOptions, Store,
    StoreError, UnpackedLayer,
};
use oci::{Digest, Reference, chain_id};

pub(crate) const NEVER: &(dyn Fn() -> bool + Sync) = &|| false;
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Parses a name.
pub(crate) fn reference(name: &str) -> Reference {
    Reference::parse(name).unwrap()
}

/// A tar stream.
#[derive(Clone, Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    fn entry(mut self, path: &str, kind: u8, mode: u32, link: &str, device: (u32, u32), content: &[u8]) -> Self {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, path.as_bytes());
        put(100, format!("{mode:07o}\0").as_bytes());
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"14000000000\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        put(329, format!("{:07o}\0", device.0).as_bytes());
        put(337, format!("{:07o}\0", device.1).as_bytes());
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(path, b'0', 0o644, "", (0, 0), content)
    }

    /// Extended attributes of the entry that follows.
    pub(crate) fn xattrs(self, all: &[(&str, &str)]) -> Self {
        let record = |(name, value): &(&str, &str)| {
            let rest = format!(" SCHILY.xattr.{name}={value}\n");
            assert!((10..98).contains(&rest.len()), "two digits of length are in front");
            format!("{}{rest}", rest.len() + 2)
        };
        let records: String = all.iter().map(record).collect();
        self.entry("pax", b'x', 0o644, "", (0, 0), records.as_bytes())
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(path, b'5', mode, "", (0, 0), b"")
    }

    /// A directory with an owner and a time.
    pub(crate) fn directory_with(self, path: &str, mode: u32, (uid, gid): (u32, u32), mtime: u32) -> Self {
        let mut tar = self.directory(if path == "/" { "./" } else { path }, mode);
        let at = tar.0.len() - 512;
        let header = &mut tar.0[at..];
        header[108..116].copy_from_slice(format!("{uid:07o}\0").as_bytes());
        header[116..124].copy_from_slice(format!("{gid:07o}\0").as_bytes());
        header[136..148].copy_from_slice(format!("{mtime:011o}\0").as_bytes());
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar
    }

    pub(crate) fn symlink(self, path: &str, to: &str) -> Self {
        self.entry(path, b'2', 0o777, to, (0, 0), b"")
    }

    pub(crate) fn device(self, path: &str) -> Self {
        self.entry(path, b'3', 0o600, "", (1, 3), b"")
    }

    /// The stream that [`Tar::bytes`] gave.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes[..bytes.len() - 1024].to_vec())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.0.clone();
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    }
}

/// A layer with one file, whose directories are all there.
pub(crate) fn plain_layer(name: &str, content: &[u8]) -> Tar {
    Tar::default().directory("./", 0o755).directory("d/", 0o755).file(&format!("d/{name}"), content)
}

fn describe(kind: &str, bytes: &[u8]) -> serde_json::Value {
    serde_json::json!({ "mediaType": kind, "digest": Digest::sha256(bytes), "size": bytes.len() })
}

fn manifest_of(config: &[u8], layers: Vec<serde_json::Value>) -> Vec<u8> {
    let config = describe("application/vnd.oci.image.config.v1+json", config);
    let manifest = serde_json::json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    manifest.to_string().into_bytes()
}

/// An image as a registry would have it.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
    pub(crate) layers: Vec<(Digest, Vec<u8>)>,
    /// The compressed layers, where they are to be kept.
    pub(crate) blobs: Vec<Vec<u8>>,
}

impl Image {
    pub(crate) fn new(comment: &str, layers: &[Tar]) -> Self {
        let layers: Vec<(Digest, Vec<u8>)> = layers
            .iter()
            .map(|tar| {
                let bytes = tar.bytes();
                (Digest::sha256(&bytes), bytes)
            })
            .collect();
        let diff_ids: Vec<&Digest> = layers.iter().map(|(diff_id, _)| diff_id).collect();
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "comment": comment,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = config.to_string().into_bytes();
        let plain = layers.iter().map(|(_, tar)| describe("application/vnd.oci.image.layer.v1.tar", tar)).collect();
        let manifest = manifest_of(&config, plain);
        Self { config, manifest, layers, blobs: Vec::new() }
    }

    /// The same with a manifest that names blobs, which a pull keeps. What is in a blob is not the store's business.
    pub(crate) fn with_blobs(mut self) -> Self {
        self.blobs = self.layers.iter().map(|(_, tar)| [b"compressed: ", tar.as_slice()].concat()).collect();
        let layer = "application/vnd.oci.image.layer.v1.tar+gzip";
        self.manifest = manifest_of(&self.config, self.blobs.iter().map(|blob| describe(layer, blob)).collect());
        self
    }

    /// An index that lists this document.
    pub(crate) fn index_of(document: &[u8], media_type: &str) -> Vec<u8> {
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [describe(media_type, document)] });
        index.to_string().into_bytes()
    }

    /// Those of its blobs that the store has not got.
    pub(crate) fn new_blobs(&self, store: &Store) -> Vec<Arc<NewBlob>> {
        let new = |blob: &Vec<u8>| {
            let mut ingest = store.new_blob(&Digest::sha256(blob), blob.len() as u64).unwrap()?;
            for piece in blob.chunks(10_000) {
                ingest.write(piece).unwrap();
            }
            Some(Arc::new(ingest.finish().unwrap()))
        };
        self.blobs.iter().filter_map(new).collect()
    }

    pub(crate) fn id(&self) -> Digest {
        Digest::sha256(&self.config)
    }

    pub(crate) fn repo_digest(&self, repository: &str) -> String {
        format!("{repository}@{}", Digest::sha256(&self.manifest))
    }

    /// Everything but the layers.
    pub(crate) fn commit(&self, tag: Option<&str>) -> ImageCommit {
        let repository = tag.map(|tag| tag.rsplit_once(':').unwrap().0);
        ImageCommit {
            config: self.config.clone(),
            manifest: self.manifest.clone(),
            manifest_media_type: MANIFEST.to_owned(),
            tag: tag.map(reference),
            repo_digest: repository.map(|repository| reference(&self.repo_digest(repository))),
            created_at_unix_nanos: 1_700_000_000_000_000_000,
            ..ImageCommit::default()
        }
    }

    /// Uses the layers that the store has, and unpacks the rest.
    pub(crate) fn sources(&self, store: &Store, lease: &Lease) -> Vec<LayerSource> {
        let mut parent = None;
        self.layers
            .iter()
            .map(|(diff_id, tar)| {
                let chain = chain_id(parent.as_ref(), diff_id);
                let found = store.find_layer(lease, diff_id, &chain).unwrap();
                parent = Some(chain);
                match found {
                    Some(layer) => LayerSource::Present(layer),
                    None => LayerSource::New { layer: unpack(store, lease, tar), diff_id: diff_id.clone() },
                }
            })
            .collect()
    }

    pub(crate) fn try_pull(&self, store: &Store, tag: Option<&str>) -> Result<ImageRecord, CommitError> {
        let lease = store.lease();
        let layers = self.sources(store, &lease);
        let blobs = self.new_blobs(store);
        store.commit_image(&lease, ImageCommit { layers, blobs, ..self.commit(tag) })
    }

    /// A pull of which the first error is the store's.
    pub(crate) fn pull_or_store_error(&self, store: &Store) -> Result<(), StoreError> {
        let lease = store.lease();
        store.new_layer(&lease).map(drop)
    }

    pub(crate) fn pull(&self, store: &Store, tag: &str) -> ImageRecord {
        self.try_pull(store, Some(tag)).unwrap()
    }
}

pub(crate) fn unpack(store: &Store, lease: &Lease, tar: &[u8]) -> Arc<UnpackedLayer> {
    Arc::new(store.new_layer(lease).unwrap().unpack(&mut &*tar, NEVER).unwrap())
}

/// Tests need no power-cut safety, except those of it, and a small reserve.
pub(crate) fn options() -> OpenOptions {
    OpenOptions {
        durability: Durability::Full,
        reserve_bytes: 1 << 20,
        layer_format: super::FORMAT,
        ..OpenOptions::default()
    }
}

/// Waits until no loop device shows a file at or below this path. The kernel clears a device at its last close, and a search for
/// the device of another file may have it open for a moment.
#[track_caller]
pub(crate) fn until_detached(path: &Path) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let attached = || {
        let devices = std::fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
        let files = devices.map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")));
        files.filter_map(Result::ok).find(|file| Path::new(file.trim_end()).starts_with(path))
    };
    while let Some(file) = attached() {
        assert!(std::time::Instant::now() < until, "a loop device is still attached to {file}");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

pub(crate) fn open(root: &Path) -> Store {
    Store::open(root, options()).unwrap()
}

/// Returns true if layers are directory trees.
pub(crate) fn in_directories() -> bool {
    super::FORMAT == LayerFormat::Dir
}

/// The trees of an image's layers, those that are images mounted while this lives.
pub(crate) struct Trees {
    paths: Vec<PathBuf>,
    mounted: Vec<tempfile::TempDir>,
}

impl Trees {
    pub(crate) fn of(store: &Store, image: &ImageRecord) -> Self {
        let mut mounted = Vec::new();
        let tree = |path: PathBuf| {
            if path.is_dir() {
                return path;
            }
            let place = tempfile::tempdir().unwrap();
            rustix::mount::mount(&path, place.path(), "erofs", rustix::mount::MountFlags::RDONLY, c"").unwrap();
            let path = place.path().to_owned();
            mounted.push(place);
            path
        };
        let paths = store.layer_directories(image).unwrap().into_iter().map(tree).collect();
        Self { paths, mounted }
    }
}

impl std::ops::Deref for Trees {
    type Target = [PathBuf];

    fn deref(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        for place in &self.mounted {
            rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}

/// The names in a directory, sorted.
pub(crate) fn list(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Checks the store to the end.
#[track_caller]
pub(crate) fn run_check(store: &Store, depth: Depth, repair: bool) -> CheckReport {
    let options = CheckOptions { depth, repair, recent_only: false, cancelled: NEVER, progress: &|_| {} };
    store.check(&options).expect("comes to an end")
}

/// Asserts that a check of all files finds nothing.
#[track_caller]
pub(crate) fn is_sound(store: &Store) {
    let report = run_check(store, Depth::Files, false);
    assert!(report.problems.is_empty(), "{report:?}");
}

/// Checks that the records' disk usage is that of the disk.
pub(crate) fn check_accounts(store: &Store) {
    let images = store.images().unwrap();
    let totals = store.totals().unwrap();
    let mut layers = std::collections::BTreeMap::new();
    let mut documents = 0;
    for image in &images {
        documents += image.config.len() + image.manifest.len() + image.index.as_ref().map_or(0, Vec::len);
        for layer in store.image_layers(image).unwrap() {
            layers.insert(layer.id, layer.stats);
        }
        let (unique, shared) = store.usage(&image.id).unwrap().unwrap();
        assert_eq!(unique + shared, image.size, "usage of {}", image.id);
        assert!(store.image_is_whole(image), "{} has all its layers", image.id);
    }
    assert_eq!(totals.images, images.len() as u64, "number of images");
    assert_eq!(totals.layers, layers.len() as u64, "number of layers");
    let blobs: Vec<PathBuf> = std::fs::read_dir(store.root().join("blobs"))
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    let blob_bytes: u64 = blobs.iter().map(|blob| measure(blob).0).sum();
    assert_eq!(totals.blobs, blobs.len() as u64, "number of blobs");
    // Content that several layers share is present once.
    let (mut bytes, mut inodes) = measure(&store.root().join("layers"));
    (bytes, inodes) = (bytes - own_blocks(&store.root().join("layers")), inodes - 1);
    assert_eq!(totals.bytes, bytes + blob_bytes + documents as u64, "bytes");
    assert_eq!(totals.inodes, inodes + blobs.len() as u64, "inodes");
    let shares = layers.values().map(|stats| stats.disk_bytes).sum::<u64>() != bytes;
    let numbers: Vec<String> = list(&store.root().join("layers"));
    assert_eq!(numbers.len(), layers.len(), "directories under layers/: {numbers:?}");
    assert_eq!(list(&store.root().join("ingest")), Vec::<String>::new(), "nothing is left under ingest/");
    for (id, stats) in layers {
        let path = store.root().join("layers").join(id.to_string());
        let (bytes, inodes) = measure(&path);
        if shares {
            assert!(stats.disk_bytes <= bytes && stats.inodes <= inodes, "layer {id} has no more than is there");
            continue;
        }
        assert_eq!((stats.disk_bytes, stats.inodes), (bytes, inodes), "layer {id} was counted right");
    }
}

fn own_blocks(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::symlink_metadata(path).unwrap()) * 512
}

/// Blocks and inodes, as `du` counts them.
pub(crate) fn measure(path: &Path) -> (u64, u64) {
    fn walk(path: &Path, seen: &mut std::collections::BTreeSet<u64>) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let mut metadata = std::fs::symlink_metadata(path).unwrap();
        if !seen.insert(metadata.ino()) {
            return 0;
        }
        // While the kernel finds a place for what was only in memory until then, ext4 counts it nowhere.
        if metadata.is_file() && metadata.blocks() * 512 < metadata.size() {
            std::fs::File::open(path).unwrap().sync_all().unwrap();
            metadata = std::fs::symlink_metadata(path).unwrap();
        }
        let mut bytes = metadata.blocks() * 512;
        if metadata.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                bytes += walk(&entry.unwrap().path(), seen);
            }
        }
        bytes
    }
    let mut seen = std::collections::BTreeSet::new();
    let bytes = walk(path, &mut seen);
    (bytes, seen.len() as u64)
}

/// A file system of its own in a file, mounted while this lives.
pub(crate) struct LoopDisk {
    pub(crate) path: PathBuf,
    directory: tempfile::TempDir,
}

impl LoopDisk {
    pub(crate) fn ext4(bytes: u64) -> Self {
        Self::made(bytes, &[])
    }

    pub(crate) fn ext4_with(bytes: u64, options: &[&str]) -> Self {
        Self::made(bytes, options)
    }

    /// A disk with so few inodes.
    pub(crate) fn with_inodes(bytes: u64, inodes: u64) -> Self {
        Self::made(bytes, &["-N", &inodes.to_string()])
    }

    /// A disk whose files can share blocks.
    pub(crate) fn xfs(bytes: u64) -> Self {
        Self::made_by("mkfs.xfs", bytes, &["-q", "-m", "reflink=1"])
    }

    fn made(bytes: u64, options: &[&str]) -> Self {
        // No blocks are kept for root, so that full means full.
        Self::made_by("mkfs.ext4", bytes, &[&["-q", "-m", "0"], options].concat())
    }

    pub(crate) fn made_by(program: &str, bytes: u64, options: &[&str]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a disk: run it as root");
        let directory = tempfile::tempdir().unwrap();
        let (file, path) = (directory.path().join("disk"), directory.path().join("mount"));
        std::fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        std::fs::create_dir(&path).unwrap();
        run(program, &[options, &[file.to_str().unwrap()]].concat());
        run("mount", &["-o", "loop", file.to_str().unwrap(), path.to_str().unwrap()]);
        Self { path, directory }
    }

    /// The disk as it is at this moment, without what the kernel still has in memory.
    pub(crate) fn as_after_a_power_cut(&self) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (file, path) = (directory.path().join("disk"), directory.path().join("mount"));
        std::fs::copy(self.directory.path().join("disk"), &file).unwrap();
        std::fs::create_dir(&path).unwrap();
        run("mount", &["-o", "loop", file.to_str().unwrap(), path.to_str().unwrap()]);
        Self { path, directory }
    }

    /// With other options from now on.
    pub(crate) fn remount(&self, options: &str) {
        run("mount", &["-o", &format!("remount,{options}"), self.path.to_str().unwrap()]);
    }

    /// From now on nothing can be written: as an ext4 does it that finds an error.
    pub(crate) fn break_off(&self) {
        self.remount("errors=remount-ro");
        let device = rustix::fs::stat(&self.path).unwrap().st_dev;
        let name = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let name = std::fs::canonicalize(name).unwrap().file_name().unwrap().to_owned();
        let trigger = Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error");
        std::fs::write(trigger, "a test").unwrap();
    }

    /// Mounts it again, as after the next start of the machine.
    pub(crate) fn again(&self) {
        rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::empty()).unwrap();
        let file = self.directory.path().join("disk");
        // As long as the device exists, the old file system would be mounted.
        until_detached(&file);
        run("mount", &["-o", "loop", file.to_str().unwrap(), self.path.to_str().unwrap()]);
    }

    /// Bytes that can be written, as `statvfs` says.
    pub(crate) fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.path).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Takes every inode.
    pub(crate) fn fill_inodes(&self) {
        let directory = self.path.join("inodes");
        std::fs::create_dir(&directory).unwrap();
        for number in 0.. {
            if std::fs::File::create(directory.join(number.to_string())).is_err() {
                break;
            }
        }
        assert_eq!(rustix::fs::statvfs(&self.path).unwrap().f_favail, 0, "no inode is left");
    }

    /// Fills every block with one file.
    pub(crate) fn fill(&self, name: &str) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.path.join(name)).unwrap();
        for size in [1 << 20, 4096, 512] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        file.sync_all().unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
        file.sync_all().unwrap();
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::empty()).is_err() {
            let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "file systems are made by their own tools")]
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let status = std::process::Command::new(program).args(arguments).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{program} {arguments:?}: {status:?}");
}
