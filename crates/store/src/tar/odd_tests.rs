//! Odd archives that GNU tar and bsdtar accept and that this reader refuses, each with the error: the table in
//! docs/differences.md has the reasons.

use super::build::{Item, Tar, header, record, seal};
use super::{Entry, Limits, Reader};

/// The error of an archive; `None` if it is read.
fn error_of(tar: Tar) -> Option<String> {
    let bytes = tar.end();
    let (mut source, limits) = (&bytes[..], Limits::default());
    let mut reader = Reader::new(&mut source, &limits);
    let mut entry = Entry::default();
    loop {
        match reader.next(&mut entry, &mut |_| Ok(())) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// An old sparse file of five bytes with this map.
fn sparse(pieces: &[(u64, u64)], real: u64) -> Tar {
    let mut block = header(&Item { size: Some(5), ..Item::new(b'S', "s") });
    let fields: String = pieces.iter().map(|(offset, len)| format!("{offset:011o}\0{len:011o}\0")).collect();
    block[386..386 + fields.len()].copy_from_slice(fields.as_bytes());
    block[483..495].copy_from_slice(format!("{real:011o}\0").as_bytes());
    seal(&mut block);
    Tar::new().raw(&block).blocks(b"abcde")
}

#[test]
fn types_without_a_meaning_are_refused() {
    let known = b"01234567gxLKSXVD\0";
    for flag in (0..=u8::MAX).filter(|flag| !known.contains(flag)) {
        for data in ["", "abc"] {
            let error = error_of(Tar::new().item(&Item::new(flag, "x").data(data)));
            assert!(error.is_some_and(|error| error.contains("unsupported type")), "{flag}");
        }
    }
}

#[test]
fn what_has_two_readings_is_refused() {
    let pax = |key: &str, value: &[u8]| Tar::new().pax(&[(key, value)]).file("f", "abc");
    let mut ustar = header(&Item::new(b'S', "s"));
    ustar[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut ustar);
    let mut cases = vec![
        ("a label with data", Tar::new().item(&Item::new(b'V', "label").data("1")), "unsupported type 'V'"),
        ("a map in ustar", Tar::new().raw(&ustar), "no GNU archive"),
        ("less in the map than data", sparse(&[(0, 3)], 1000), "differ in length"),
        ("more in the map than data", sparse(&[(0, 9)], 1000), "differ in length"),
        ("no name of an attribute", pax("SCHILY.xattr.", b"1"), "no valid name"),
        ("no base64", pax("LIBARCHIVE.xattr.user.a", b"!!!"), "no valid value"),
        ("no URL encoding", pax("LIBARCHIVE.xattr.user.%zz", b"eA"), "no valid value"),
        (
            "a global header between",
            Tar::new().pax(&[("path", b"one")]).global(&[("comment", b"hi")]).file("f", ""),
            "a global PAX header parts",
        ),
        (
            "a global header behind a long name",
            Tar::new().meta(b'L', b"one\0").global(&[("comment", b"hi")]).file("f", ""),
            "a global PAX header parts",
        ),
        ("a lone zero block", Tar::new().file("f", "").raw(&[0; 512]).file("g", ""), "a single zero block"),
    ];
    for key in ["size", "uid", "gid", "mtime", "atime", "GNU.sparse.realsize"] {
        let no_number = if key.starts_with("GNU") { "is no number" } else { "no valid value" };
        cases.push(("a NUL behind a number", pax(key, b"3\0"), no_number));
    }
    for value in [&b"3x"[..], b"3e0", b"3 ", b"0x3", b"3,0", b"3\n"] {
        cases.push(("something behind a time", pax("mtime", value), "no valid value"));
        cases.push(("something behind a time", pax("atime", value), "no valid value"));
    }
    for key in ["path", "linkpath", "uname", "gname", "GNU.sparse.name"] {
        cases.push(("a NUL in a name", Tar::new().meta(b'x', &record(key, b"a\0b")).file("f", ""), "has a NUL"));
    }
    for (name, tar, want) in cases {
        let error = error_of(tar).unwrap_or_else(|| panic!("{name} is read"));
        assert!(error.contains(want), "{name}: {error}");
    }
}
