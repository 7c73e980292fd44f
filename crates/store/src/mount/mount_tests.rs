//! Layers that are EROFS files, with directories between them, in every way that kernels have; and what is left where it
//! fails. Needs root and mkfs.erofs.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use super::bench::{Bench, EVERYTHING, KERNELS};
use super::*;

/// An EROFS file, a directory above it, and an EROFS file on top: each hides something of those below.
fn mixed(bench: &Bench) -> [Lower; 3] {
    let base = bench.tree(
        "base",
        &[("d/base", Some("base")), ("d/gone", Some("x")), ("d/late", Some("x")), ("hidden/old", Some("x"))],
    );
    let middle = bench.tree("middle", &[("d/gone", None), ("d/middle", Some("middle")), ("whole/old", Some("x"))]);
    let top = bench.tree("top", &[("d/late", None), ("hidden/new", Some("new")), ("whole/new", Some("new"))]);
    for opaque in ["hidden", "whole"] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(top.join(opaque), "trusted.overlay.opaque", b"y", flags).expect("sets an attribute");
    }
    [Lower::Erofs(bench.image(&base)), Lower::Directory(middle), Lower::Erofs(bench.image(&top))]
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn image_files_and_directories_lie_on_each_other_on_every_kernel() {
    let bench = Bench::new();
    let layers = mixed(&bench);
    for ways in KERNELS {
        bench.mount(&layers, None, ways).unwrap_or_else(|error| panic!("{ways:?}: {error:?}"));
        assert_eq!((bench.read("d/base"), bench.read("d/middle")), ("base".into(), "middle".into()), "{ways:?}");
        let list = |path: &str| {
            let mut names: Vec<_> = fs::read_dir(bench.target.join(path))
                .expect("there")
                .map(|entry| entry.expect("readable").file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!((list("d"), list("hidden")), (vec!["base".into(), "middle".into()], vec!["new".into()]), "{ways:?}");
        assert_eq!(list("whole"), ["new"]);
        fs::write(bench.target.join("f"), "x").expect_err("read-only");
        assert_eq!(bench.mounts(), std::slice::from_ref(&bench.target), "the overlay is all that is seen");
        assert_eq!(bench.loops().len(), if ways.shared_from == 0 { 2 } else { 0 }, "{ways:?}");
        bench.unmount();
        bench.assert_nothing_left();
    }
}

/// An EROFS file with one file in a nested tree.
fn nested(bench: &Bench, name: &str) -> Lower {
    let spill = Box::new(|| Err(io::ErrorKind::Unsupported.into()));
    let options = erofs::Options { uuid: [1; 16], time: None, memory: 1 << 20, spill };
    let mut writer = erofs::Writer::nested(Vec::new(), options).expect("begins");
    let attributes = erofs::Attributes { mode: 0o644, ..erofs::Attributes::default() };
    writer.begin_file(name.len() as u64, &attributes).expect("begins a file");
    writer.data(name.as_bytes()).expect("writes");
    let inode = writer.end_file().expect("ends a file");
    writer.link(writer.root(), name.as_bytes(), inode).expect("links");
    let (bytes, _) = writer.finish().expect("ends");
    let path = bench.top.path().join(name);
    fs::write(&path, bytes).expect("writes");
    Lower::Erofs(path)
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn nested_trees_are_those_of_the_layers_on_every_kernel() {
    let bench = Bench::new();
    let layers = ["one", "two"].map(|name| nested(&bench, name));
    for ways in KERNELS {
        for count in 1..=layers.len() {
            bench.mount(&layers[..count], None, ways).unwrap_or_else(|error| panic!("{ways:?}: {error:?}"));
            assert_eq!(bench.read("one"), "one", "{ways:?}");
            assert_eq!(fs::read_dir(&bench.target).expect("readable").count(), count, "{ways:?}");
            bench.unmount();
            bench.assert_nothing_left();
        }
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn one_image_file_is_mounted_alone_and_written_on() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let tree = bench.tree("only", &[("d/f", Some("only"))]);
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o711)).expect("sets");
    let layer = [Lower::Erofs(bench.image(&tree))];
    let writable = bench.top.path().join("writable");
    fs::create_dir(&writable).expect("creates");
    for (round, ways) in KERNELS.into_iter().enumerate() {
        bench.mount(&layer, None, ways).expect("mounts");
        assert_eq!(bench.read("d/f"), "only");
        bench.unmount();
        bench.mount(&layer, Some(&writable), ways).expect("mounts");
        assert_eq!(fs::metadata(&bench.target).expect("there").permissions().mode() & 0o7777, 0o711);
        fs::write(bench.target.join(format!("d/{round}")), "x").expect("writable");
        assert_eq!(
            fs::read_dir(bench.target.join("d")).expect("there").count(),
            round + 2,
            "what was written is there"
        );
        bench.unmount();
        bench.assert_nothing_left();
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn more_image_files_than_the_kernel_takes_layers() {
    let bench = Bench::new();
    let plain = bench.image(&bench.tree("plain", &[("d/plain", Some("plain"))]));
    let lowest = bench.tree("lowest", &[("d/lowest", Some("lowest")), ("d/gone", Some("x"))]);
    let mut layers = vec![Lower::Erofs(bench.image(&lowest))];
    for number in 0..600 {
        let path = bench.top.path().join(format!("{number}.erofs"));
        fs::hard_link(&plain, &path).expect("links");
        layers.push(Lower::Erofs(path));
    }
    layers.push(Lower::Erofs(bench.image(&bench.tree("upmost", &[("d/gone", None)]))));
    bench.mount(&layers, None, EVERYTHING).expect("mounts");
    assert_eq!((bench.read("d/lowest"), bench.read("d/plain")), ("lowest".into(), "plain".into()));
    assert!(!bench.target.join("d/gone").exists());
    bench.unmount();
    bench.assert_nothing_left();
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_failure_at_any_step_leaves_nothing() {
    let bench = Bench::new();
    let good = mixed(&bench);
    let garbage = bench.top.path().join("garbage.erofs");
    fs::write(&garbage, vec![7; 8192]).expect("writes");
    let fifo = bench.top.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Socket, Mode::RUSR, 0).expect("makes");
    assert!(fs::symlink_metadata(&fifo).expect("there").file_type().is_socket());
    let with = |bad: Lower| {
        let mut layers = good.to_vec();
        layers.insert(1, bad);
        layers
    };
    let missing = bench.top.path().join("missing");
    let steps = [
        ("no such file", with(Lower::Erofs(missing.clone())), None, "missing"),
        ("no file system", with(Lower::Erofs(garbage)), None, "garbage.erofs"),
        ("no file", with(Lower::Erofs(fifo)), None, "fifo"),
        ("no such directory", with(Lower::Directory(missing.clone())), None, "missing"),
        ("nowhere to write", good.to_vec(), Some(missing), "missing"),
    ];
    for ways in KERNELS {
        for (step, layers, writable, named) in &steps {
            let error = bench.mount(layers, writable.as_deref(), ways).expect_err(step);
            assert!(format!("{error:?}").contains(named), "{step}, {ways:?}: {error:?}");
            bench.assert_nothing_left();
        }
        // Everything is put together, and finds no place.
        let assembly = OverlayAssembly { userxattr: false, points: Some(&bench.points), compose: None, ways };
        assembly.mount(&good, &bench.top.path().join("nowhere"), None).expect_err("no such place");
        bench.assert_nothing_left();
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_a_killed_process_left_is_swept() {
    let bench = Bench::new();
    let [Lower::Erofs(image), ..] = mixed(&bench) else { panic!("an image file") };
    for ways in [EVERYTHING, KernelFeatures { from_file: false, ..EVERYTHING }] {
        let mounted = erofs_file::mount(&image, ways).expect("mounts");
        std::mem::forget(bench.points.place(&mounted).expect("has a place"));
        std::mem::forget(bench.points.empty().expect("has a place"));
    }
    assert_eq!(bench.mounts().len(), 2);
    bench.points.sweep().expect("sweeps");
    bench.assert_nothing_left();
    assert!(!bench.top.path().join("mounts").exists());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn mounts_of_a_layer_share_a_device_and_small_layers_go_without() {
    let bench = Bench::new();
    let small = bench.image(&bench.tree("small", &[("d/small", Some("small"))]));
    let text = "large".repeat(100_000);
    let large = bench.image(&bench.tree("large", &[("d/large", Some(&text))]));
    let layers = [Lower::Erofs(small), Lower::Erofs(large.clone())];
    bench.mount(&layers, None, KernelFeatures::default()).expect("mounts");
    assert_eq!(bench.loops(), [format!("{}\n", large.display())]);
    let again = erofs_file::mount(&large, KernelFeatures::default()).expect("mounts");
    assert_eq!(bench.loops().len(), 1);
    let device = |directory: &std::os::fd::OwnedFd| rustix::fs::fstat(directory).expect("there").st_dev;
    let third = erofs_file::mount(&large, KernelFeatures::default()).expect("mounts");
    assert_eq!(device(&again), device(&third), "they are one file system");
    bench.unmount();
    assert_eq!(bench.loops().len(), 1);
    drop((again, third));
    bench.assert_nothing_left();
}

/// The kernel would mount such a file without its devices and show zeros or other files.
#[test]
fn layer_on_further_devices_is_refused() {
    let top = tempfile::tempdir().expect("tempdir");
    let path = top.path().join("layer.erofs");
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path).expect("creates");
    let options = erofs::Options {
        uuid: [0; 16],
        time: None,
        memory: erofs::Options::MEMORY,
        spill: Box::new(|| unreachable!("nothing is long")),
    };
    let mut writer = erofs::Writer::new(file, options).expect("begins");
    writer.reserve_devices(1).expect("has room");
    let device = writer.add_device(b"other", 1).expect("has room");
    let (root, attributes) = (writer.root(), erofs::Attributes::implicit());
    writer.set_directory(root, &attributes, false).expect("sets");
    let inode = writer.file_at(4096, &attributes, erofs::DeviceBlock { device, block: 0 }, b"").expect("refers");
    writer.link(root, b"file", inode).expect("names");
    writer.finish().expect("finishes");
    for ways in KERNELS {
        let error = format!("{:?}", erofs_file::mount(&path, ways).expect_err("it is incomplete"));
        assert!(error.contains("layer.erofs: the image uses further devices"), "{error}");
    }
    let error = format!("{:?}", fuse::mount(&path, top.path()).expect_err("it is incomplete"));
    assert!(error.contains("layer.erofs: the image uses further devices"), "{error}");
}
