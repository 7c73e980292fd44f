//! Lock, version, making and re-opening, and the sweep.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use imagelet_store::{Durability, OpenError, OpenOptions, Store};

use super::support::{Image, check_accounts, list, open, options, plain_layer};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

#[test]
fn a_new_store_is_for_its_owner_alone() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("a/b/store");
    let store = open(&root);
    assert_eq!(mode(&root), 0o700);
    assert_eq!(list(&root), ["ingest", "layers", "lock", "meta.redb", "reserve", "version", "young"]);
    assert_eq!(fs::read_to_string(root.join("version")).expect("readable"), "1\n");
    assert_eq!(store.totals().expect("readable"), imagelet_store::Totals::default());
    for name in ["lock", "meta.redb", "reserve", "version"] {
        assert_eq!(mode(&root.join(name)), 0o600, "{name}");
    }
}

#[test]
fn wide_modes_are_narrowed() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    drop(open(&root));
    for name in ["", "layers", "ingest"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    drop(open(&root));
    for name in ["", "layers", "ingest"] {
        assert_eq!(mode(&root.join(name)), 0o700, "{name}");
    }
}

#[test]
fn the_second_one_learns_who_has_it() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let socket = Path::new("/run/imagelet/agent.sock");
    let first = OpenOptions {
        agent_socket: Some(socket.into()),
        command: Some("imagelet serve".to_owned()),
        settings: Some("these".to_owned()),
        ..options()
    };
    let first = Store::open(&root, first).expect("opens");
    let clone = first.clone();
    drop(first);
    let error = Store::open(&root, options()).expect_err("held");
    let text = error.to_string();
    let OpenError::Held { root: held, pid, command, settings, socket: at } = error else { panic!("{error:?}") };
    assert_eq!((command.as_deref(), settings.as_deref()), (Some("imagelet serve"), Some("these")));
    assert_eq!((held, pid, at.as_deref()), (root.clone(), Some(std::process::id()), Some(socket)));
    assert_eq!(
        text,
        format!(
            "store {} is in use by process {} (imagelet serve), which answers on /run/imagelet/agent.sock",
            root.display(),
            std::process::id()
        )
    );
    drop(clone);
    drop(open(&root));
}

#[test]
fn a_store_is_absent_until_something_of_it_is_there() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let absent = || Store::is_absent(&root).expect("readable");
    assert!(absent() && !root.exists());
    fs::create_dir_all(root.join("image_gc")).expect("create");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("any.sock")).expect("a socket");
    assert!(absent(), "what the rest of the program keeps there is no store");
    fs::write(root.join("lock"), "").expect("write");
    assert!(!absent(), "the first thing that is made of one");
    fs::rename(root.join("lock"), root.join("letter")).expect("rename");
    assert!(!absent(), "opening says that this is none");
}

#[test]
fn the_lock_alone_decides_not_the_text_in_it() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    drop(open(&root));
    fs::write(root.join("lock"), r#"{"pid":1}"#).expect("write");
    let store = open(&root);
    let text = fs::read_to_string(root.join("lock")).expect("readable");
    assert_eq!(text.trim_end(), format!("{{\"pid\":{}}}", std::process::id()), "and the other one had no clean end");
    drop(store);
    assert_eq!(fs::read_to_string(root.join("lock")).expect("readable"), text, "nobody looked at what it wrote");
}

#[test]
fn what_is_no_store_is_refused_and_not_touched() {
    let top = tempfile::tempdir().expect("tempdir");
    let file = top.path().join("file");
    fs::write(&file, "x").expect("write");
    assert!(matches!(Store::open(&file, options()), Err(OpenError::NotADirectory { .. })));
    assert!(matches!(Store::open(&file.join("below"), options()), Err(OpenError::NotADirectory { .. })));

    let home = top.path().join("home");
    fs::create_dir(&home).expect("create");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::write(home.join("letter"), "x").expect("write");
    let error = Store::open(&home, options()).expect_err("not a store");
    assert!(matches!(&error, OpenError::NotAStore { found, .. } if found == "letter"), "{error:?}");
    assert_eq!((list(&home), mode(&home)), (vec!["letter".to_owned()], 0o755));

    let other = top.path().join("other");
    fs::create_dir_all(other.join("layers/mine")).expect("create");
    assert!(matches!(Store::open(&other, options()), Err(OpenError::NotAStore { .. })));
    assert!(other.join("layers/mine").exists());
}

#[test]
fn a_newer_version_is_refused() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    drop(open(&root));
    fs::write(root.join("version"), "7\n").expect("write");
    let error = Store::open(&root, options()).expect_err("newer");
    assert!(matches!(error, OpenError::NewerVersion { found: 7, supported: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("has version 7, and this program knows versions up to 1"), "{error}");
    fs::write(root.join("version"), "one").expect("write");
    let error = Store::open(&root, options()).expect_err("no version");
    assert!(error.to_string().contains("is no version"), "{error}");
}

#[test]
fn a_making_that_was_cut_off_is_done_again() {
    let top = tempfile::tempdir().expect("tempdir");
    let whole = top.path().join("whole");
    drop(open(&whole));
    // The states that a kill can leave, in the order of the making.
    let states: [&[&str]; 6] = [
        &[],
        &["lock"],
        &["lock", "ingest/", "layers/"],
        &["lock", "ingest/", "layers/", "young"],
        &["lock", "ingest/", "layers/", "young", "reserve", "meta.redb"],
        &["lock", "ingest/", "layers/", "young", "reserve", "meta.redb", "version.new"],
    ];
    for state in states {
        let root = tempfile::tempdir().expect("tempdir");
        for name in state {
            match name.strip_suffix('/') {
                Some(name) => fs::create_dir(root.path().join(name)).expect("create"),
                None => fs::write(root.path().join(name), "half a database, half a version").expect("write"),
            }
        }
        let store = open(root.path());
        let image = Image::new("after the crash", &[plain_layer("f", b"x")]);
        image.pull(&store, "docker.io/library/a:1");
        drop(store);
        assert_eq!(open(root.path()).images().expect("readable").len(), 1, "{state:?}");
    }
}

/// Files that the program keeps in a root also where it needs no store, as when it runs pods on a runtime with images of its own.
const BESIDE_A_STORE: [&str; 5] =
    ["pods.lock", "pods/0a1b/volumes/", "image_gc/endpoints/x/", "image_manager/pulling/", "image_manager/pulled/"];

fn lay(root: &Path, name: &str) {
    match name.strip_suffix('/') {
        Some(name) => fs::create_dir_all(root.join(name)).expect("create"),
        None => fs::write(root.join(name), "1234\n").expect("write"),
    }
}

#[test]
fn files_of_the_program_in_the_root_do_not_prevent_opening() {
    let socket = |root: &Path| std::os::unix::net::UnixListener::bind(root.join("admin.sock")).expect("binds");
    // Whatever was made so far, in the order of the making, and each by itself.
    let so_far = (0..=BESIDE_A_STORE.len()).map(|count| &BESIDE_A_STORE[..count]);
    for laid in so_far.chain(BESIDE_A_STORE.chunks(1)) {
        for made in [&[][..], &["lock", "ingest/", "layers/"], &["lock", "ingest/", "layers/", "young", "meta.redb"]] {
            let root = tempfile::tempdir().expect("tempdir");
            laid.iter().chain(made).for_each(|name| lay(root.path(), name));
            let _listens = socket(root.path());
            let store = open(root.path());
            Image::new("a", &[plain_layer("f", b"x")]).pull(&store, "docker.io/library/a:1");
            drop(store);
            assert_eq!(open(root.path()).images().expect("readable").len(), 1, "{laid:?} {made:?}");
            assert!(laid.iter().all(|name| root.path().join(name).exists()), "{laid:?} stays: {:?}", list(root.path()));
        }
    }
    // An open never turns foreign files into ours.
    let root = tempfile::tempdir().expect("tempdir");
    BESIDE_A_STORE.iter().for_each(|name| lay(root.path(), name));
    for foreign in ["letter", "pods.lock.bak", "Pods/", "image_gc2/"] {
        lay(root.path(), foreign);
        let before = list(root.path());
        let error = Store::open(root.path(), options()).expect_err("not a store");
        let name = foreign.trim_end_matches('/');
        assert!(matches!(&error, OpenError::NotAStore { found, .. } if found == name), "{error:?}");
        assert_eq!(list(root.path()), before, "nothing is touched");
        let path = root.path().join(name);
        if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.expect("removed");
    }
    drop(open(root.path()));
}

#[test]
fn images_survive_a_reopening_and_leftovers_do_not() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let image = Image::new("one", &[plain_layer("a", b"aaa"), plain_layer("b", b"bbb")]);
    let record = image.pull(&store, "docker.io/library/a:1");
    drop(store);
    fs::create_dir_all(root.join("ingest/12/fs/d")).expect("create");
    fs::write(root.join("ingest/12/fs/d/f"), "x").expect("write");
    fs::create_dir_all(root.join("ingest/trash-4/fs")).expect("create");
    fs::create_dir_all(root.join("layers/900/fs")).expect("create");
    fs::create_dir_all(root.join("layers/strange")).expect("create");
    fs::write(root.join("layers/file"), "x").expect("write");
    let store = open(&root);
    assert_eq!(store.images().expect("readable"), [record]);
    check_accounts(&store);
    // The number of a directory that was swept is not given out again.
    let other = Image::new("two", &[plain_layer("c", b"ccc")]).pull(&store, "docker.io/library/b:1");
    assert!(other.layers.iter().all(|id| id.to_string().parse::<u64>().expect("a number") > 900), "{:?}", other.layers);
    check_accounts(&store);
}

#[test]
fn relaxed_images_are_trusted_within_a_boot_only() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    // The end of an agent settles what it wrote.
    let agent_socket = Some(top.path().join("socket"));
    let relaxed = || OpenOptions { durability: Durability::Relaxed, agent_socket: agent_socket.clone(), ..options() };
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);

    let store = Store::open(&root, relaxed()).expect("opens");
    image.pull(&store, "docker.io/library/a:1");
    drop(store);
    // A clean end settles it: another boot does not matter.
    set_boot(&root, None);
    let store = Store::open(&root, relaxed()).expect("opens");
    assert_eq!(store.images().expect("readable").len(), 1);
    let other = Image::new("two", &[plain_layer("a", b"aaa"), plain_layer("b", b"bbb")]);
    other.pull(&store, "docker.io/library/b:1");
    drop(store);

    // After a crash of the machine only synced content is present. The layer that both have was synced.
    set_boot(&root, Some((other.layers[1].0.to_string(), "another boot")));
    let store = Store::open(&root, relaxed()).expect("opens");
    let images = store.images().expect("readable");
    assert_eq!(images.iter().map(|i| &i.id).collect::<Vec<_>>(), [&image.id()]);
    check_accounts(&store);
}

#[test]
fn a_young_store_is_as_good_as_its_boot() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    let relaxed = || OpenOptions { durability: Durability::Relaxed, ..options() };
    let count = |options: OpenOptions| Store::open(&root, options).expect("opens").images().expect("readable").len();
    let young = root.join("young");

    // A command that was not to wait for a sync leaves it young, and the next one finds what it left.
    image.pull(&Store::open(&root, relaxed()).expect("opens"), "docker.io/library/a:1");
    assert_eq!((count(relaxed()), young.exists()), (1, true));
    // After a stop of the machine no content can be trusted, whatever a kill in the middle of the emptying has left.
    for (torn, version) in [("another boot\n", "1\n"), ("", "1\n"), ("another boot\n", "\0\0"), ("another boot\n", "")]
    {
        fs::write(&young, torn).expect("writes");
        fs::write(root.join("version"), version).expect("writes");
        fs::write(root.join("layers/file"), "x").expect("writes");
        assert_eq!((count(relaxed()), young.exists()), (0, true));
        assert_eq!((list(&root.join("layers")), list(&root.join("ingest"))), (vec![], vec![]));
        image.pull(&Store::open(&root, relaxed()).expect("opens"), "docker.io/library/a:1");
    }
    // Within its boot it is as it was written, and a version that says nothing is damage.
    fs::write(root.join("version"), "\0\0").expect("writes");
    assert!(Store::open(&root, relaxed()).is_err_and(|error| error.to_string().contains("which is no version")));
    fs::remove_file(root.join("version")).expect("removes");
    assert!(matches!(Store::open(&root, relaxed()), Err(OpenError::NotAStore { .. })), "layers without a version");
    fs::write(root.join("version"), "1\n").expect("writes");
    // A minute after the last change the kernel has written everything; the end of a command notes it.
    let before = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let age = |root: &Path| fs::File::open(root.join("meta.redb")).expect("opens").set_modified(before).expect("sets");
    let store = Store::open(&root, relaxed()).expect("opens");
    age(&root);
    drop(store);
    assert!(!young.exists());
    set_boot(&root, None);
    assert_eq!(count(relaxed()), 1);

    // Full durability: the first commit makes it a grown one, and so does an open of what another one has left.
    let full = top.path().join("full");
    let store = open(&full);
    assert!(full.join("young").exists());
    image.pull(&store, "docker.io/library/a:1");
    assert!(!full.join("young").exists());
    drop(store);
    fs::write(full.join("young"), fs::read("/proc/sys/kernel/random/boot_id").expect("reads")).expect("writes");
    assert_eq!(open(&full).images().expect("readable").len(), 1);
    assert!(!full.join("young").exists());
}

/// Asserts that no layer waits for a sync; then makes one layer look as if it was written, unsynced, in that boot.
fn set_boot(root: &Path, mark: Option<(String, &str)>) {
    use redb::{ReadableDatabase, ReadableTable, TableDefinition};
    const LAYERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("layers");
    let db = redb::Database::open(root.join("meta.redb")).expect("a redb file");
    let rows: Vec<(u64, Vec<u8>)> = {
        let transaction = db.begin_read().expect("begins");
        let table = transaction.open_table(LAYERS).expect("there");
        table
            .iter()
            .expect("iterates")
            .map(|row| row.map(|(k, v)| (k.value(), v.value().to_vec())).expect("row"))
            .collect()
    };
    let transaction = db.begin_write().expect("begins");
    for (id, bytes) in rows {
        let mut record: serde_json::Value = serde_json::from_slice(&bytes[1..]).expect("JSON");
        assert_eq!(record.get("unsynced_boot"), None, "a clean end syncs");
        if let Some((diff_id, boot)) = &mark
            && record["diff_id"] == *diff_id
        {
            record["unsynced_boot"] = (*boot).into();
            let mut bytes = vec![1];
            serde_json::to_writer(&mut bytes, &record).expect("plain data");
            transaction.open_table(LAYERS).expect("there").insert(id, bytes.as_slice()).expect("inserts");
        }
    }
    transaction.commit().expect("commits");
}
