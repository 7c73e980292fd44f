//! EROFS files of `mkfs.erofs` read as the trees that they were made of, damage by name, and spoiled EROFS files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::testing::{exercise, mutate, numbers};

#[expect(clippy::disallowed_methods, reason = "images are made by the format's own tools")]
fn run(program: &str, arguments: &[&str]) {
    let done = std::process::Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Every kind of thing, and sizes around those of a block.
fn tree(top: &Path) {
    for size in [0, 1, 100, 4000, 4095, 4096, 4097, 8191, 8192, 70_000] {
        let content: Vec<u8> = (0..size).map(|n: usize| n.to_le_bytes()[n % 2].wrapping_mul(31)).collect();
        fs::write(top.join(format!("file-{size}")), content).unwrap();
    }
    fs::write(top.join("zeros"), vec![0; 40_000]).unwrap();
    fs::create_dir_all(top.join("a/deep/directory/of/many")).unwrap();
    let many = top.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..700 {
        fs::write(many.join(format!("a name that takes some space {number}")), number.to_string()).unwrap();
    }
    // mkfs.erofs 1.5 stops at names of 255 bytes.
    fs::write(many.join("n".repeat(200)), "long").unwrap();
    fs::write(top.join(std::ffi::OsStr::from_bytes(b"not utf-8 \xff\xfe")), "x").unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    symlink("/etc/passwd", top.join("link")).unwrap();
    symlink("t".repeat(3000), top.join("long-link")).unwrap();
    fs::hard_link(top.join("file-100"), top.join("a/hard")).unwrap();
    let at = |name: &str| top.join(name).display().to_string();
    run("mkfifo", &[&at("fifo")]);
    run("setfattr", &["-n", "user.one", "-v", "value", &at("file-100")]);
    run("setfattr", &["-n", "user.long", "-v", &"v".repeat(3000), &at("file-4097")]);
    for number in 0..20 {
        let file = top.join(format!("shares-{number}"));
        fs::write(&file, "x").unwrap();
        run("setfattr", &["-n", "user.shared", "-v", &"s".repeat(200), &file.display().to_string()]);
    }
    if is_root() {
        run("mknod", &[&at("null"), "c", "1", "3"]);
        run("mknod", &[&at("block"), "b", "259", "70000"]);
        run("mknod", &[&at("whiteout"), "c", "0", "0"]);
        run("chown", &["70000:80000", &at("file-1")]);
        run("setfattr", &["-n", "trusted.overlay.opaque", "-v", "y", &at("empty")]);
    }
    run("touch", &["-h", "-d", "2001-02-03T04:05:06.789", &at("file-1"), &at("link")]);
    run("touch", &["-d", "1960-01-01T00:00:00Z", &at("empty")]);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Descriptions of files: as a mounted file system has them, or as the reader has them.
type Tree = BTreeMap<Vec<u8>, String>;

fn on_disk(top: &Path, path: &Path, compact: bool, into: &mut Tree) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let content = if kind.is_file() {
        format!("{:?}", digest(&fs::read(path).unwrap()))
    } else if kind.is_symlink() {
        String::from_utf8_lossy(fs::read_link(path).unwrap().as_os_str().as_bytes()).into_owned()
    } else if kind.is_char_device() || kind.is_block_device() {
        let device = meta.rdev();
        format!("{:?}", (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00))
    } else {
        String::new()
    };
    let size = if kind.is_file() || kind.is_symlink() { meta.size() } else { 0 };
    let time = if compact { (0, 0) } else { (meta.mtime(), meta.mtime_nsec()) };
    let links = meta.nlink();
    let word = format!("{:o} {}:{} {size} {links} {time:?} {content}", meta.mode(), meta.uid(), meta.gid());
    let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
    into.insert(name, word);
    if kind.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            on_disk(top, &entry.unwrap().path(), compact, into);
        }
    }
}

fn digest(bytes: &[u8]) -> u32 {
    crate::format::crc32c::update(u32::MAX, bytes)
}

fn in_image<R: Source>(image: &Reader<R>, info: &InodeInfo, path: &[u8], compact: bool, into: &mut Tree) {
    let content = match info.kind {
        Kind::File => {
            let mut bytes = vec![0; usize::try_from(info.size).unwrap() + 10];
            let length = image.read(info, 0, &mut bytes).unwrap();
            // In odd pieces it is the same.
            let (mut pieces, mut piece) = (Vec::new(), [0; 1000]);
            while let length @ 1.. = image.read(info, pieces.len() as u64, &mut piece).unwrap() {
                pieces.extend_from_slice(&piece[..length]);
            }
            assert_eq!(pieces, bytes[..length]);
            format!("{:?}", digest(&pieces))
        }
        Kind::Symlink => String::from_utf8_lossy(&image.link_target(info).unwrap()).into_owned(),
        Kind::Char | Kind::Block => format!("{:?}", info.device),
        _ => String::new(),
    };
    let mode = u32::from(crate::format::inode::kind_bits(info.kind)) | info.mode;
    let size = if info.kind == Kind::Directory { 0 } else { info.size };
    let time = if compact { (0, 0) } else { (info.mtime.0, i64::from(info.mtime.1)) };
    let word = format!("{mode:o} {}:{} {size} {} {time:?} {content}", info.uid, info.gid, info.links);
    into.insert(path.to_vec(), word);
    if info.kind == Kind::Directory {
        for entry in image.entries(info).unwrap() {
            let entry = entry.unwrap();
            let below = if path.is_empty() { entry.name.clone() } else { [path, b"/", &entry.name].concat() };
            assert_eq!(image.lookup(info, &entry.name).unwrap().as_ref(), Some(&entry));
            let found = image.inode(entry.nid).unwrap();
            assert_eq!(found.kind, entry.kind);
            assert_eq!(image.walk_path(&below).unwrap().as_ref(), Some(&found));
            in_image(image, &found, &below, compact, into);
        }
        for nothing in [&b"nothing"[..], b"", b"!", b"zzzz", b"\xff\xff"] {
            assert_eq!(image.lookup(info, nothing).unwrap(), None);
        }
    }
}

/// An EROFS file of the tree.
fn mkfs(top: &Path, options: &[&str]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    run("mkfs.erofs", &[options, &["--quiet", &path, &top.display().to_string()]].concat());
    fs::read(&path).unwrap()
}

#[test]
#[ignore = "needs erofs-utils: scripts/test.sh"]
fn images_of_mkfs_match_their_source_trees() {
    let top = tempfile::tempdir().unwrap();
    tree(top.path());
    let ways: [&[&str]; 6] = [
        &["-Eforce-inode-extended"],
        &["-T0"],
        &["-Enoinline_data", "-x-1"],
        &["--chunksize=4096", "-Eforce-inode-blockmap"],
        &["--chunksize=16384", "-Eforce-chunk-indexes"],
        &["-x1", "-Elegacy-compress"],
    ];
    for way in ways {
        let compact = way.contains(&"-T0");
        let bytes = mkfs(top.path(), way);
        let image = Reader::open(bytes.as_slice()).unwrap_or_else(|e| panic!("{way:?}: {e}"));
        let (mut want, mut got) = (Tree::new(), Tree::new());
        on_disk(top.path(), top.path(), compact, &mut want);
        let root = image.inode(image.root()).unwrap();
        in_image(&image, &root, b"", compact, &mut got);
        assert_eq!(got, want, "{way:?}");
        let checked = image.check().unwrap_or_else(|e| panic!("{way:?}: {e}"));
        assert!(checked.inodes > 700 && checked.directories >= 8, "{way:?}: {checked:?}");
        if !way.contains(&"-x-1") {
            let xattr = |path: &[u8], name: &[u8]| {
                let info = image.walk_path(path).unwrap().unwrap();
                let value = image.xattr(&info, name).unwrap();
                let all = image.xattrs(&info).unwrap();
                assert_eq!(all.iter().find(|(n, _)| n == name).map(|(_, value)| value), value.as_ref());
                value
            };
            assert_eq!(xattr(b"file-100", b"user.one").unwrap(), b"value", "{way:?}");
            assert_eq!(xattr(b"file-4097", b"user.long").unwrap(), vec![b'v'; 3000]);
            assert_eq!(xattr(b"shares-3", b"user.shared").unwrap(), vec![b's'; 200]);
            assert_eq!(xattr(b"shares-3", b"user.none"), None);
            if is_root() {
                assert_eq!(xattr(b"empty", b"trusted.overlay.opaque").unwrap(), b"y");
                assert!(image.walk_path(b"whiteout").unwrap().unwrap().is_whiteout());
            }
        }
        let work = exercise(&bytes);
        assert!(work.good && work.inodes > 700, "{work:?}");
    }
}

#[test]
#[ignore = "needs erofs-utils: scripts/test.sh"]
fn unsupported_features_are_named() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("text"), "a line\n".repeat(10_000)).unwrap();
    let bytes = mkfs(top.path(), &["-zlz4hc"]);
    let image = Reader::open(bytes.as_slice()).map(|image| image.check());
    let message = match image {
        Ok(checked) => checked.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(message.contains("compress"), "{message}");

    let plain = mkfs(top.path(), &[]);
    let with = |at: usize, bytes: &[u8]| {
        let mut image = plain.clone();
        image[superblock::OFFSET + at..superblock::OFFSET + at + bytes.len()].copy_from_slice(bytes);
        let first: &mut [u8; BLOCK] = (&mut image[..BLOCK]).try_into().unwrap();
        superblock::seal(first);
        Reader::open(image.as_slice()).map(|_| ()).unwrap_err().to_string()
    };
    for (at, bytes, want) in [
        (80, &[0x20_u8][..], "uses packed fragments,"),
        (80, &[0x40], "prefixes of attribute names"),
        (80, &[0x08], "uses further devices,"),
        (80, &[0, 0x80, 0, 0], "unknown features 0x8000"),
        (80, &[0xa0], "packed fragments and addresses of 48 bits"),
        (86, &[1], "further devices"),
        (90, &[1], "larger blocks"),
        (12, &[13], "blocks of 2^13 bytes"),
        (0, &[0], "not an EROFS image"),
        (36, &[0xff; 4], "the superblock says 4294967295 blocks"),
        (40, &[0xff; 4], "metadata begins beyond its end"),
        (14, &[0xff; 2], "inode 65535"),
        (32, &[0xff; 4], "time is none"),
    ] {
        let message = with(at, bytes);
        assert!(message.contains(want), "{at}: {message}");
    }
    let mut broken = plain.clone();
    broken[superblock::OFFSET + 20] ^= 1;
    assert!(Reader::open(broken.as_slice()).unwrap_err().to_string().contains("checksum"));
    for length in [0, 100, 1024, 1200, 4095] {
        let message = Reader::open(&plain[..length]).map(|_| ()).unwrap_err().to_string();
        assert!(
            message.contains("not an EROFS image") || message.contains("shorter than a block"),
            "{length}: {message}"
        );
    }
}

/// A small EROFS file with everything that can be damaged, its tree, and where things are in it.
fn small() -> (Vec<u8>, BTreeMap<&'static str, u64>) {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir_all(top.path().join("dir/below")).unwrap();
    fs::write(top.path().join("dir/file"), vec![7; 5000]).unwrap();
    fs::write(top.path().join("dir/other"), "other").unwrap();
    symlink("dir/file", top.path().join("link")).unwrap();
    let file = top.path().join("dir/file").display().to_string();
    run("setfattr", &["-n", "user.one", "-v", "value", &file]);
    let bytes = mkfs(top.path(), &["-Eforce-inode-extended"]);
    let image = Reader::open(bytes.as_slice()).unwrap();
    let places = ["", "dir", "dir/below", "dir/file", "dir/other", "link"];
    let places = places.into_iter().map(|path| {
        let info = image.walk_path(path.as_bytes()).unwrap().unwrap();
        (path, image.place(info.nid).unwrap())
    });
    let places = places.collect();
    (bytes, places)
}

#[test]
#[ignore = "needs erofs-utils: scripts/test.sh"]
fn damage_is_reported_precisely() {
    let (bytes, places) = small();
    let image = Reader::open(bytes.as_slice()).unwrap();
    image.check().unwrap();
    let place = |path: &str| usize::try_from(places[path]).unwrap();
    // Where the entries of `dir` are: behind its inode, or in a block of its own.
    let dir = image.walk_path(b"dir").unwrap().unwrap();
    let entries = match dir.raw.layout {
        crate::format::inode::Layout::Inline => place("dir") + usize::try_from(dir.head()).unwrap(),
        _ => usize::try_from(dir.raw.union).unwrap() * BLOCK,
    };
    let nid = |path: &str| image.walk_path(path.as_bytes()).unwrap().unwrap().nid.0.to_le_bytes();
    let names = entries + 5 * 12;
    assert_eq!(&bytes[names..names + 7], b"...belo", "the names of dir");
    let cases: &[(&str, usize, &[u8], &str)] = &[
        ("no layout", place("dir/file"), &[0x0b], "invalid format"),
        ("compressed", place("dir/file"), &[0x03], "compressed data"),
        ("form", place("dir/file"), &[0x05, 0x10], "of form"),
        ("no kind", place("dir/file") + 5, &[0], "invalid mode"),
        ("time", place("dir/file") + 40, &[0xff; 4], "nanoseconds"),
        ("longer than the image", place("dir/file") + 8, &[0xff, 0xff, 0xff, 0x7f], "ends beyond the end"),
        ("longer than anything", place("dir/file") + 8, &[0xff; 8], "no file is so long"),
        ("a tail over a block", place("dir/other") + 8, &[0, 16], "tail"),
        ("data elsewhere", place("dir/file") + 16, &[0xfe; 4], "ends beyond the end"),
        ("many attributes", place("dir/file") + 2, &[0xff; 2], "attributes"),
        ("many shared ones", place("dir/file") + 64 + 4, &[0xff], "shared extended attributes end beyond"),
        ("a long attribute", place("dir/file") + 64 + 12 + 2, &[0xff; 2], "ends beyond its area"),
        ("no prefix", place("dir/file") + 64 + 12 + 1, &[9], "no prefix"),
        ("its own prefix", place("dir/file") + 64 + 12 + 1, &[0x81], "prefixes of attribute names"),
        ("an empty link", place("link") + 8, &[0], "its target is empty"),
        ("a long link", place("link") + 8, &[0x01, 0x10], "t"),
        ("no name", place("dir/file") + 44, &[0], "has the link count 0"),
        ("too many names", place("dir/file") + 44, &[2], "link count 2, found 1"),
        ("a directory's names", place("dir") + 44, &[9], "link count 9, found 3"),
        ("name of the first", entries + 8, &[13], "first name of a block"),
        ("names beyond", entries + 8, &[0xfc, 0x0f], "first name of a block"),
        ("a name before", entries + 12 + 8, &[60], "behind each other"),
        ("a name far behind", entries + 12 + 8, &[0xff, 0x0f], "behind each other"),
        ("names out of order", names + 3, b"z", "not in order"),
        ("a slash", names + 4, b"/", "a name that is none"),
        ("a zero", names + 4, &[0], "a name that is none"),
        ("no kind in an entry", entries + 10, &[8], "something of no kind"),
        ("another kind", entries + 2 * 12 + 10, &[1], "differs from its inode"),
        ("nid nowhere", entries + 3 * 12, &[0xff; 8], "lies beyond the end"),
        ("nid far", entries + 3 * 12, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0], "lies beyond the end"),
        ("itself", entries + 2 * 12, &nid("dir"), "overlaps other data"),
        ("its parent", entries + 2 * 12, &nid(""), "overlaps other data"),
        ("two names", entries + 4 * 12, &nid("dir/file"), "overlaps other data"),
        ("not itself", entries, &nid("dir/below"), "entries . and .. are missing or wrong"),
        ("another parent", entries + 12, &nid("dir"), "entries . and .. are missing or wrong"),
        ("data of another", place("dir/file") + 16, &0_u32.to_le_bytes(), "overlaps other data"),
    ];
    for (what, at, spoil, want) in cases {
        let mut spoiled = bytes.clone();
        spoiled[*at..at + spoil.len()].copy_from_slice(spoil);
        let first: &mut [u8; BLOCK] = (&mut spoiled[..BLOCK]).try_into().unwrap();
        superblock::seal(first);
        let message = match Reader::open(spoiled.as_slice()) {
            Ok(image) => image.check().map(|_| ()).expect_err(what).to_string(),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(want), "{what}: {message}");
        assert!(!exercise(&spoiled).good, "{what}");
    }
}

/// An EROFS file of our writer, with everything in it that has a form of its own.
fn ours() -> Vec<u8> {
    use crate::{Attributes, Options, Special, Writer};
    let options = Options {
        uuid: [7; 16],
        time: Some((1_000_000_000, 0)),
        memory: Options::MEMORY,
        spill: Box::new(tempfile::tempfile),
    };
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    let xattrs = |count: usize| (0..count).map(|n| (format!("user.x{n}").into_bytes(), vec![b'v'; 40 * n])).collect();
    let plain = |mode: u32, count: usize| Attributes {
        mode,
        mtime: (1_000_000_000, 0),
        xattrs: xattrs(count),
        ..Default::default()
    };
    let root = writer.root();
    let dir = writer.directory(root, b"dir").unwrap();
    let extended = Attributes { uid: 70_000, mtime: (-5, 999_999_999), ..plain(0o1777, 3) };
    writer.set_directory(dir, &extended, false).unwrap();
    let implicit = writer.directory(root, b"implicit").unwrap();
    for size in [0_usize, 1, 4000, 4096, 5000, 100_000] {
        writer.begin_file(size as u64, &plain(0o644, size % 7)).unwrap();
        writer.data(&vec![b'd'; size]).unwrap();
        let file = writer.end_file().unwrap();
        writer.link(dir, format!("f{size}").as_bytes(), file).unwrap();
        if size == 5000 {
            writer.link(implicit, b"again", file).unwrap();
            // What loses its name stays in the EROFS file, and is nothing of the tree.
            writer.link(root, b"gone", file).unwrap();
            writer.unlink(root, b"gone").unwrap();
        }
    }
    let replaced = writer.symlink(b"first", &plain(0o777, 0)).unwrap();
    writer.link(root, b"link", replaced).unwrap();
    let link = writer.symlink(&[b't'; 4000], &plain(0o777, 0)).unwrap();
    writer.link(root, b"link", link).unwrap();
    let whiteout = writer.special(Special::Char(0, 0), &plain(0, 0)).unwrap();
    writer.link(root, b"whiteout", whiteout).unwrap();
    writer.begin_sparse_file(1 << 33, &plain(0o600, 0)).unwrap();
    writer.data(b"begin").unwrap();
    writer.hole((1 << 33) - 8).unwrap();
    writer.data(b"end").unwrap();
    let sparse = writer.end_file().unwrap();
    writer.link(root, b"sparse", sparse).unwrap();
    for number in 0..300 {
        writer.begin_file(2, &plain(0o644, 2)).unwrap();
        writer.data(b"xy").unwrap();
        let file = writer.end_file().unwrap();
        writer.link(implicit, format!("many {number}").as_bytes(), file).unwrap();
    }
    let (mut bytes, _) = writer.finish().unwrap();
    let nid = Reader::open(bytes.as_slice()).unwrap().walk_path(b"implicit").unwrap().unwrap().nid;
    crate::patch(&mut bytes, nid, &Attributes { xattrs: xattrs(12), ..extended }).unwrap();
    bytes
}

#[test]
fn images_of_the_writer_are_read_completely() {
    let bytes = ours();
    let image = Reader::open(bytes.as_slice()).unwrap();
    let checked = image.check().unwrap();
    assert_eq!((checked.directories, checked.files), (3, 307), "{checked:?}");
    let at = |path: &str| image.walk_path(path.as_bytes()).unwrap().unwrap_or_else(|| panic!("{path}"));
    for path in ["dir", "implicit"] {
        let info = at(path);
        assert_eq!((info.mode, info.uid, info.mtime), (0o1777, 70_000, (-5, 999_999_999)), "{path}");
    }
    assert_eq!(image.xattrs(&at("implicit")).unwrap().len(), 12);
    assert_eq!(at("implicit/again").nid, at("dir/f5000").nid);
    assert_eq!((at("implicit/again").links, at("dir/f4096").mtime), (2, (1_000_000_000, 0)));
    assert_eq!(image.xattr(&at("dir/f5000"), b"user.x1").unwrap().unwrap(), vec![b'v'; 40]);
    assert_eq!(image.link_target(&at("link")).unwrap(), [b't'; 4000]);
    assert!(at("whiteout").is_whiteout() && image.walk_path(b"gone").unwrap().is_none());
    let sparse = at("sparse");
    let mut ends = [1; 8];
    assert_eq!((sparse.size, image.read(&sparse, 0, &mut ends).unwrap()), (1 << 33, 8));
    assert_eq!(&ends, b"begin\0\0\0");
    assert_eq!(image.read(&sparse, (1 << 33) - 5, &mut ends).unwrap(), 5);
    assert_eq!(&ends[..5], b"\0\0end");
    let (mut data, mut calls) = (1_u64 << 26, 0);
    loop {
        let next = image.hole(&sparse, data).unwrap();
        if next == data {
            break;
        }
        (data, calls) = (next, calls + 1);
    }
    assert!(data > (1 << 33) - (1 << 26) && calls < 3000, "from hole to hole: {data} after {calls}");
    assert!(exercise(&bytes).good);
}

/// A check reads the metadata a few times at most, whatever leads to it.
fn bounded(bytes: &[u8]) {
    let length = bytes.len() as u64;
    let used = allocation_counter::measure(|| {
        let work = exercise(bytes);
        assert!(work.by_check <= 64 * length + (1 << 20), "{work:?} for {length} bytes");
    });
    assert!(used.bytes_max < 24 << 20, "{used:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Each case spoils every EROFS file in several ways, the large ones in fewer.
    #[test]
    #[ignore = "needs erofs-utils: scripts/test.sh"]
    fn corrupt_images_are_errors(seed in any::<u64>()) {
        for (number, image) in spoilable().iter().enumerate() {
            for round in 0..(4_000_000 / image.len() as u64).clamp(2, 60) {
                let mut random = numbers(seed ^ (number as u64) << 40 ^ round << 50);
                let mut spoiled = image.clone();
                mutate(&mut spoiled, &mut random);
                bounded(&spoiled);
            }
        }
    }

    #[test]
    fn noise_is_not_an_image(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        bounded(&bytes);
        let mut magic = bytes;
        if magic.len() >= BLOCK {
            magic[superblock::OFFSET..superblock::OFFSET + 4].copy_from_slice(&superblock::MAGIC.to_le_bytes());
            magic[superblock::OFFSET + 12] = BLOCK_BITS;
            magic[superblock::OFFSET + 80..superblock::OFFSET + 91].fill(0);
            let first: &mut [u8; BLOCK] = (&mut magic[..BLOCK]).try_into().unwrap();
            superblock::seal(first);
            bounded(&magic);
        }
    }
}

/// EROFS files to spoil: made once.
fn spoilable() -> &'static [Vec<u8>] {
    static IMAGES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    IMAGES.get_or_init(|| {
        let top = tempfile::tempdir().unwrap();
        tree(top.path());
        let less = tempfile::tempdir().unwrap();
        fs::create_dir_all(less.path().join("d/e")).unwrap();
        fs::write(less.path().join("d/f"), vec![1; 9000]).unwrap();
        symlink("d/f", less.path().join("l")).unwrap();
        vec![
            small().0,
            ours(),
            mkfs(less.path(), &["--chunksize=4096", "-Eforce-chunk-indexes"]),
            mkfs(less.path(), &["--chunksize=4096", "-Eforce-inode-blockmap", "-T0"]),
            mkfs(&top.path().join("many"), &["-Eforce-inode-compact", "-T0"]),
            mkfs(top.path(), &["-x1"]),
        ]
    })
}

#[test]
fn nested_trees_are_found_in_their_directory() {
    let options = || crate::Options {
        uuid: [0; 16],
        time: None,
        memory: 1 << 20,
        spill: Box::new(|| Err(std::io::ErrorKind::Unsupported.into())),
    };
    let build = |mut writer: crate::Writer<Vec<u8>>| {
        let (root, attributes) = (writer.root(), crate::Attributes { mode: 0o644, ..crate::Attributes::default() });
        writer.begin_file(3, &attributes).unwrap();
        writer.data(b"abc").unwrap();
        let file = writer.end_file().unwrap();
        writer.link(root, b"file", file).unwrap();
        let implicit = crate::Attributes::implicit();
        writer.set_directory(root, &implicit, true).unwrap();
        writer.finish().unwrap().0
    };
    let plain = build(crate::Writer::new(Vec::new(), options()).unwrap());
    let mut nested = build(crate::Writer::nested(Vec::new(), options()).unwrap());
    for (image, is_nested, names) in [(&plain, false, vec!["file"]), (&nested, true, vec!["root"])] {
        let reader = Reader::open(image.as_slice()).unwrap();
        assert_eq!(reader.is_nested(), is_nested);
        assert!(reader.walk_path(b"file").unwrap().is_some_and(|file| file.size == 3));
        assert_eq!(reader.check().unwrap().inodes, if is_nested { 3 } else { 2 });
        // What a mount shows.
        let top = reader.inode(reader.top()).unwrap();
        let shown: Vec<String> =
            reader.entries(&top).unwrap().map(|entry| String::from_utf8(entry.unwrap().name).unwrap()).collect();
        assert_eq!(shown, names);
    }
    // The root can get other attributes afterwards.
    let nid = Reader::open(nested.as_slice()).unwrap().root();
    let attributes = crate::Attributes { mode: 0o700, uid: 7, ..crate::Attributes::default() };
    crate::patch(&mut nested, nid, &attributes).unwrap();
    let reader = Reader::open(nested.as_slice()).unwrap();
    let root = reader.inode(reader.root()).unwrap();
    assert_eq!((root.mode, root.uid), (0o700, 7));
    reader.check().unwrap();
    // A file that says that its tree is nested, and has no such directory.
    let mut wrong = plain;
    let at = crate::format::superblock::OFFSET + 64;
    wrong[at..at + 16].copy_from_slice(&crate::format::superblock::NESTED);
    crate::format::superblock::seal((&mut wrong[..4096]).try_into().unwrap());
    let error = Reader::open(wrong.as_slice()).unwrap_err().to_string();
    assert!(error.contains("no directory root"), "{error}");
}
