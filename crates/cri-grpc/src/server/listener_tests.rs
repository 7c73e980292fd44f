//! Paths that another process changes between two calls. Sockets that are in use or left over are in
//! `tests/sockets.rs`.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// Mode and content of a file that must stay as it is.
fn state(path: &Path) -> (u32, String) {
    let mode = fs::metadata(path).expect("there").permissions().mode();
    (mode & 0o7777, fs::read_to_string(path).expect("readable"))
}

#[test]
fn swapped_path_keeps_its_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let victim = directory.path().join("victim");
    fs::write(&victim, "theirs").expect("written");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).expect("set");
    let before = state(&victim);
    let elsewhere = directory.path().join("elsewhere");
    let _socket = UnixListener::bind(&elsewhere).expect("bound");
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o600)).expect("set");

    let path = directory.path().join("socket");
    for swapped in [&victim, &elsewhere, &directory.path().join("nothing")] {
        symlink(swapped, &path).expect("a link");
        let error = set_mode(&path, SHARED).expect_err("a link");
        assert!(matches!(&error, BindError::Replaced(at) if *at == path), "{error:?}");
        fs::remove_file(&path).expect("removed");
    }
    fs::hard_link(&victim, &path).expect("a link");
    assert!(matches!(set_mode(&path, SHARED), Err(BindError::Replaced(_))));
    assert_eq!(state(&victim), before);
    assert_eq!(fs::metadata(&elsewhere).expect("there").permissions().mode() & 0o7777, 0o600);
}

#[test]
fn socket_mode_is_independent_of_the_umask() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let _socket = UnixListener::bind(&path).expect("bound");
    for (before, mode) in [(0o640, SHARED), (0o755, PRIVATE), (0o600, PRIVATE)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).expect("set");
        let identity = set_mode(&path, mode).expect("ours");
        let found = fs::symlink_metadata(&path).expect("there");
        assert_eq!(found.permissions().mode() & 0o7777, mode.as_raw_mode());
        assert_eq!(identity, (found.dev(), found.ino()));
    }
}

#[test]
fn only_the_checked_socket_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let socket = UnixListener::bind(&path).expect("bound");
    let found = fs::symlink_metadata(&path).expect("there");
    let identity = (found.dev(), found.ino());
    let aside = directory.path().join("aside");
    fs::rename(&path, &aside).expect("moved");

    let victim = directory.path().join("victim");
    fs::write(&victim, "theirs").expect("written");
    fs::hard_link(&victim, &path).expect("a link");
    assert!(!remove(&path, identity).expect("looked at"));
    fs::remove_file(&path).expect("still there");
    symlink(&aside, &path).expect("a link");
    assert!(!remove(&path, identity).expect("looked at"), "a link to it is not it");
    fs::remove_file(&path).expect("still there");
    let other = UnixListener::bind(&path).expect("bound");
    assert!(!remove(&path, identity).expect("looked at"), "another socket");
    assert!(remove(&aside, identity).expect("looked at"));
    assert!(!aside.exists() && path.exists());
    drop((socket, other));
}
