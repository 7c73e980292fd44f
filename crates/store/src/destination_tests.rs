//! The file type at a path decides how it is written, and only a regular file is replaced.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType as Type};

use super::*;

const NEVER: &dyn Fn() -> bool = &|| false;

#[track_caller]
fn path_of(path: &Path) -> PathBuf {
    match find(path, NEVER).expect("found") {
        Destination::File(path) => path,
        Destination::Stream(file) => panic!("{} is a stream: {file:?}", path.display()),
    }
}

#[track_caller]
fn stream(path: &Path) -> File {
    match find(path, NEVER).expect("found") {
        Destination::Stream(file) => file,
        Destination::File(path) => panic!("{} would be replaced", path.display()),
    }
}

#[test]
fn regular_files_are_replaced_where_links_lead() {
    let top = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| top.path().join(name);
    fs::write(at("file"), "x").expect("written");
    fs::create_dir(at("sub")).expect("made");
    for (name, to) in [
        ("link", "file"),
        ("twice", "sub/../link"),
        ("sub/up", "../file"),
        ("dangling", "sub/new"),
        ("whole", &at("file").display().to_string()),
    ] {
        symlink(to, at(name)).expect("linked");
    }
    let named = |path: &Path| path.file_name().expect("a name").to_owned();
    for (name, want) in [("file", "file"), ("new", "new"), ("link", "file"), ("twice", "file"), ("whole", "file")] {
        assert_eq!(named(&path_of(&at(name))), want, "{name}");
    }
    assert_eq!(path_of(&at("sub/up")).canonicalize().expect("there"), at("file").canonicalize().expect("there"));
    assert_eq!(path_of(&at("dangling")), at("sub/new"));
    assert_eq!(path_of(Path::new("no such file here")), Path::new("no such file here"));

    symlink("loop-b", at("loop-a")).expect("linked");
    symlink("loop-a", at("loop-b")).expect("linked");
    symlink("sub", at("to-sub")).expect("linked");
    let kind = |name: &str| find(&at(name), NEVER).expect_err(name).kind();
    let error = find(&at("loop-a"), NEVER).expect_err("a loop");
    assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    for directory in ["sub", "to-sub", "sub/"] {
        assert_eq!(kind(directory), io::ErrorKind::IsADirectory, "{directory}");
    }
    assert_eq!(kind("new/"), io::ErrorKind::NotFound);
    assert_eq!(kind("file/"), io::ErrorKind::NotADirectory);
    assert_eq!(find(Path::new("/proc/self/cwd"), NEVER).expect_err("a directory").kind(), io::ErrorKind::IsADirectory);
}

#[test]
fn named_pipe_is_written_once_it_has_a_reader() {
    let top = tempfile::tempdir().expect("tempdir");
    let (pipe, link) = (top.path().join("pipe"), top.path().join("link"));
    rustix::fs::mknodat(CWD, &pipe, Type::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    symlink("pipe", &link).expect("linked");
    assert_eq!(find(&link, &|| true).expect_err("nobody reads").kind(), io::ErrorKind::Interrupted);
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read(pipe).expect("read"))
    };
    let mut out = stream(&link);
    assert!(!rustix::fs::fcntl_getfl(&out).expect("flags").contains(OFlags::NONBLOCK), "it waits for its reader");
    out.write_all(&[7; 300_000]).expect("written");
    flushed(&out).expect("as it is");
    drop(out);
    assert_eq!(reader.join().expect("no panic"), [7; 300_000]);
    assert!(pipe.symlink_metadata().expect("there").file_type().is_fifo());
}

#[test]
fn devices_stay_devices() {
    let mut out = stream(Path::new("/dev/null"));
    out.write_all(b"x").expect("written");
    flushed(&out).expect("as it is");
    // A node of one's own takes the rights of root, and may be made without that of opening it.
    let top = tempfile::tempdir().expect("tempdir");
    let node = top.path().join("null");
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(CWD, &node, Type::CharacterDevice, Mode::RUSR | Mode::WUSR, null).is_ok() {
        match find(&node, NEVER) {
            Ok(Destination::Stream(mut out)) => out.write_all(b"x").expect("written"),
            Ok(found) => panic!("{found:?}"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
    let socket = top.path().join("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
    find(&socket, NEVER).expect_err("nobody opens a socket");
    assert!(socket.symlink_metadata().expect("there").file_type().is_socket());
}

#[test]
fn open_descriptor_is_continued_at_its_position() {
    let through = |number: i32| [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")].map(PathBuf::from);
    // Earlier content stays, and it does not matter where the path leads meanwhile.
    let top = tempfile::tempdir().expect("tempdir");
    let name = top.path().join("file");
    let mut file = File::options().read(true).write(true).create_new(true).open(&name).expect("made");
    file.write_all(b"before ").expect("written");
    fs::rename(&name, top.path().join("moved")).expect("moved");
    fs::write(&name, "another one").expect("written");
    for path in through(file.as_raw_fd()) {
        stream(&path).write_all(b"and after ").expect("written");
    }
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).expect("sought");
    file.read_to_string(&mut text).expect("read");
    assert_eq!(
        (text.as_str(), fs::read(&name).expect("read").as_slice()),
        ("before and after and after ", &b"another one"[..])
    );

    // A pipe without a name, and a socket, which no path opens.
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let (mut here, there) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut bytes = [0; 2];
    for path in through(writer.as_raw_fd()) {
        stream(&path).write_all(b"ab").expect("written");
        reader.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"ab");
    }
    for path in through(there.as_raw_fd()) {
        stream(&path).write_all(b"cd").expect("written");
        here.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"cd");
    }
}

#[test]
fn temporary_names_fit_the_longest_file_name() {
    let long = Path::new("/some/where").join("x".repeat(255));
    let (first, second) = (temporary_path(&long), temporary_path(&long));
    assert_eq!((first.parent(), first == second), (long.parent(), false));
    assert!(first.file_name().expect("a name").len() < 64);
}
