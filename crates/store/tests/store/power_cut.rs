//! A machine that stops: what the disk holds at that moment is copied, and the copy used as the disk after the start.
//! Needs root.

use imagelet_store::check::{CheckOptions, Depth};
use imagelet_store::{OpenOptions, Store};

use super::support::{Image, LoopDisk, Tar, check_accounts, options, plain_layer};

fn image(name: &str) -> Image {
    let mut many = plain_layer("big", &[7; 3 << 20]);
    for file in 0..300 {
        many = many.file(&format!("d/{file}"), format!("{name} {file}").repeat(20).as_bytes());
    }
    let dependent = Tar::default().directory("./", 0o755).file("d/upper", name.as_bytes());
    Image::new(name, &[many, dependent])
}

/// Checks that a visible image is present to the last byte.
fn check(store: &Store, image: &Image) {
    let record = store.image(&image.id()).expect("readable").expect("a commit that was answered is durable");
    for (layer, (_, tar)) in store.image_layers(&record).expect("readable").iter().zip(&image.layers) {
        let mut stream = Vec::new();
        store.export_layer(layer, &mut stream).expect("exports");
        assert!(stream == *tar, "layer {} is as it came", layer.id);
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_image_whose_commit_was_answered_survives() {
    let disk = LoopDisk::ext4(96 << 20);
    let options = || OpenOptions { reserve_bytes: 1 << 20, ..options() };
    let store = Store::open(&disk.path.join("store"), options()).expect("opens");
    for name in ["one", "two", "three"] {
        let image = image(name);
        image.pull(&store, &format!("docker.io/library/{name}:1"));
        // Never synced: shows that the copy has what a stop would leave.
        std::fs::write(disk.path.join(format!("unsynced {name}")), vec![1; 100_000]).expect("writes");
        let after = disk.as_after_a_power_cut();
        let unsynced = std::fs::read(after.path.join(format!("unsynced {name}"))).unwrap_or_default();
        assert_ne!(unsynced, vec![1; 100_000], "the copy holds what was never synced: it proves nothing");
        let store = Store::open(&after.path.join("store"), options()).expect("opens");
        check(&store, &image);
        check_accounts(&store);
        assert!(store.was_unclean(), "the stop is seen");
        let recent = CheckOptions {
            depth: Depth::Files,
            repair: false,
            recent_only: true,
            cancelled: &|| false,
            progress: &|_| {},
        };
        let report = store.check(&recent).expect("ends");
        assert!(report.layers_checked > 0 && report.problems.is_empty(), "{report:?}");
    }
    // A removal is as durable, and its files stay deleted.
    store.remove_image(&image("one").id()).expect("removes");
    let after = disk.as_after_a_power_cut();
    let again = Store::open(&after.path.join("store"), options()).expect("opens");
    assert!(again.image(&image("one").id()).expect("readable").is_none());
    check(&again, &image("two"));
    check_accounts(&again);
}
