//! Leftovers of interrupted pulls: found again after a restart, verified before use, counted, and removed before anything else.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use imagelet_store::{ImageCommit, LayerSource, OpenOptions, Store, Unfinished, WholeLayer};
use oci::{Algorithm, Digest};

use super::support::{Image, NEVER, Tar, check_accounts, is_sound, list, options, plain_layer};

/// Everything that was left is young enough.
fn keeping() -> OpenOptions {
    OpenOptions { unfinished_since: Some(0), ..options() }
}

fn open(root: &Path) -> Store {
    Store::open(root, keeping()).expect("opens")
}

fn big(name: &str) -> Tar {
    let mut tar = plain_layer(name, &[7; 300_000]).symlink("d/link", "elsewhere").device("d/null");
    for n in 0..40_u8 {
        tar = tar.file(&format!("d/{n}"), &[n; 500]);
    }
    tar
}

/// Where the blobs of these tests come from.
const ORIGIN: &str = "registry.example/app";

const BLOB: &[u8] = b"the blob that a layer came from";

fn blob() -> (Digest, u64) {
    (Digest::sha256(BLOB), BLOB.len() as u64)
}

/// Unpacks it, and notes that its blob was right.
fn whole(store: &Store, tar: &Tar) -> imagelet_store::UnpackedLayer {
    let lease = store.lease();
    let bytes = tar.bytes();
    let layer = store.new_layer(&lease).expect("creates").unpack(&mut bytes.as_slice(), NEVER).expect("unpacks");
    let (digest, size) = blob();
    layer.note_whole(&digest, size, &Digest::sha256(&bytes), ORIGIN).expect("notes");
    layer
}

fn take(store: &Store) -> Option<WholeLayer> {
    let (digest, size) = blob();
    store.take_left_layer(&digest, size, Algorithm::Sha256, &|origin| origin == ORIGIN)
}

/// With owners, times and devices as they are.
fn copy(from: &Path, to: &Path) {
    #[expect(clippy::disallowed_methods, reason = "what a kill leaves is looked at in a copy")]
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("runs");
    assert!(status.success());
}

/// The store that a killed process leaves: no destructor runs.
fn killed(store: Store, root: &Path) -> Store {
    let left = root.with_extension("killed");
    copy(root, &left);
    drop(store);
    fs::remove_dir_all(root).expect("deletes");
    fs::rename(&left, root).expect("renames");
    open(root)
}

#[test]
fn a_whole_layer_outlives_a_kill_and_is_as_it_was() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let tar = big("a");
    let layer = whole(&store, &tar);
    let stats = layer.stats();
    let store = killed(store, &root);
    drop(layer);

    let left = store.unfinished();
    assert_eq!((left.layers, left.blobs), (1, 0));
    assert!(left.bytes >= stats.disk_bytes && left.inodes > stats.inodes, "{left:?} and {stats:?}");
    is_sound(&store);
    let (other, size) = (Digest::sha256(b"another blob"), blob().1);
    let any = |_: &str| true;
    assert!(store.take_left_layer(&other, size, Algorithm::Sha256, &any).is_none());
    assert!(store.take_left_layer(&blob().0, size + 1, Algorithm::Sha256, &any).is_none());
    assert!(store.take_left_layer(&blob().0, size, Algorithm::Sha512, &any).is_none());
    assert!(store.take_left_layer(&blob().0, size, Algorithm::Sha256, &|_| false).is_none(), "of a foreign origin");
    assert_eq!(store.origins_of_unfinished(&blob().0), BTreeSet::from([ORIGIN.to_owned()]));
    assert!(store.origins_of_unfinished(&other).is_empty());

    let taken = take(&store).expect("it was left");
    assert_eq!(store.unfinished(), Unfinished::default(), "nobody else has it");
    assert!(take(&store).is_none());
    // Cancelled: the layer is kept for the next pull.
    assert!(taken.verify(&|| true).expect("readable").is_none());
    assert_eq!(store.unfinished(), left);
    let (layer, diff_id) = take(&store).expect("there").verify(&|| false).expect("readable").expect("is what it was");
    assert_eq!(layer.stats(), stats);
    let image = Image::new("a", &[tar]);
    let layers = vec![LayerSource::New { layer: Arc::new(layer), diff_id }];
    let lease = store.lease();
    let record = store.commit_image(&lease, ImageCommit { layers, ..image.commit(None) }).expect("commits");
    drop(lease);
    check_accounts(&store);
    is_sound(&store);
    let mut stream = Vec::new();
    store.export_layer(&store.image_layers(&record).expect("readable")[0], &mut stream).expect("exports");
    assert!(stream == image.layers[0].1, "to the last byte");
}

/// A commit is killed between the move of its layers and the record of its image: the layers are kept for the next pull, which
/// checks them like all leftovers. A directory that has replaced one of them is unreferenced.
#[test]
fn a_layer_that_a_killed_commit_had_moved_is_taken_back() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let moved = || {
        let store = open(&root);
        whole(&store, &big("a")).leave();
        drop(store);
        let names = list(&root.join("ingest"));
        let number = names.iter().find(|name| !name.contains('.')).expect("it was left");
        let to = root.join("layers/77");
        fs::rename(root.join("ingest").join(number), &to).expect("as a commit does");
        to
    };
    moved();
    let store = open(&root);
    assert_eq!((store.unfinished().layers, list(&root.join("layers")).len()), (1, 0));
    let (layer, _) = take(&store).expect("it is back").verify(&|| false).expect("readable").expect("is what it was");
    let diff_id = Digest::sha256(&big("a").bytes());
    let image = Image::new("a", &[big("a")]);
    let layers = vec![LayerSource::New { layer: Arc::new(layer), diff_id }];
    let lease = store.lease();
    let record = store.commit_image(&lease, ImageCommit { layers, ..image.commit(None) }).expect("commits");
    drop(lease);
    is_sound(&store);
    store.remove_image(&record.id).expect("removes");
    drop(store);

    // Something was lost with the kill, or after it.
    let layer = moved();
    let file = [layer.join("layer.erofs"), layer.join("fs/d/1")].into_iter().find(|path| path.is_file());
    fs::File::options().write(true).open(file.expect("one of them")).expect("opens").set_len(10).expect("cut off");
    let store = open(&root);
    assert!(take(&store).expect("it is back").verify(&|| false).expect("readable").is_none());
    drop(store);

    // The same name, and something else.
    let layer = moved();
    copy(&layer, &root.join("layers/78"));
    fs::remove_dir_all(&layer).expect("deletes");
    let store = open(&root);
    assert_eq!(store.unfinished(), Unfinished::default());
    assert_eq!((list(&root.join("layers")).len(), list(&root.join("ingest")).len()), (0, 0));

    // Where nothing is to be left, nothing is.
    drop(store);
    moved();
    drop(Store::open(&root, options()).expect("opens"));
    assert_eq!((list(&root.join("layers")).len(), list(&root.join("ingest")).len()), (0, 0));
}

/// Damage to a layer's directory.
type Spoil<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn changed_leftovers_are_not_used() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let spoil: [Spoil<'_>; 4] = [
        ("a byte of a file", &|layer| {
            let (path, at) = match fs::metadata(layer.join("layer.erofs")) {
                Ok(about) => (layer.join("layer.erofs"), about.len() / 2),
                Err(_) => (layer.join("fs/d/a"), 1000),
            };
            fs::OpenOptions::new().write(true).open(path).expect("opens").write_all_at(b"!", at).expect("writes");
        }),
        ("no recipe", &|layer| fs::remove_file(layer.join("recipe.zst")).expect("deletes")),
        ("cut off", &|layer| {
            let image = layer.join("layer.erofs");
            let path = if image.exists() { image } else { layer.join("fs/d/a") };
            let file = fs::OpenOptions::new().write(true).open(path).expect("opens");
            file.set_len(file.metadata().expect("readable").len() - 5000).expect("cuts");
        }),
        ("gone", &|layer| fs::remove_dir_all(layer).expect("deletes")),
    ];
    for (what, spoil) in spoil {
        let store = open(&root);
        whole(&store, &big("a")).leave();
        let name = list(&root.join("ingest")).into_iter().find(|name| !name.contains('.')).expect("there");
        spoil(&root.join("ingest").join(name));
        let taken = take(&store).expect("nobody has looked");
        assert!(taken.verify(&|| false).expect("readable").is_none(), "{what}");
        assert_eq!(list(&root.join("ingest")), Vec::<String>::new(), "{what}: it is gone");
        assert_eq!(store.unfinished(), Unfinished::default());
    }
}

#[test]
fn a_layer_that_was_made_fit_for_a_stack_is_not_kept() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let base = Tar::default().directory("./", 0o755).directory("d/", 0o1777);
    let upper = Tar::default().directory("./", 0o755).file("d/upper", b"upper");
    let layer = Arc::new(whole(&store, &upper));
    let before = top.path().join("before");
    copy(&root.join("ingest"), &before);
    let image = Image::new("stack", &[base, upper]);
    let lease = store.lease();
    let mut layers = image.sources(&store, &lease);
    layers[1] = LayerSource::New { layer: Arc::clone(&layer), diff_id: image.layers[1].0.clone() };
    store.commit_image(&lease, ImageCommit { layers, ..image.commit(None) }).expect("commits");
    drop((lease, layer));
    assert_eq!(list(&root.join("ingest")), Vec::<String>::new(), "no record outlives its layer");
    // As if the power had taken the note of it: the directory is the changed one, and its record still there.
    let record = list(&before).into_iter().find(|name| name.ends_with(".layer")).expect("noted");
    let number = record.split('.').next().expect("a number").to_owned();
    drop(store);
    let ids = list(&root.join("layers"));
    let ingest = root.join("ingest");
    fs::rename(root.join("layers").join(ids.last().expect("two layers")), ingest.join(&number)).expect("moves");
    fs::copy(before.join(&record), ingest.join(&record)).expect("copies");
    let store = open(&root);
    let taken = take(&store).expect("seems to be there");
    assert!(taken.verify(&|| false).expect("readable").is_none(), "d/ has the mode of the stack below");
}

#[test]
fn a_spool_is_read_back_up_to_the_first_bad_piece() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let blob: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let (digest, size) = (Digest::sha256(&blob), blob.len() as u64);
    let read = |store: &Store| {
        let mut spool = store.take_spool(&digest, size, &|origin| origin == ORIGIN).expect("opens").expect("there");
        let mut bytes = Vec::new();
        while let Some(piece) = spool.read_back().expect("reads") {
            bytes.extend(piece);
        }
        (spool, bytes)
    };
    let store = open(&root);
    let mut spool = store.new_spool(&digest, size, 1000, ORIGIN).expect("creates");
    for piece in blob[1000..101_000].chunks(10_000) {
        spool.append([&piece[..1], &piece[1..]]).expect("writes");
    }
    let store = killed(store, &root);
    drop(spool);
    is_sound(&store);
    let left = store.unfinished();
    assert_eq!((left.blobs, left.inodes), (1, 2));
    assert!(left.bytes > 100_000, "{left:?}");
    assert!(store.take_spool(&digest, size + 1, &|_| true).expect("readable").is_none());
    assert!(store.take_spool(&digest, size, &|_| false).expect("readable").is_none(), "of a foreign origin");

    // It continues where it ended, as often as needed.
    let (mut spool, bytes) = read(&store);
    assert!(bytes == blob[1000..101_000] && (spool.begin(), spool.end()) == (1000, 101_000));
    spool.append([&blob[101_000..150_000]]).expect("writes");
    spool.leave();
    let ingest = root.join("ingest");
    let sums = list(&ingest).into_iter().find(|name| name.ends_with(".sums")).expect("there");
    // An incomplete line, and bytes without a digest.
    let mut text = fs::read(ingest.join(&sums)).expect("reads");
    text.extend_from_slice(b"500 abcdef");
    fs::write(ingest.join(&sums), &text).expect("writes");
    let (mut spool, bytes) = read(&store);
    assert!(bytes == blob[1000..150_000]);
    spool.append([&blob[150_000..160_000]]).expect("writes");
    spool.leave();
    let (spool, bytes) = read(&store);
    assert!(bytes == blob[1000..160_000], "what was torn has been cut off");
    spool.leave();
    // A byte that has changed.
    let data = fs::OpenOptions::new().write(true).open(ingest.join(sums.split('.').next().expect("a number")));
    data.expect("opens").write_all_at(b"!", 57_000).expect("writes");
    let (mut spool, bytes) = read(&store);
    assert!(bytes == blob[1000..51_000] && spool.end() == 51_000);
    spool.append([&blob[51_000..52_000]]).expect("writes");
    spool.leave();
    let (spool, bytes) = read(&store);
    assert!(bytes == blob[1000..52_000]);
    drop(spool);
    assert_eq!(list(&ingest), Vec::<String>::new());
    let spool = store.new_spool(&digest, size, 0, ORIGIN).expect("creates");
    spool.leave();
    assert_eq!(list(&ingest), Vec::<String>::new(), "nothing is in it");
}

#[test]
fn leftovers_are_limited_by_age_and_number_and_removed_on_request() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let spool = |n: u32| {
        let bytes = n.to_le_bytes();
        let mut spool = store.new_spool(&Digest::sha256(&bytes), 1000, 0, ORIGIN).expect("creates");
        spool.append([bytes.as_slice()]).expect("writes");
        spool.leave();
    };
    (0..70).for_each(spool);
    assert_eq!(store.unfinished().blobs, 64);
    assert_eq!(list(&root.join("ingest")).len(), 128);
    assert!(store.take_spool(&Digest::sha256(&0_u32.to_le_bytes()), 1000, &|_| true).expect("readable").is_none());
    assert_eq!(store.drop_unfinished(Some(0)).freed_inodes, 0, "nothing is so old");
    drop(store);

    // Garbage of every kind next to them.
    let ingest = root.join("ingest");
    for (name, text) in
        [("900.layer", "{}"), ("901.sums", "no line"), ("902", ""), ("903.new", ""), ("904", "x"), ("904.sums", "x\n")]
    {
        fs::write(ingest.join(name), text).expect("writes");
    }
    let store = open(&root);
    assert_eq!(store.unfinished().blobs, 64);
    assert_eq!(list(&ingest).len(), 128, "what is no good is swept");
    is_sound(&store);
    let (before, left) = (store.unfinished(), store.drop_unfinished(None));
    assert_eq!((left.freed_bytes, left.freed_inodes), (before.bytes, before.inodes));
    assert_eq!(list(&ingest), Vec::<String>::new());
    whole(&store, &big("a")).leave();
    drop(store);
    // A store whose owner wants none of it, and one that is opened after a long time.
    for since in [None, Some(i64::MAX)] {
        let store = Store::open(&root, OpenOptions { unfinished_since: since, ..options() }).expect("opens");
        assert_eq!((store.unfinished(), list(&ingest).len()), (Unfinished::default(), 0), "{since:?}");
        let layer = whole(&store, &big("a"));
        assert_eq!(list(&ingest).len(), if since.is_none() { 1 } else { 2 });
        layer.leave();
    }
}

/// Nanoseconds from 1970 to the beginning of this year.
fn year(n: i64) -> i64 {
    (n - 1970) * 31_556_952 * 1_000_000_000
}

/// Left by one clock, found by another one: it is kept for its time from then on, and no longer.
#[test]
fn a_clock_that_is_set_neither_loses_what_was_left_nor_keeps_it_for_ever() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let day = 24 * 3600 * 1_000_000_000;
    let ingest = root.join("ingest");
    for (written, now, stays) in [
        // A node without a clock of its own, before and after it was set.
        (year(1970) + day, year(2026), true),
        (year(1970) + day, year(1970) + day + 1, true),
        (year(1970), year(1970) + 2 * day, false),
        // Set back, by hours and by a century.
        (year(2026), year(2026) - 7, true),
        (year(2105), year(2026), true),
        (year(2026), year(1970), true),
        (year(2026), year(1969), true),
        // Just old.
        (year(2026), year(2026) + 2 * day, false),
        (year(2026), year(2200), false),
    ] {
        let since = |now: i64| OpenOptions { unfinished_since: Some(now - day), ..options() };
        let store = Store::open(&root, since(year(2026))).expect("opens");
        whole(&store, &big("a")).leave();
        let name = list(&ingest).into_iter().find(|name| name.ends_with(".layer")).expect("there");
        drop(store);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(written.unsigned_abs());
        let file = fs::File::options().write(true).open(ingest.join(&name)).expect("opens");
        file.set_modified(time).expect("sets");
        let store = Store::open(&root, since(now)).expect("opens");
        store.note_clock(now);
        store.drop_unfinished(Some(now - day));
        assert_eq!(store.unfinished().layers, u64::from(stays), "{written} {now}");
        if !stays {
            continue;
        }
        // With this clock it ends, in this process and in the next one.
        drop(store);
        let later = now + 2 * day;
        let store = Store::open(&root, since(now)).expect("opens");
        store.note_clock(later);
        store.drop_unfinished(Some(later - day));
        assert_eq!(store.unfinished().layers, 0, "{written} {now}");
    }
}

#[test]
fn a_store_that_never_grew_up_keeps_what_can_be_looked_at() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    whole(&store, &big("a")).leave();
    drop(store);
    // The machine has stopped before anything was durable.
    fs::write(root.join("young"), "another boot\n").expect("writes");
    let store = open(&root);
    assert_eq!(store.unfinished().layers, 1);
    let (layer, _) = take(&store).expect("there").verify(&|| false).expect("readable").expect("is what it was");
    drop(layer);
    check_accounts(&store);
}
