//! Mounts as containerd 1.6, 2.1 and 2.3 answer them.

use std::io;
use std::path::Path;

use cri_api::engine::runtime_store::{Destination, LowerLayer};

use super::*;
use crate::Mount;

fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Mount { kind: kind.to_owned(), source: source.to_owned(), options }
}

fn layout(snapshotter: &str) -> &'static dyn SnapshotLayout {
    layout_of(snapshotter, false).expect("a layout")
}

#[test]
fn layer_destination_is_read_from_its_mounts() {
    let overlay = |options: &[&str]| mount("overlay", "overlay", options);
    let upper = "upperdir=/r/snapshots/7/fs";
    for (mounts, marked, expected) in [
        (
            vec![mount("bind", "/r/snapshots/1/fs", &["rw", "rbind"])],
            false,
            Destination::Directory("/r/snapshots/1/fs".into()),
        ),
        (
            vec![overlay(&["index=off", "workdir=/r/snapshots/7/work", upper, "lowerdir=/r/snapshots/6/fs"])],
            false,
            Destination::Directory("/r/snapshots/7/fs".into()),
        ),
        (
            vec![mount("bind", "/r/snapshots/1/fs", &["rw", "rbind"])],
            true,
            Destination::ErofsFile("/r/snapshots/1/layer.erofs".into()),
        ),
        (
            vec![
                mount("erofs", "/r/snapshots/6/layer.erofs", &["ro", "loop"]),
                mount("format/mkdir/overlay", "overlay", &[upper, "lowerdir={{ overlay 0 0 }}"]),
            ],
            true,
            Destination::ErofsFile("/r/snapshots/7/layer.erofs".into()),
        ),
        (vec![mount("erofs", "/r/snapshots/6/layer.erofs", &["ro", "loop"])], true, Destination::Present),
    ] {
        let layout = layout(if marked { "erofs" } else { "overlayfs" });
        assert_eq!(layout.destination(&mounts, &|_| marked), Ok(expected), "{mounts:?}");
    }
}

#[test]
fn unsupported_mounts_are_left_to_the_runtime() {
    for (mounts, why) in [
        (vec![], "the snapshot has no mount"),
        (vec![mount("ext4", "/dev/mapper/snap-1", &[])], r#"the snapshot is a mount of the type "ext4""#),
        (vec![mount("overlay", "overlay", &["userxattr", "upperdir=/a/fs"])], "the snapshotter mounts with userxattr"),
        (vec![mount("overlay", "overlay", &["lowerdir=/a"])], "the overlay has no upper directory"),
        (vec![mount("bind", "relative/fs", &["rw"])], "relative/fs is not an absolute path"),
    ] {
        for name in ["overlayfs", "erofs"] {
            assert_eq!(layout(name).destination(&mounts, &|_| true), Err(why.to_owned()), "{name}");
        }
    }
    // A directory of the erofs snapshotter without its marker is none that can be filled.
    let unmarked = [mount("bind", "/r/snapshots/1/fs", &["rw"])];
    let why = "/r/snapshots/1/fs is not in a snapshot with the file .erofslayer";
    assert_eq!(layout("erofs").destination(&unmarked, &|_| false), Err(why.to_owned()));
}

#[test]
fn chain_layers_are_read_from_its_mounts() {
    let directory = |path: &str| LowerLayer::Directory(path.into());
    let file = |path: &str| LowerLayer::ErofsFile(path.into());
    let erofs = |path: &str| mount("erofs", path, &["ro", "loop"]);
    for (mounts, expected) in [
        (vec![mount("bind", "/r/1/fs", &["ro", "rbind"])], Some(vec![directory("/r/1/fs")])),
        (
            vec![mount("overlay", "overlay", &["lowerdir=/r/2/fs:/r/1/fs"])],
            Some(vec![directory("/r/2/fs"), directory("/r/1/fs")]),
        ),
        (vec![erofs("/r/1/layer.erofs")], Some(vec![file("/r/1/layer.erofs")])),
        (
            vec![
                erofs("/r/2/layer.erofs"),
                erofs("/r/1/layer.erofs"),
                mount("format/overlay", "overlay", &["lowerdir={{ overlay 0 1 }}"]),
            ],
            Some(vec![file("/r/2/layer.erofs"), file("/r/1/layer.erofs")]),
        ),
        (vec![mount("overlay", "overlay", &["lowerdir=2/fs:1/fs"])], None),
        (vec![mount("ext4", "/dev/dm-1", &["ro"])], None),
        (vec![], None),
    ] {
        assert_eq!(layout("erofs").lower_layers(&mounts), expected, "{mounts:?}");
        let of_directories = expected.filter(|layers| layers.iter().all(|l| matches!(l, LowerLayer::Directory(_))));
        assert_eq!(layout("overlayfs").lower_layers(&mounts), of_directories, "{mounts:?}");
    }
}

#[test]
fn layers_go_only_to_destinations_of_their_layout() {
    let directory = Destination::Directory("/nowhere/fs".into());
    let file = Destination::ErofsFile("/nowhere/layer.erofs".into());
    for (name, foreign) in [("overlayfs", file), ("erofs", directory)] {
        let error = layout(name).place(Path::new("/nowhere/layer"), &foreign).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        layout(name).place(Path::new("/nowhere/layer"), &Destination::Present).expect("nothing to do");
    }
    assert!(layout_of("zfs", true).is_none());
}
