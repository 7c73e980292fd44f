//! The watch over secrets in all product tests: every user and password that a registry knows or a pull secret has is noted, and
//! whatever the program writes, to its outputs and into any store, is searched for them. The support does both; no test need think
//! of it. What containers write is theirs, and so is what lies in a pod's volumes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::manifests::forms_of;

/// Shorter ones are words that stand anywhere.
const SHORTEST: usize = 8;
/// What is longer holds layers.
const LONGEST: u64 = 16 << 20;

/// Guards what must stand nowhere.
static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// From now on this password must stand nowhere, in whatever form.
pub(crate) fn note(user: &str, password: &str) {
    let forms = forms_of(user, password).into_iter().chain([STANDARD.encode(password)]);
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.extend(forms.filter(|form| form.len() >= SHORTEST));
}

/// From now on this must stand nowhere: a token, a signature, or the beginning of all that somebody gives out.
pub(crate) fn note_bare(secret: &str) {
    assert!(secret.len() >= SHORTEST, "{secret:?} stands anywhere");
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).insert(secret.to_owned());
}

/// Stores that programs were started with.
static ROOTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A program is started with this store.
pub(crate) fn note_root(root: &Path) {
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner).insert(root.to_path_buf());
}

/// Fails the test if a secret stands in a store below a directory that is about to go.
#[track_caller]
pub(crate) fn look_at_stores(below: &Path) {
    let roots = std::mem::take(&mut *ROOTS.lock().unwrap_or_else(PoisonError::into_inner));
    let (here, others): (BTreeSet<_>, BTreeSet<_>) = roots.into_iter().partition(|root| root.starts_with(below));
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner).extend(others);
    here.iter().for_each(|root| look_below(root));
}

/// Fails the test if one of them stands there.
#[track_caller]
pub(crate) fn look(what: &str, bytes: &[u8]) {
    let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = noted.iter().find(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
    let found = found.cloned();
    drop(noted);
    assert!(found.is_none(), "{what} tells the secret {found:?}:\n{}", String::from_utf8_lossy(bytes));
}

/// The same for what lies below a directory of the program: names and content, but for layers and volumes.
#[track_caller]
pub(crate) fn look_below(directory: &Path) {
    if NOTED.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
        let (path, name) = (entry.path(), entry.file_name());
        look("the name of a file", path.as_os_str().as_encoded_bytes());
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_dir() && !["layers", "pods", "mounts"].iter().any(|theirs| name == *theirs) {
            look_below(&path);
        } else if about.is_file() && about.len() <= LONGEST {
            look(&path.display().to_string(), &fs::read(&path).unwrap_or_default());
        }
    }
}
