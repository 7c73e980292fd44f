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
        assert_eq!(destination(&mounts, |_| marked), expected, "{mounts:?}");
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
        assert_eq!(destination(&mounts, |_| false), Destination::Unknown(why.to_owned()));
    }
}
