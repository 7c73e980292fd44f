//! Makes images as OCI layouts on disk, from real directories and with the machine's own tar, gzip and zstd, so that
//! no line of imagelet stands on both sides of a comparison. Knows no registry.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use oci::Digest;
use oci::media_type as types;
use serde_json::{Value, json};

use super::process::{run, tool};

/// The time of everything that is made here.
pub(crate) const EPOCH: &str = "@1700000000";

/// How a layer's blob is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    /// Gzip in many members, as block compressors write it.
    Members,
    /// Gzip without compression: stored blocks only.
    Stored,
    Zstd,
    /// Zstd in many frames, with frames between them that a reader skips.
    Frames,
}

/// A blob in a layout.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

impl Blob {
    pub(crate) fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest.to_string(), "size": self.size})
    }
}

/// A layer: its blob, and the digest of the tar in it.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) blob: Blob,
    pub(crate) diff_id: Digest,
}

/// An image, or an index of several.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Manifest or index.
    pub(crate) manifest: Blob,
    /// Image id of a single image.
    pub(crate) id: String,
    /// Every blob that the registry must have before the manifest, manifests of an index included.
    pub(crate) blobs: Vec<Blob>,
}

/// An OCI layout.
pub(crate) struct Layout(PathBuf);

impl Layout {
    /// Opens the layout at a path, or creates it.
    #[track_caller]
    pub(crate) fn at(path: &Path) -> Self {
        fs::create_dir_all(path.join("blobs/sha256")).expect("create a layout");
        let layout = Self(path.to_path_buf());
        if !path.join("index.json").exists() {
            fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("write a layout");
            layout.write_index(&[]);
        }
        layout
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a blob.
    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.0.join("blobs/sha256").join(digest.hex())
    }

    /// Adds bytes as a blob.
    pub(crate) fn add(&self, bytes: &[u8], media_type: &str) -> Blob {
        let digest = Digest::sha256(bytes);
        fs::write(self.blob_path(&digest), bytes).expect("write a blob");
        Blob { media_type: media_type.to_owned(), digest, size: bytes.len() as u64 }
    }

    /// A layer of everything in a directory, entry `./` included, with all extended attributes.
    #[track_caller]
    pub(crate) fn layer(&self, directory: &Path, packing: Packing) -> Layer {
        self.layer_with(directory, packing, &["."])
    }

    /// A layer of these paths of a directory and of nothing else: parents that are not named have no entry.
    #[track_caller]
    pub(crate) fn layer_with(&self, directory: &Path, packing: Packing, paths: &[&str]) -> Layer {
        self.layer_as(directory, packing, paths, &POSIX)
    }

    /// The same with these options of tar's, which say the format.
    #[track_caller]
    pub(crate) fn layer_as(&self, directory: &Path, packing: Packing, paths: &[&str], format: &[&str]) -> Layer {
        let tar = self.tar_as(directory, paths, format);
        let layer = self.layer_from_tar(&tar, packing);
        fs::remove_file(&tar).expect("remove a tar");
        layer
    }

    /// The tar of [`Layout::layer_with`]. The next one takes its place.
    #[track_caller]
    pub(crate) fn tar(&self, directory: &Path, paths: &[&str]) -> PathBuf {
        self.tar_as(directory, paths, &POSIX)
    }

    #[track_caller]
    fn tar_as(&self, directory: &Path, paths: &[&str], format: &[&str]) -> PathBuf {
        let tar = self.0.join("layer.tar");
        run(tool("tar")
            .arg("-C")
            .arg(directory)
            .args(["--sort=name", "--numeric-owner", "--no-recursion"])
            .args(format)
            .arg("-cf")
            .arg(&tar)
            .args(["--verbatim-files-from", "--null", "-T"])
            .arg(list_of(directory, paths, &self.0.join("layer.list"))));
        tar
    }

    /// Makes a layer of an existing tar.
    #[track_caller]
    pub(crate) fn layer_from_tar(&self, tar: &Path, packing: Packing) -> Layer {
        let diff_id = digest_of_file(tar);
        let packed = self.0.join("layer.packed");
        let out = File::create(&packed).expect("create a blob");
        let packer = |program: &str, args: &[&str]| {
            let mut command = tool(program);
            command.args(args);
            command
        };
        let (command, media_type) = match packing {
            Packing::Plain => (Some(packer("cat", &[])), types::OCI_LAYER),
            Packing::Gzip => (Some(packer("gzip", &["-n", "-1", "-c"])), types::OCI_LAYER_GZIP),
            Packing::Members => {
                (Some(packer("split", &["-b", "300007", "--filter=gzip -n -1 -c", "-"])), types::OCI_LAYER_GZIP)
            }
            Packing::Stored => (None, types::OCI_LAYER_GZIP),
            Packing::Zstd => (Some(packer("zstd", &["-q", "-3", "-c"])), types::OCI_LAYER_ZSTD),
            Packing::Frames => (Some(packer("split", &["-b", "500009", FRAMES, "-"])), types::OCI_LAYER_ZSTD),
        };
        match command {
            Some(mut command) => {
                run(command.stdin(File::open(tar).expect("open a tar")).stdout(Stdio::from(out)));
            }
            None => fs::write(&packed, stored(&fs::read(tar).expect("read a tar"))).expect("write a blob"),
        }
        let digest = digest_of_file(&packed);
        let size = fs::metadata(&packed).expect("stat a blob").len();
        fs::rename(&packed, self.blob_path(&digest)).expect("name a blob");
        Layer { blob: Blob { media_type: media_type.to_owned(), digest, size }, diff_id }
    }

    /// An image of these layers, lowest first, for this machine's platform.
    pub(crate) fn image(&self, layers: &[Layer]) -> Image {
        self.image_for(layers, &json!({"Cmd": ["/bin/sh"]}), &platform())
    }

    /// An image with this `config` member, for this platform (`architecture`, `os`, perhaps `variant`).
    pub(crate) fn image_for(&self, layers: &[Layer], run_config: &Value, platform: &Value) -> Image {
        let mut config = json!({
            "created": "2023-11-14T22:13:20Z",
            "config": run_config,
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|l| l.diff_id.to_string()).collect::<Vec<_>>()},
        });
        for (key, value) in platform.as_object().expect("a platform is an object") {
            config[key] = value.clone();
        }
        self.image_of(layers, config.to_string().as_bytes())
    }

    /// An image with this very config.
    pub(crate) fn image_of(&self, layers: &[Layer], config: &[u8]) -> Image {
        let config = self.add(config, types::OCI_CONFIG);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": types::OCI_MANIFEST,
            "config": config.descriptor(),
            "layers": layers.iter().map(|l| l.blob.descriptor()).collect::<Vec<_>>(),
        });
        let manifest = self.add(manifest.to_string().as_bytes(), types::OCI_MANIFEST);
        let id = config.digest.to_string();
        let blobs = layers.iter().map(|l| l.blob.clone()).chain([config]).collect();
        Image { manifest, id, blobs }
    }

    /// An index of images for platforms.
    pub(crate) fn index(&self, images: &[(&Image, Value)]) -> Image {
        let manifests: Vec<Value> = images
            .iter()
            .map(|(image, platform)| {
                let mut descriptor = image.manifest.descriptor();
                descriptor["platform"] = platform.clone();
                descriptor
            })
            .collect();
        let index = json!({"schemaVersion": 2, "mediaType": types::OCI_INDEX, "manifests": manifests});
        let manifest = self.add(index.to_string().as_bytes(), types::OCI_INDEX);
        let blobs = images.iter().flat_map(|(i, _)| i.blobs.iter().cloned().chain([i.manifest.clone()])).collect();
        Image { manifest, id: String::new(), blobs }
    }

    /// Names an image in the layout's index.
    pub(crate) fn name(&self, image: &Image, name: &str) {
        let index = fs::read_to_string(self.0.join("index.json")).expect("read an index");
        let mut index: Value = serde_json::from_str(&index).expect("an index is JSON");
        let mut descriptor = image.manifest.descriptor();
        descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        let manifests = index["manifests"].as_array_mut().expect("an index has manifests");
        manifests.push(descriptor);
        let manifests = manifests.clone();
        self.write_index(&manifests);
    }

    fn write_index(&self, manifests: &[Value]) {
        let index = json!({"schemaVersion": 2, "mediaType": types::OCI_INDEX, "manifests": manifests});
        fs::write(self.0.join("index.json"), index.to_string()).expect("write an index");
    }
}

/// How tar writes everything that a layer can hold, and nothing else.
const POSIX: [&str; 4] = ["--format=posix", "--pax-option=delete=atime,delete=ctime", "--xattrs", "--xattrs-include=*"];

/// A frame with content, and one of four bytes that stand for nothing.
const FRAMES: &str = r"--filter=zstd -q -3 -c; printf '\120\052\115\030\004\000\000\000skip'";

/// Gzip with nothing compressed: blocks of at most 65535 bytes, and the sum that stands at the end.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut table = [0_u32; 256];
    for (n, entry) in (0_u32..).zip(&mut table) {
        *entry = (0..8).fold(n, |sum, _| if sum & 1 == 1 { 0xEDB8_8320 ^ (sum >> 1) } else { sum >> 1 });
    }
    let sum = !bytes.iter().fold(!0_u32, |sum, b| table[usize::from(sum.to_le_bytes()[0] ^ b)] ^ (sum >> 8));
    let mut packed = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let blocks = bytes.chunks(65535);
    let last = blocks.len();
    for (n, block) in (1..).zip(blocks) {
        let length = u16::try_from(block.len()).expect("it is short");
        packed.push(u8::from(n == last));
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(&(!length).to_le_bytes());
        packed.extend_from_slice(block);
    }
    packed.extend_from_slice(&sum.to_le_bytes());
    packed.extend_from_slice(&u32::try_from(bytes.len()).expect("it is not that long").to_le_bytes());
    packed
}

/// This machine's platform.
pub(crate) fn platform() -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({"architecture": architecture, "os": "linux"})
}

/// Writes the sorted list of all entries below these paths, for tar. A path that starts with `=` stands for itself alone.
fn list_of(directory: &Path, paths: &[&str], list: &Path) -> PathBuf {
    fn below(directory: &Path, path: &Path, all: &mut Vec<PathBuf>) {
        all.push(path.to_path_buf());
        let full = directory.join(path);
        if fs::symlink_metadata(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display())).is_dir() {
            for entry in fs::read_dir(&full).expect("a directory") {
                below(directory, &path.join(entry.expect("an entry").file_name()), all);
            }
        }
    }
    let mut all = Vec::new();
    for path in paths {
        match path.strip_prefix('=') {
            Some(alone) => all.push(PathBuf::from(alone)),
            None => below(directory, Path::new(path), &mut all),
        }
    }
    all.sort();
    let mut file = File::create(list).expect("create a list");
    for path in all {
        file.write_all(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())).expect("write a list");
        file.write_all(b"\0").expect("write a list");
    }
    list.to_path_buf()
}

/// Digest of a file.
pub(crate) fn digest_of_file(path: &Path) -> Digest {
    let mut hasher = oci::Algorithm::Sha256.hasher();
    let mut file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut buffer = vec![0; 1 << 18];
    loop {
        let n = file.read(&mut buffer).expect("read a file");
        if n == 0 {
            return hasher.finish();
        }
        hasher.update(&buffer[..n]);
    }
}

/// Writes a file with its parents.
#[track_caller]
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a file has a parent")).expect("create a directory");
    fs::write(path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Gives a whole tree the one time.
#[track_caller]
pub(crate) fn settle(root: &Path) {
    run(tool("find").arg(root).args(["-exec", "touch", "-h", "-d", EPOCH, "{}", "+"]));
}

/// Makes a root file system of busybox: its applets as symbolic links, a few directories, a user.
#[track_caller]
pub(crate) fn busybox_tree(root: &Path) {
    for directory in ["bin", "dev", "proc", "sys", "tmp", "root", "etc"] {
        fs::create_dir_all(root.join(directory)).expect("create a directory");
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).expect("chmod");
    let busybox = "/bin/busybox";
    fs::copy(busybox, root.join("bin/busybox"))
        .unwrap_or_else(|e| panic!("copy {busybox}: {e}: run scripts/prerequisites.sh"));
    for applet in run(tool("busybox").arg("--list")).lines().filter(|a| *a != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).expect("link an applet");
    }
    write(&root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
    write(&root.join("etc/group"), "root:x:0:\n");
    settle(root);
}

/// The tar of a Debian root file system, made once by mmdebstrap and kept below the target directory.
#[track_caller]
pub(crate) fn debian_tar() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/");
    let tar = run(tool("bash").arg(repository.join("scripts/debian-rootfs.sh")));
    PathBuf::from(tar.trim())
}
