//! The watch over secrets in all product tests: every user and password that a registry knows or a pull secret has is noted, and
//! all output of the program and every store is searched for them. The support does both; a test need not call it.
//! The output of containers is not searched, and neither are a pod's volumes.

use base::lock::Mutex;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::manifests::forms_of;

/// Shorter ones are words that stand anywhere.
const SHORTEST: usize = 8;
/// Longer files hold layers.
const LONGEST: u64 = 16 << 20;

/// Guards what must stand nowhere.
static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Adds a password that must appear nowhere from now on, in whatever form.
pub(crate) fn note(user: &str, password: &str) {
    let forms = forms_of(user, password).into_iter().chain([STANDARD.encode(password)]);
    let mut noted = NOTED.lock();
    noted.extend(forms.filter(|form| form.len() >= SHORTEST));
}

/// Adds a text that must appear nowhere from now on: a token, a signature, or the common prefix of all tokens of one issuer.
pub(crate) fn note_bare(secret: &str) {
    assert!(secret.len() >= SHORTEST, "{secret:?} stands anywhere");
    NOTED.lock().insert(secret.to_owned());
}

/// The output of programs that run in the background, by its name, and the threads that read it.
static WRITTEN: Mutex<Vec<Written>> = Mutex::new(Vec::new());

struct Written {
    what: String,
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

/// For how long the last words of a program are waited for. One that it started may hold its output for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A copy of the output for its reader; all of it is kept for [`search_written_files`]. When the reader closes its end, the pipe
/// breaks, as it would without this.
pub(crate) fn watched(what: String, from: OwnedFd) -> OwnedFd {
    let (there, here) = std::io::pipe().expect("make a pipe");
    let bytes = Arc::<Mutex<Vec<u8>>>::default();
    let kept = Arc::clone(&bytes);
    let (mut from, mut here) = (fs::File::from(from), here);
    let reader = thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            kept.lock().extend_from_slice(&piece[..length]);
            if here.write_all(&piece[..length]).is_err() {
                break;
            }
        }
    });
    WRITTEN.lock().push(Written { what, bytes, reader });
    there.into()
}

/// Fails the test if a secret is in the output of a program that ran in the background.
#[track_caller]
pub(crate) fn search_written_files() {
    let until = Instant::now() + LAST_WORDS;
    for Written { what, bytes, reader } in std::mem::take(&mut *WRITTEN.lock()) {
        while !reader.is_finished() && Instant::now() < until {
            thread::park_timeout(Duration::from_millis(2));
        }
        search(&what, &bytes.lock());
    }
}

/// Stores that programs were started with.
static ROOTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A program is started with this store.
pub(crate) fn note_root(root: &Path) {
    ROOTS.lock().insert(root.to_path_buf());
}

/// Fails the test if a secret is in a store below a directory that is about to be removed.
#[track_caller]
pub(crate) fn search_stores(below: &Path) {
    let roots = std::mem::take(&mut *ROOTS.lock());
    let (here, others): (BTreeSet<_>, BTreeSet<_>) = roots.into_iter().partition(|root| root.starts_with(below));
    ROOTS.lock().extend(others);
    here.iter().for_each(|root| search_below(root));
}

/// Fails the test if one of them stands there.
#[track_caller]
pub(crate) fn search(what: &str, bytes: &[u8]) {
    let noted = NOTED.lock();
    let found = noted.iter().find(|secret| memchr::memmem::find(bytes, secret.as_bytes()).is_some());
    let found = found.cloned();
    drop(noted);
    assert!(found.is_none(), "{what} tells the secret {found:?}:\n{}", String::from_utf8_lossy(bytes));
}

/// Searches a directory of the program in the same way: names and content, except layers and volumes.
#[track_caller]
pub(crate) fn search_below(directory: &Path) {
    if NOTED.lock().is_empty() {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
        let (path, name) = (entry.path(), entry.file_name());
        search("the name of a file", path.as_os_str().as_encoded_bytes());
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_dir() && !["layers", "pods", "mounts"].iter().any(|theirs| name == *theirs) {
            search_below(&path);
        } else if about.is_file() && about.len() <= LONGEST {
            search(&path.display().to_string(), &fs::read(&path).unwrap_or_default());
        }
    }
}
