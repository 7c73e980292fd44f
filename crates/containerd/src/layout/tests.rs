//! Mounts as containerd 1.6, 2.1 and 2.3 answer them.

use super::*;

fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Mount { kind: kind.to_owned(), source: source.to_owned(), options }
}

#[test]
fn the_destination_of_a_layer_is_read_from_its_mounts() {
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
        assert_eq!(destination(&mounts, |_| marked), Ok(expected), "{mounts:?}");
    }
}

#[test]
fn what_is_not_known_is_left_to_the_runtime() {
    for (mounts, why) in [
        (vec![], "the snapshot has no mount"),
        (vec![mount("ext4", "/dev/mapper/snap-1", &[])], r#"the snapshot is a mount of the type "ext4""#),
        (vec![mount("overlay", "overlay", &["userxattr", "upperdir=/a/fs"])], "the snapshotter mounts with userxattr"),
        (vec![mount("overlay", "overlay", &["lowerdir=/a"])], "the overlay has no upper directory"),
        (vec![mount("bind", "relative/fs", &["rw"])], "relative/fs is not an absolute path"),
    ] {
        assert_eq!(destination(&mounts, |_| false), Err(why.to_owned()));
    }
}

#[test]
fn the_layers_of_a_chain_are_read_from_its_mounts() {
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
        assert_eq!(lower_layers(&mounts), expected, "{mounts:?}");
    }
}
