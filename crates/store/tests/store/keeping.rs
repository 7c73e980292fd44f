//! Kept blobs in the store: one transaction with their image, one file for all images that name them, removed with the last.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cri_api::engine::{CheckProgress, ProblemKind};
use imagelet_store::check::{CheckOptions, Depth};
use imagelet_store::{Durability, ImageCommit, OpenOptions, Store, Totals};
use oci::Digest;
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::support::{Image, LoopDisk, check_accounts, list, open, options, plain_layer, run_check};

fn image(number: u8) -> Image {
    let (base, own) = (plain_layer("base", &[1; 100_000]), plain_layer("own", &[number; 50_000]));
    Image::new(&format!("image {number}"), &[base, own]).with_blobs()
}

fn blobs(root: &Path) -> Vec<String> {
    list(&root.join("blobs"))
}

fn digest(image: &Image, layer: usize) -> Digest {
    Digest::sha256(&image.blobs[layer])
}

#[test]
fn images_share_blobs_and_the_last_one_takes_them_along() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let (first, second) = (image(2), image(3));
    // Both are being written before either is committed.
    let lease = store.lease();
    let commits: Vec<_> = [&first, &second]
        .map(|image| {
            let (layers, blobs) = (image.sources(&store, &lease), image.new_blobs(&store));
            ImageCommit { layers, blobs, ..image.commit(Some(&format!("a.example/{}:1", image.id().hex()))) }
        })
        .into();
    assert!(fs::read_dir(root.join("blobs")).is_err(), "nothing is visible before");
    let records: Vec<_> =
        commits.into_iter().map(|commit| store.commit_image(&lease, commit).expect("commits")).collect();
    drop(lease);
    assert_eq!(blobs(&root).len(), 3);
    check_accounts(&store);
    assert!(records.iter().all(|record| record.blobs.len() == 2));
    assert!(store.new_blob(&digest(&first, 0), first.blobs[0].len() as u64).expect("readable").is_none());
    let usage = store.usage(&records[0].id).expect("readable").expect("there");
    assert!(usage.0 > 100_000 && usage.1 > 200_000, "{usage:?}");
    let known = store.layers_of_images().expect("readable");
    assert_eq!(known.layers.len(), 6);

    let promised = |image: usize| {
        let (_, _, own) = &known.images.iter().find(|(id, ..)| *id == records[image].id).expect("there");
        let others = known.images.iter().filter(|(id, ..)| *id != records[image].id);
        let others: Vec<u32> = others.flat_map(|(.., layers)| layers.iter().copied()).collect();
        own.iter().filter(|part| !others.contains(part)).map(|part| known.layers[*part as usize]).sum::<u64>()
    };
    assert_eq!(store.remove_image(&records[0].id).expect("removes").freed_bytes, promised(0));
    assert_eq!(blobs(&root).len(), 2);
    check_accounts(&store);
    let (mut file, size) = store.open_blob(&digest(&second, 0)).expect("readable").expect("kept");
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut content).expect("reads");
    assert_eq!((&content, size), (&second.blobs[0], content.len() as u64));
    drop(store);
    let store = open(&root);
    check_accounts(&store);
    store.remove_image(&records[1].id).expect("removes");
    assert_eq!((blobs(&root).len(), store.totals().expect("readable")), (0, Totals::default()));
}

#[test]
fn aborted_blob_leaves_nothing() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let image = image(2);
    let mut short = store.new_blob(&digest(&image, 0), 10).expect("made").expect("not there");
    short.write(b"123456789").expect("written");
    short.finish().expect_err("a byte is missing");
    store.new_blob(&digest(&image, 0), 10).expect("made").expect("not there").abort();
    assert_eq!(list(&root.join("ingest")), Vec::<String>::new());

    // A commit that is refused, and one whose manifest does not name the blob.
    let lease = store.lease();
    let layers = image.sources(&store, &lease);
    let kept = image.new_blobs(&store);
    let refused = ImageCommit { layers: Vec::new(), blobs: kept.clone(), ..image.commit(None) };
    store.commit_image(&lease, refused).expect_err("layers are missing");
    let other =
        ImageCommit { layers: layers.clone(), blobs: kept.clone(), manifest: b"{}".to_vec(), ..image.commit(None) };
    assert!(store.commit_image(&lease, other).expect("commits").blobs.is_empty());
    assert!(fs::read_dir(root.join("blobs")).is_err());
    // The same blobs are good for the next attempt, and are let go when the manifest changes.
    let record =
        store.commit_image(&lease, ImageCommit { layers: layers.clone(), blobs: kept.clone(), ..image.commit(None) });
    assert_eq!(record.expect("commits").blobs.len(), 2);
    let other = ImageCommit { layers, manifest: b"{}".to_vec(), ..image.commit(None) };
    assert!(store.commit_image(&lease, other).expect("commits").blobs.is_empty());
    drop((lease, kept));
    assert_eq!(blobs(&root), Vec::<String>::new());
    check_accounts(&store);
}

#[test]
fn a_check_finds_what_is_wrong_with_blobs() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let (first, second) = (image(2), image(3));
    let records = [first.pull(&store, "a.example/a:1"), second.pull(&store, "a.example/b:1")];
    let checked = AtomicU64::new(0);
    let run_check = |depth, repair| {
        let progress = |now: CheckProgress| {
            checked.fetch_max(now.layers, Ordering::Relaxed);
        };
        let options = CheckOptions { depth, repair, recent_only: false, cancelled: &|| false, progress: &progress };
        store.check(&options).expect("ends")
    };
    let report = run_check(Depth::Digest, false);
    assert_eq!((report.problems.as_slice(), report.layers_checked), (&[][..], 3));
    assert_eq!(checked.load(Ordering::Relaxed), 6, "three layers and three blobs");
    // The first three files are the blobs of the first image and the own one of the second.
    let path = |name: &String| root.join("blobs").join(name);
    let names = blobs(&root);
    let sizes: Vec<u64> = names.iter().map(|name| path(name).metadata().expect("there").len()).collect();
    let shared = names[sizes.iter().position(|size| *size > 100_000).expect("the base")].clone();
    let mut content = fs::read(path(&shared)).expect("reads");
    content[5] ^= 1;
    fs::write(path(&shared), &content).expect("writes");
    assert_eq!(run_check(Depth::Sizes, false).problems, [], "sizes alone do not tell");
    let report = run_check(Depth::Digest, false);
    assert_eq!((report.problems[0].kind, report.problems[0].images.len()), (ProblemKind::DamagedBlob, 2));
    fs::write(path(&shared), b"cut off").expect("writes");
    fs::write(root.join("blobs/77"), b"a stray").expect("writes");
    let own = names.iter().find(|name| **name != shared).expect("another");
    fs::remove_file(path(own)).expect("removes");
    let report = run_check(Depth::Sizes, true);
    let mut kinds: Vec<_> = report.problems.iter().map(|problem| (problem.kind, problem.repaired)).collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [(ProblemKind::DamagedBlob, true), (ProblemKind::DamagedBlob, true), (ProblemKind::Orphan, true)]
    );
    assert!(report.incomplete_images.is_empty() && records.iter().all(|record| store.image_is_whole(record)));
    assert_eq!(run_check(Depth::Files, false).problems, []);
    assert_eq!(blobs(&root).len(), 1);
    check_accounts(&store);
    // A dropped blob is kept again with the next pull that fetches it.
    let again = Image::new("again", &[plain_layer("base", &[1; 100_000])]).with_blobs().pull(&store, "a.example/c:1");
    assert_eq!((again.blobs.len(), blobs(&root).len()), (1, 2));
    check_accounts(&store);
}

#[test]
fn record_with_a_missing_file_gets_a_new_file() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let (first, second) = (image(2), image(3));
    first.pull(&store, "a.example/a:1");
    for name in blobs(&root) {
        fs::remove_file(root.join("blobs").join(name)).expect("removes");
    }
    assert!(store.open_blob(&digest(&first, 0)).expect("readable").is_none());
    let record = second.pull(&store, "a.example/b:1");
    assert!(store.open_blob(&digest(&first, 0)).expect("readable").is_some());
    assert_eq!((record.blobs.len(), blobs(&root).len()), (2, 2));
    store.drop_blob(&digest(&first, 1)).expect("drops");
    check_accounts(&store);
}

#[test]
fn blobs_that_a_crash_may_have_torn_are_not_trusted() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let image = image(2);
    let (kept, unsynced) = (top.path().join("kept"), OpenOptions { durability: Durability::Relaxed, ..options() });
    let store = Store::open(&root, unsynced).expect("opens");
    image.pull(&store, "a.example/a:1");
    // As after a crash of the machine: no clean end, and another boot.
    super::support::run("cp", &["-a", root.to_str().expect("text"), kept.to_str().expect("text")]);
    drop(store);
    edit_blobs(&kept, |json| json.replace("\"unsynced_boot\":\"", "\"unsynced_boot\":\"another "));
    let store = open(&kept);
    assert_eq!(blobs(&kept), Vec::<String>::new());
    assert!(store.image(&image.id()).expect("readable").is_some_and(|record| record.blobs.is_empty()));
    check_accounts(&store);
    drop(store);
    // After a clean end they are.
    let store = open(&root);
    assert_eq!(blobs(&root).len(), 2);
    check_accounts(&store);
}

const BLOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("blobs");

fn edit_blobs(root: &Path, change: impl Fn(String) -> String) {
    let db = redb::Database::create(root.join("meta.redb")).expect("opens");
    let rows: Vec<(String, Vec<u8>)> = {
        let table = db.begin_read().expect("reads").open_table(BLOBS).expect("there");
        table
            .iter()
            .expect("rows")
            .map(|row| row.map(|(k, v)| (k.value().to_owned(), v.value().to_vec())).expect("a row"))
            .collect()
    };
    let write = db.begin_write().expect("writes");
    for (key, value) in rows {
        let json = change(String::from_utf8(value[1..].to_vec()).expect("JSON"));
        let value = [&value[..1], json.as_bytes()].concat();
        write.open_table(BLOBS).expect("there").insert(key.as_str(), value.as_slice()).expect("inserts");
    }
    write.commit().expect("commits");
}

#[test]
fn a_store_from_before_there_were_blobs_opens() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let image = image(2);
    Image { blobs: Vec::new(), ..image.clone() }.pull(&store, "a.example/a:1");
    drop(store);
    let db = redb::Database::create(root.join("meta.redb")).expect("opens");
    let write = db.begin_write().expect("writes");
    write.delete_table(BLOBS).expect("deletes");
    write.delete_table(TableDefinition::<&str, &[u8]>::new("shares")).expect("deletes");
    let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let totals = write.open_table(meta).expect("there").get("totals").expect("reads").expect("a row").value().to_vec();
    let totals = String::from_utf8(totals).expect("JSON").replace(",\"blobs\":0", "");
    assert!(!totals.contains("blobs"), "{totals}");
    write.open_table(meta).expect("there").insert("totals", totals.as_bytes()).expect("inserts");
    write.commit().expect("commits");
    drop(db);

    let store = open(&root);
    check_accounts(&store);
    assert!(store.open_blob(&digest(&image, 0)).expect("readable").is_none());
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    super::keeping::image(3).pull(&store, "a.example/b:1");
    assert_eq!(blobs(&root).len(), 2);
    store.remove_image(&image.id()).expect("removes");
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn blobs_need_no_space_to_go() {
    let disk = LoopDisk::ext4(64 << 20);
    let root = disk.path.join("store");
    let store = Store::open(&root, OpenOptions { reserve_bytes: 4 << 20, ..options() }).expect("opens");
    let image = |number: u8| Image::new(&format!("{number}"), &[plain_layer("a", &vec![number; 2 << 20])]).with_blobs();
    let records: Vec<_> = (0..3).map(|number| image(number).pull(&store, &format!("a.example/a:{number}"))).collect();
    disk.fill("filler");
    // A blob that does not fit changes nothing.
    let mut ingest = store.new_blob(&Digest::sha256(b"x"), 1 << 20).ok().flatten();
    if let Some(ingest) = &mut ingest {
        assert!(ingest.write(&[0; 1 << 20]).expect_err("no space").is_disk_full());
    }
    drop(ingest);
    for record in records {
        disk.fill("more");
        let removed = store.remove_image(&record.id).expect("removes on a full disk");
        assert!(removed.freed_bytes >= 4 << 20, "files and blob: {removed:?}");
        check_accounts(&store);
    }
    assert_eq!(blobs(&root), Vec::<String>::new());
    // Where not even the reserve exists, files are removed first.
    fs::remove_file(disk.path.join("filler")).expect("removes");
    let record = image(9).pull(&store, "a.example/a:9");
    disk.fill("filler");
    fs::File::options().write(true).open(root.join("reserve")).expect("there").set_len(0).expect("shrinks");
    disk.fill("rest");
    store.remove_image(&record.id).expect("removes without a reserve");
    assert_eq!(blobs(&root), Vec::<String>::new());
    check_accounts(&store);
}
