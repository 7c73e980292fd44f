//! The disk usage of layers in the records, on a disk of small blocks whose free space lies in small pieces: there a file has many
//! pieces, and blocks more that list them, which the file system knows when it has written them. Needs root.

use imagelet_store::check::Depth;
use imagelet_store::{ImageCommit, OpenOptions, Store};
use oci::Digest;

use super::support::{Image, LoopDisk, NEVER, Tar, check_accounts, options, run_check};

/// Blocks of 1 KiB, of which every other three are free, nowhere more.
fn in_pieces() -> LoopDisk {
    let disk = LoopDisk::ext4_with(24 << 20, &["-b", "1024", "-N", "9000"]);
    let directory = disk.path.join("pieces");
    std::fs::create_dir(&directory).expect("creates");
    let file = |number: u32| directory.join(number.to_string());
    let mut made = 0;
    while std::fs::write(file(made), [1; 3 << 10]).is_ok() {
        made += 1;
    }
    assert!(made > 2500, "{made} files");
    // Until then it is not said where they lie.
    rustix::fs::syncfs(std::fs::File::open(&directory).expect("opens")).expect("syncs");
    for number in (0..made).step_by(2) {
        std::fs::remove_file(file(number)).expect("deletes");
    }
    rustix::fs::syncfs(std::fs::File::open(&directory).expect("opens")).expect("syncs");
    disk
}

/// Of all sizes, with more names of one, and with what a later entry replaces.
fn layer(seed: u8) -> Tar {
    let noise = |length: usize| -> Vec<u8> {
        let mut state = u32::from(seed) + 1;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        std::iter::repeat_with(next).take(length).collect()
    };
    let mut tar = Tar::default().directory("./", 0o755).directory("d/", 0o755);
    for size in [1, 1000, 5000, 17_000, 40_000, 150_000, 400_000] {
        tar = tar.file(&format!("d/{size}"), &noise(size));
    }
    tar.file("d/1000", b"another").symlink("d/link", &"far/".repeat(40))
}

fn check(store: &Store) {
    assert_eq!(run_check(store, Depth::Sizes, false).problems, []);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_layers_take_is_counted_where_files_are_in_many_pieces() {
    let disk = in_pieces();
    let root = disk.path.join("store");
    let options = OpenOptions { unfinished_since: Some(0), ..options() };
    let mut store = Store::open(&root, options.clone()).expect("opens");
    let images: Vec<Image> = (0..3).map(|n| Image::new(&n.to_string(), &[layer(n), layer(n + 1)])).collect();
    let mut records = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let image = if number == 2 { image.clone().with_blobs() } else { image.clone() };
        records.push(image.pull(&store, &format!("r.example/i:{number}")));
        check_accounts(&store);
    }
    // One that fails, and one that is cut off.
    let lease = store.lease();
    let tar = layer(7).bytes();
    store.new_layer(&lease).expect("makes").unpack(&mut &tar[..tar.len() / 2], NEVER).expect_err("it is cut off");
    check_accounts(&store);
    let whole = store.new_layer(&lease).expect("makes").unpack(&mut tar.as_slice(), NEVER).expect("unpacks");
    whole.note_whole(&Digest::sha256(b"blob"), 4, &Digest::sha256(&tar), "").expect("notes");
    whole.leave();
    drop(lease);
    // Accounting continues after a restart.
    drop(store);
    store = Store::open(&root, options).expect("opens");
    let left = store.take_left_layer(&Digest::sha256(b"blob"), 4, oci::Algorithm::Sha256, &|_| true).expect("was left");
    let (left, diff_id) = left.verify(NEVER).expect("readable").expect("is what it was");
    let image = Image::new("7", &[layer(7)]);
    let layers = vec![imagelet_store::LayerSource::New { layer: left.into(), diff_id }];
    let lease = store.lease();
    records.push(store.commit_image(&lease, ImageCommit { layers, ..image.commit(None) }).expect("commits"));
    drop(lease);
    check_accounts(&store);
    check(&store);
    for record in records {
        store.remove_image(&record.id).expect("removes");
        check_accounts(&store);
    }
    check(&store);
}
