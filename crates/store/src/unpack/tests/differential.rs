//! GNU tar writes archives in all its formats, and both of us unpack them: the trees must be the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::support::{Layer, describe, picture};

/// How much a format can express.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Can {
    Little,
    Prefixes,
    LongNames,
    Everything,
}

fn source(root: &Path, can: Can) {
    let file = |path: &str, data: &[u8]| fs::write(root.join(path), data).unwrap();
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    file("empty", b"");
    file("dir/block", &[b'b'; 512]);
    file("dir/odd", &[b'o'; 1000]);
    file("dir/sub/big", &vec![b'x'; 700_001]);
    symlink("dir/odd", root.join("link")).unwrap();
    symlink("/nowhere/at/all", root.join("dir/dangling")).unwrap();
    fs::hard_link(root.join("dir/odd"), root.join("hard")).unwrap();
    fs::hard_link(root.join("link"), root.join("link-again")).unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"not \xff text\n")), b"1").unwrap();
    let mode = |path: &str, mode| fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    chown(root.join("empty"), Some(12), Some(34)).unwrap();
    mode("empty", 0o6711);
    mode("dir", 0o1773);
    mode("dir/sub", 0o500);
    if can >= Can::Prefixes {
        rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        let device = rustix::fs::makedev(5, 77);
        let mode = Mode::from_raw_mode(0o620);
        rustix::fs::mknodat(CWD, root.join("device"), FileType::CharacterDevice, mode, device).unwrap();
        let deep = format!("{}/{}", "p".repeat(80), "q".repeat(60));
        fs::create_dir_all(root.join(&deep)).unwrap();
        file(&format!("{deep}/file"), b"deep");
    }
    if can >= Can::LongNames {
        let deep = format!("{0}/{0}/{0}", "l".repeat(200));
        fs::create_dir_all(root.join(&deep)).unwrap();
        file(&format!("{deep}/file"), b"deeper");
        symlink("t/".repeat(200), root.join("long-target")).unwrap();
        fs::hard_link(root.join(format!("{deep}/file")), root.join("hard-long")).unwrap();
        chown(root.join("dir/block"), Some(3_000_000_000), Some(4_000_000_000)).unwrap();
        let mut sparse = File::create(root.join("sparse")).unwrap();
        for at in 0..40_u64 {
            sparse.seek(SeekFrom::Start(at * 100_000)).unwrap();
            sparse.write_all(&[b's'; 5000]).unwrap();
        }
        sparse.set_len(5_000_000).unwrap();
        File::create(root.join("hole")).unwrap().set_len(1 << 20).unwrap();
    }
    if can == Can::Everything {
        let set =
            |path: &str, name, value| rustix::fs::setxattr(root.join(path), name, value, XattrFlags::empty()).unwrap();
        set("dir/odd", "user.some", b"value\0\n=");
        set("dir", "user.other", b"");
        set("dir/sub/big", "security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
    let nanos = if can == Can::Everything { 123_456_789 } else { 0 };
    for path in ["dir/odd", "link", "dir/sub", "dir", "empty"] {
        let time = Timespec { tv_sec: 1_500_000_000, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, root.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "the point of the test is another program")]
fn tar(arguments: &[&str], archive: &Path, dir: &Path) {
    let output = std::process::Command::new("tar")
        .args(arguments)
        .args(["--numeric-owner", "-f"])
        .arg(archive)
        .arg("-C")
        .arg(dir)
        .args(if arguments.contains(&"-c") { &["."][..] } else { &[] })
        .output()
        .expect("tar is there");
    assert!(output.status.success(), "tar {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Pictures with times, whole seconds where the format has no more.
fn with_times(root: &Path, nanos: bool) -> BTreeMap<String, String> {
    let mut all = picture(root);
    for (path, text) in &mut all {
        if path.contains('\\') {
            continue;
        }
        let meta = fs::symlink_metadata(root.join(path)).unwrap();
        let sub = if nanos { meta.mtime_nsec() } else { 0 };
        *text += &format!(" @{}.{sub:09} {} links", meta.mtime(), meta.nlink());
        if meta.is_file() {
            let mut hash = 0_u64;
            for byte in fs::read(root.join(path)).unwrap() {
                hash = hash.wrapping_mul(31).wrapping_add(byte.into());
            }
            *text += &format!(" #{hash:x}");
        }
    }
    all
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn the_same_trees_as_gnu_tar() {
    let cases: &[(&str, &[&str], Can)] = &[
        ("v7", &["--format=v7"], Can::Little),
        ("ustar", &["--format=ustar"], Can::Prefixes),
        ("oldgnu", &["--format=oldgnu", "--sparse"], Can::LongNames),
        ("gnu", &["--format=gnu", "--sparse"], Can::LongNames),
        ("gnu without sparse", &["--format=gnu"], Can::LongNames),
        ("gnu incremental", &["--format=gnu", "--atime-preserve=replace"], Can::LongNames),
        ("pax", &["--format=pax", "--xattrs", "--xattrs-include=*"], Can::Everything),
        (
            "pax 0.0",
            &["--format=pax", "--xattrs", "--xattrs-include=*", "--sparse", "--sparse-version=0.0"],
            Can::Everything,
        ),
        (
            "pax 0.1",
            &["--format=pax", "--xattrs", "--xattrs-include=*", "--sparse", "--sparse-version=0.1"],
            Can::Everything,
        ),
        (
            "pax 1.0",
            &["--format=pax", "--xattrs", "--xattrs-include=*", "--sparse", "--sparse-version=1.0"],
            Can::Everything,
        ),
        ("pax with globals", &["--format=pax", "--pax-option=globexthdr.comment=x,comment=y"], Can::Everything),
    ];
    for (name, arguments, can) in cases {
        let work = tempfile::tempdir().unwrap();
        let [from, theirs] = ["from", "theirs"].map(|name| work.path().join(name));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&theirs).unwrap();
        source(&from, *can);
        let archive = work.path().join("archive.tar");
        tar(&[arguments, &["-c"][..]].concat(), &archive, &from);
        tar(&["-x", "-p", "--xattrs", "--xattrs-include=*"], &archive, &theirs);
        let layer = Layer::new();
        let bytes = fs::read(&archive).unwrap();
        let outcome = layer.unpack(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let nanos = *can == Can::Everything;
        let ours = with_times(&layer.fs(), nanos);
        assert_eq!(ours, with_times(&theirs, nanos), "{name}");
        assert!(ours.len() > 8 && describe(&layer.fs()).starts_with("dir"), "{name}: something was compared");
        assert_eq!(layer.rebuild(), bytes, "{name}");
        if arguments.contains(&"--sparse") {
            let taken = fs::metadata(layer.fs().join("sparse")).unwrap().blocks() * 512;
            let theirs = fs::metadata(from.join("sparse")).unwrap().blocks() * 512;
            assert!(taken <= theirs, "{name}: the file has {taken} bytes on disk, its source {theirs}");
        }
        assert_eq!(outcome.implicit_dirs, Vec::<Vec<u8>>::new(), "{name}");
    }
}
