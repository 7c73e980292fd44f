//! Reads a directory tree entry by entry, and compares two. Attributes that it ignores are listed at [`Entry`].

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// An entry of a tree. Ignored: access and change times, which no layer holds; size and link count of directories, which
/// are the file system's own affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    mtime: (i64, i64),
    links: u64,
    /// The first path with the same inode.
    same_file: PathBuf,
    device: u64,
    xattrs: BTreeMap<String, Vec<u8>>,
    /// Digest of a file's content, target of a symbolic link.
    content: String,
}

/// A whole tree by path; the root is the empty path.
pub(crate) type Tree = BTreeMap<PathBuf, Entry>;

/// Reads a tree.
#[track_caller]
pub(crate) fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut first = BTreeMap::new();
    visit(root, Path::new(""), &mut tree, &mut first);
    tree
}

fn visit(root: &Path, below: &Path, tree: &mut Tree, first: &mut BTreeMap<(u64, u64), PathBuf>) {
    let path = if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) };
    let meta = fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let kind = meta.file_type();
    let (kind, content) = match kind {
        k if k.is_dir() => ("directory", String::new()),
        k if k.is_file() => ("file", digest_of(&path)),
        k if k.is_symlink() => ("symlink", fs::read_link(&path).expect("it is a link").display().to_string()),
        k if k.is_fifo() => ("fifo", String::new()),
        k if k.is_socket() => ("socket", String::new()),
        k if k.is_char_device() => ("char device", String::new()),
        _ => ("block device", String::new()),
    };
    let directory = kind == "directory";
    let same_file = first.entry((meta.dev(), meta.ino())).or_insert_with(|| below.to_path_buf()).clone();
    let entry = Entry {
        kind,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        size: if directory { 0 } else { meta.size() },
        mtime: (meta.mtime(), meta.mtime_nsec()),
        links: if directory { 0 } else { meta.nlink() },
        same_file: if directory { below.to_path_buf() } else { same_file },
        device: if kind.ends_with("device") { meta.rdev() } else { 0 },
        xattrs: xattrs(&path),
        content,
    };
    tree.insert(below.to_path_buf(), entry);
    if directory {
        let mut names: Vec<_> =
            fs::read_dir(&path).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
        names.sort();
        for name in names {
            visit(root, &below.join(name), tree, first);
        }
    }
}

fn digest_of(path: &Path) -> String {
    let mut file = fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut hasher = oci::Algorithm::Sha256.hasher();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut buffer).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if n == 0 {
            return hasher.finish().to_string();
        }
        hasher.update(&buffer[..n]);
    }
}

/// All attributes but those with which overlayfs keeps its own books.
fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    list[..length]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| !name.starts_with("trusted.overlay."))
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let n = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..])
                .unwrap_or_else(|e| panic!("{} {name}: {e}", path.display()));
            value.truncate(n);
            (name, value)
        })
        .collect()
}

/// The differences of two trees: `path: field: left | right`, sorted.
pub(crate) fn differences(left: &Tree, right: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut paths: Vec<&PathBuf> = left.keys().chain(right.keys()).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        let name = String::from_utf8_lossy(path.as_os_str().as_bytes());
        match (left.get(path), right.get(path)) {
            (Some(l), Some(r)) => {
                for (field, l, r) in fields(l, r) {
                    found.push(format!("/{name}: {field}: {l} | {r}"));
                }
            }
            (Some(l), None) => found.push(format!("/{name}: {} | absent", l.kind)),
            (None, Some(r)) => found.push(format!("/{name}: absent | {}", r.kind)),
            (None, None) => {}
        }
    }
    found
}

/// The fields in which two entries differ.
fn fields(l: &Entry, r: &Entry) -> Vec<(&'static str, String, String)> {
    let all = [
        ("type", l.kind.to_owned(), r.kind.to_owned()),
        ("mode", format!("{:o}", l.mode), format!("{:o}", r.mode)),
        ("owner", format!("{:?}", l.owner), format!("{:?}", r.owner)),
        ("size", l.size.to_string(), r.size.to_string()),
        ("mtime", format!("{:?}", l.mtime), format!("{:?}", r.mtime)),
        ("links", l.links.to_string(), r.links.to_string()),
        ("same file", l.same_file.display().to_string(), r.same_file.display().to_string()),
        ("device", l.device.to_string(), r.device.to_string()),
        ("xattrs", format!("{:?}", l.xattrs), format!("{:?}", r.xattrs)),
        ("content", l.content.clone(), r.content.clone()),
    ];
    all.into_iter().filter(|(_, l, r)| l != r).collect()
}
