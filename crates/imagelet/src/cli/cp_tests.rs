//! Tests of the source and the target of copies, with paths as users of `docker cp` type them.

use super::*;

#[test]
fn image_and_path_are_split() {
    let cases: &[(&str, Option<(&str, &str)>)] = &[
        ("busybox:/bin/sh", Some(("busybox", "/bin/sh"))),
        ("busybox:1:/bin/sh", Some(("busybox:1", "/bin/sh"))),
        ("busybox:1:bin/sh", Some(("busybox:1", "bin/sh"))),
        ("localhost:5000/a/b:1:/etc", Some(("localhost:5000/a/b:1", "/etc"))),
        ("a@sha256:0123:/x", Some(("a@sha256:0123", "/x"))),
        ("sha256:0123:/a:/b", Some(("sha256:0123", "/a:/b"))),
        ("busybox:.", Some(("busybox", "."))),
        ("busybox:/", Some(("busybox", "/"))),
        ("busybox", None),
        (":/bin", None),
        ("busybox:", None),
    ];
    for (text, want) in cases {
        let got = FileName::split(OsStr::new(text));
        let want = want.map(|(image, path)| FileName { image: image.to_owned(), path: path.as_bytes().to_vec() });
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn an_image_with_a_tag_has_no_path() {
    let is_split = |text: &str| FileName::split_absolute(OsStr::new(text)).is_some();
    assert!(is_split("busybox:/bin/sh") && is_split("localhost:5000/a/b:1:/etc"));
    for text in ["busybox", "busybox:1", "localhost:5000/a/b:1", "sha256:0123"] {
        assert!(!is_split(text), "{text}");
    }
    let twice = FileName::of_words(OsStr::new("busybox:/bin"), OsStr::new("/etc")).expect_err("two paths");
    assert_eq!(twice.code(), Code::Usage);
}

#[test]
fn copies_go_where_docker_puts_them() {
    use TargetKind::{Absent, Directory, Other};
    type Want = Result<(&'static str, Option<&'static str>, bool), &'static str>;
    let (dir, file) = (Kind::Directory, Kind::File);
    let cases: &[(&str, Kind, &str, TargetKind, Want)] = &[
        ("/etc/passwd", file, "out", Absent, Ok((".", Some("out"), false))),
        ("/etc/passwd", file, "/tmp/out", Other, Ok(("/tmp", Some("out"), false))),
        ("/etc/passwd", file, "/tmp", Directory, Ok(("/tmp", Some("passwd"), false))),
        ("/etc/passwd", file, "/tmp/", Directory, Ok(("/tmp/", Some("passwd"), false))),
        ("/etc/passwd", file, "new/", Absent, Err("there is no such directory")),
        ("/etc/passwd", file, "file/", Other, Err("it is no directory")),
        ("/etc", dir, "/tmp", Directory, Ok(("/tmp", Some("etc"), false))),
        ("/etc/", dir, "/tmp", Directory, Ok(("/tmp", Some("etc"), false))),
        ("/etc/.", dir, "/tmp", Directory, Ok(("/tmp", None, false))),
        ("/etc", dir, "new", Absent, Ok((".", Some("new"), false))),
        ("/etc", dir, "new/", Absent, Ok((".", Some("new"), false))),
        ("/etc/.", dir, "new", Absent, Ok(("new", None, true))),
        ("/etc", dir, "file", Other, Err("it is no directory, and a directory is to be copied there")),
        ("/", dir, "/tmp", Directory, Ok(("/tmp", None, false))),
        ("/", dir, "new", Absent, Ok(("new", None, true))),
        ("/etc/passwd", file, "/", Absent, Err("there is no such directory")),
    ];
    for (source, kind, target, there, want) in cases {
        let name = source.trim_end_matches("/.").trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let got = place(source.as_bytes(), *kind, name.as_bytes(), Path::new(target), *there);
        let want = want.map(|(into, name, make)| CopyTarget {
            into: into.into(),
            name: name.map(|name| name.as_bytes().to_vec()),
            make,
        });
        assert_eq!(got, want, "{source} {target} {there:?}");
    }
}
