//! The socket in the file system.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Barrier;

use tempfile::TempDir;

use super::support::endpoint_in;
use crate::Endpoint;
use crate::server::{BindError, bind, bind_private};

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn socket_has_its_mode_and_is_removed_with_the_listener() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    for (listener, mode) in [(bind as fn(&_) -> _, 0o660), (bind_private, 0o600)] {
        let listener = listener(&endpoint).unwrap();
        let found = fs::symlink_metadata(endpoint.path()).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o7777, mode);
        assert_eq!(listener.endpoint(), &endpoint);
        drop(listener);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}

#[test]
fn stale_socket_is_replaced() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    drop(UnixListener::bind(endpoint.path()).unwrap());
    assert!(endpoint.path().exists());
    let _listener = bind(&endpoint).unwrap();
    std::os::unix::net::UnixStream::connect(endpoint.path()).unwrap();
}

#[test]
fn live_socket_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let other = UnixListener::bind(endpoint.path()).unwrap();
    let before = inode(endpoint.path());
    let error = bind(&endpoint).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
    let text = error.to_string();
    let want = format!("another process answers on {endpoint}: process {} (", std::process::id());
    assert!(text.starts_with(&want), "{text}");
    assert_eq!(inode(endpoint.path()), before);
    drop(other);
}

#[test]
fn live_socket_with_a_full_backlog_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(endpoint.path()).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _queued = std::os::unix::net::UnixStream::connect(endpoint.path()).unwrap();
    let error = bind(&endpoint).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
}

#[test]
fn other_files_are_left_alone() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let cases = [
        ("file", "is a regular file, not a socket"),
        ("dir", "is a directory, not a socket"),
        ("link", "is a symbolic link, not a socket"),
        ("dangling", "is a symbolic link, not a socket"),
        ("fifo", "is a special file, not a socket"),
    ];
    for (name, want) in cases {
        let path = dir.path().join(name);
        let before = inode(&path);
        let error = bind(&Endpoint::parse(path.to_str().unwrap()).unwrap()).unwrap_err();
        assert!(matches!(error, BindError::NotASocket { .. }), "{error:?}");
        assert!(error.to_string().contains(want), "{error}");
        assert_eq!(inode(&path), before);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

#[test]
fn the_directory_must_exist() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing");
    let error = bind(&Endpoint::parse(&format!("unix://{}/s", missing.display())).unwrap()).unwrap_err();
    assert!(matches!(error, BindError::NoDirectory(_)), "{error:?}");
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
    assert!(!missing.exists());
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = bind(&Endpoint::parse(&format!("unix://{}/s", file.display())).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("open directory"), "{error}");
}

#[test]
fn replaced_socket_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let ours = bind(&endpoint).unwrap();
    fs::remove_file(endpoint.path()).unwrap();
    let theirs = bind(&endpoint).unwrap();
    drop(ours);
    assert!(endpoint.path().exists(), "the socket of the other listener");
    drop(theirs);
    assert!(!endpoint.path().exists());
}

#[test]
fn one_of_many_concurrent_listeners_wins() {
    // Many rounds: without the lock, one in some dozens fails.
    for round in 0..400 {
        let dir = TempDir::new().unwrap();
        let endpoint = endpoint_in(&dir);
        if round % 2 == 0 {
            drop(UnixListener::bind(endpoint.path()).unwrap());
        }
        let start = Barrier::new(8);
        let won: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        bind(&endpoint)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|r| r.is_ok()).count(), 1, "{won:?}");
        for lost in won.iter().filter_map(|r| r.as_ref().err()) {
            assert!(matches!(lost, BindError::InUse { .. }), "{lost:?}");
        }
        std::os::unix::net::UnixStream::connect(endpoint.path()).expect("the winner answers");
    }
}
