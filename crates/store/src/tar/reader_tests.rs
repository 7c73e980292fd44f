//! The reader's results for archives: dialects, extended headers, ends, limits, and everything that is wrong.

use std::io::{self, BufRead, BufReader, Read};

use proptest::prelude::*;

use super::build::{Item, MTIME, Tar, header, record, seal};
use super::{Entry, Kind, Limits, Reader, TarError, Time};

/// Everything that a reader hands out.
#[derive(Debug, Default, PartialEq)]
struct Read_ {
    entries: Vec<(Entry, Vec<u8>)>,
    raw: usize,
}

/// Reads it all; entries with their data (of sparse files: what the archive has).
fn read_with(source: &mut dyn BufRead, limits: &Limits) -> Result<Read_, TarError> {
    let mut reader = Reader::new(source, limits);
    let mut got = Read_::default();
    let mut entry = Entry::default();
    loop {
        let raw = &mut got.raw;
        let mut count = |bytes: &[u8]| {
            *raw += bytes.len();
            Ok(())
        };
        if !reader.next(&mut entry, &mut count)? {
            return Ok(got);
        }
        let mut data = Vec::new();
        loop {
            let piece = reader.data(1000)?;
            if piece.is_empty() {
                break;
            }
            data.extend_from_slice(piece);
        }
        got.entries.push((entry.clone(), data));
    }
}

fn read(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let got = read_with(&mut &bytes[..], &Limits::default())?;
    let data: usize = got.entries.iter().map(|(_, data)| data.len()).sum();
    assert_eq!(got.raw + data, bytes.len(), "every byte is raw or data");
    Ok(got.entries)
}

fn one(tar: Tar) -> Entry {
    let mut entries = read(&tar.end()).expect("reads");
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0).0
}

fn fails(tar: Tar, with: &str) {
    let error = read(&tar.end()).expect_err(with).to_string();
    assert!(error.contains(with), "{error:?} does not say {with:?}");
}

/// A header with other bytes at some places, sealed again.
fn patched(item: &Item, patches: &[(usize, &[u8])]) -> Vec<u8> {
    let mut block = header(item);
    for (at, bytes) in patches {
        block[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    seal(&mut block);
    block.to_vec()
}

#[test]
fn dialects() {
    let item = Item::new(b'0', "name").mode(0o4755).owner(1, 2);
    let with = |patches: &[(usize, &[u8])]| one(Tar::new().raw(&patched(&item, patches)));
    let base = Entry {
        path: b"name".to_vec(),
        mode: 0o4755,
        uid: 1,
        gid: 2,
        mtime: Time { seconds: i64::try_from(MTIME).unwrap(), nanos: 0 },
        ..Entry::default()
    };
    let none = &[0_u8; 8][..];
    assert_eq!(with(&[(257, none), (345, b"not a prefix")]), base, "v7");
    let prefixed = Entry { path: b"some/dir/name".to_vec(), ..base.clone() };
    assert_eq!(with(&[(257, b"ustar\x0000"), (345, b"some/dir")]), prefixed, "ustar");
    let star = with(&[(257, b"ustar\x0000"), (345, b"some/dir"), (476, b"00000000017\0"), (508, b"tar\0")]);
    assert_eq!(star, Entry { atime: Some(Time { seconds: 15, nanos: 0 }), ..prefixed }, "star");
    let gnu = with(&[(345, b"00000000020\0")]);
    assert_eq!(gnu, Entry { atime: Some(Time { seconds: 16, nanos: 0 }), ..base.clone() }, "gnu: no prefix, but times");
    // Programs before 1988 sum signed bytes.
    let mut block = header(&Item::new(b'0', b"na\xefve"));
    let signed: i64 = block
        .iter()
        .enumerate()
        .map(|(at, b)| if (148..156).contains(&at) { 32 } else { i64::from(b.cast_signed()) })
        .sum();
    block[148..156].copy_from_slice(format!("{signed:06o}\0 ").as_bytes());
    assert_eq!(one(Tar::new().raw(&block)).path, b"na\xefve");
}

#[test]
fn kinds_and_devices() {
    let cases: &[(u8, &str, Kind)] = &[
        (0, "f", Kind::File),
        (0, "d/", Kind::Directory),
        (b'0', "f/", Kind::File),
        (b'7', "f", Kind::File),
        (b'1', "h", Kind::HardLink),
        (b'2', "s", Kind::Symlink),
        (b'3', "c", Kind::Char),
        (b'4', "b", Kind::Block),
        (b'5', "d", Kind::Directory),
        (b'6', "p", Kind::Fifo),
    ];
    for (flag, path, kind) in cases {
        let entry = one(Tar::new().item(&Item::new(*flag, path).device(7, 8)));
        assert_eq!(entry.kind, *kind, "{}", char::from(*flag));
        let device = matches!(kind, Kind::Char | Kind::Block);
        assert_eq!(entry.device, if device { (7, 8) } else { (0, 0) });
    }
    for flag in [b'M', b'N', b'A', b'9', 0xff] {
        fails(Tar::new().item(&Item::new(flag, "x")), "unsupported type");
    }
    fails(Tar::new().item(&Item::new(b'3', "x").device(4096, 0)), "the device of \"x\"");
    fails(Tar::new().item(&Item::new(b'4', "x").device(0, 1 << 20)), "the device of \"x\"");
}

#[test]
fn what_gnu_tar_adds_for_itself_is_passed_by() {
    let names = |tar: Tar| {
        let entries = read(&tar.end()).expect("reads");
        entries.into_iter().map(|(entry, data)| (entry.path, entry.kind, data)).collect::<Vec<_>>()
    };
    let file = || (b"f".to_vec(), Kind::File, b"1".to_vec());
    let label = Item::new(b'V', "label");
    assert_eq!(names(Tar::new().item(&label).file("f", "1")), [file()], "first");
    assert_eq!(names(Tar::new().file("f", "1").item(&label)), [file()], "last");
    assert_eq!(
        names(Tar::new().pax(&[("path", b"x")]).item(&label).file("f", "1")),
        [file()],
        "with a header of its own"
    );
    fails(Tar::new().item(&label.data("1")), "unsupported type 'V'");
    let listed = Item::new(b'D', "d/").data(b"Yf\0Nd\0\0");
    assert_eq!(names(Tar::new().item(&listed).file("f", "1")), [(b"d/".to_vec(), Kind::Directory, Vec::new()), file()]);
    let few = Limits { pax_header_bytes: 6, ..Limits::default() };
    let error = read_with(&mut &Tar::new().item(&listed).end()[..], &few).expect_err("too many").to_string();
    assert!(error.contains("bytes of names behind a directory"), "{error}");
    let old = patched(&Item::new(b'3', "c"), &[(257, &[0; 8])]);
    assert_eq!(one(Tar::new().raw(&old)).device, (0, 0), "a device of v7, which has no numbers");
}

#[test]
fn a_size_without_data_is_no_data() {
    // Go and Python ignore the size of everything that is no regular file; a reader that does not finds other entries.
    for flag in [b'1', b'2', b'3', b'4', b'5', b'6'] {
        let item = Item { size: Some(512), ..Item::new(flag, "x") };
        let entries = read(&Tar::new().item(&item).file("hidden", "1").end()).unwrap();
        assert_eq!(entries[1].0.path, b"hidden", "{}", char::from(flag));
        let pax = Tar::new().pax(&[("size", b"512")]).item(&Item::new(flag, "x")).file("hidden", "1");
        assert_eq!(read(&pax.end()).unwrap().len(), 2, "{}", char::from(flag));
    }
}

#[test]
fn long_names() {
    let long = [b"d/".repeat(60), b"f".to_vec()].concat();
    let other = b"t".repeat(300);
    let entry = one(Tar::new().item(&Item::new(b'2', &long).link(&other)));
    assert_eq!((entry.path, entry.link), (long.clone(), other.clone()), "GNU");
    let entry = one(Tar::new().pax(&[("path", &long), ("linkpath", &other)]).symlink("short", "short"));
    assert_eq!((entry.path, entry.link), (long.clone(), other), "PAX");
    let both = Tar::new().pax(&[("path", b"pax")]).meta(b'L', b"gnu\0junk").file("header", "");
    assert_eq!(one(both).path, b"gnu", "GNU over PAX, as Go has it, and up to the NUL");
    assert_eq!(one(Tar::new().meta(b'L', b"\0").file("header", "")).path, b"header", "an empty one says nothing");
}

#[test]
fn pax_wins_over_the_header() {
    let entry = one(Tar::new()
        .pax(&[
            ("uid", b"70000000"),
            ("gid", b"3"),
            ("mtime", b"12.5"),
            ("atime", b"-1.5"),
            ("SCHILY.xattr.user.a", b"x\0y"),
        ])
        .file("a", ""));
    assert_eq!((entry.uid, entry.gid), (70_000_000, 3));
    assert_eq!(entry.mtime, Time { seconds: 12, nanos: 500_000_000 });
    assert_eq!(entry.atime, Some(Time { seconds: -2, nanos: 500_000_000 }));
    assert_eq!(entry.xattrs, [(b"user.a".to_vec(), b"x\0y".to_vec())]);
}

#[test]
fn the_pax_size_decides_what_is_data() {
    // "TARmageddon": a reader that believes the header's zero takes the content for further entries.
    let smuggled = Tar::new().file("smuggled", "evil").end();
    let size = smuggled.len().to_string();
    let item = Item { size: Some(0), ..Item::new(b'0', "archive.tar").data(&smuggled) };
    let entries = read(&Tar::new().pax(&[("size", size.as_bytes())]).item(&item).file("after", "1").end()).unwrap();
    let names: Vec<_> = entries.iter().map(|(entry, _)| entry.path.as_slice()).collect();
    assert_eq!(names, [&b"archive.tar"[..], b"after"]);
    assert_eq!(entries[0].1, smuggled);
    // The other way round: the header claims more than there is.
    let item = Item { size: Some(4096), ..Item::new(b'0', "small").data("12") };
    let entries = read(&Tar::new().pax(&[("size", b"2")]).item(&item).file("after", "1").end()).unwrap();
    assert_eq!((entries.len(), entries[0].1.as_slice()), (2, &b"12"[..]));
}

#[test]
fn extended_headers_belong_to_the_next_entry_only() {
    let tar = Tar::new().pax(&[("path", b"one"), ("mtime", b"5")]).file("x", "").file("two", "");
    let entries = read(&tar.end()).unwrap();
    assert_eq!((entries[0].0.path.as_slice(), entries[1].0.path.as_slice()), (&b"one"[..], &b"two"[..]));
    assert_ne!(entries[1].0.mtime.seconds, 5);
    // As with Go, of two headers in a row only the later one counts.
    let entry = one(Tar::new().pax(&[("path", b"one"), ("mtime", b"5")]).pax(&[("uid", b"9")]).file("two", ""));
    assert_eq!((entry.path.as_slice(), entry.uid, entry.mtime.seconds == 5), (&b"two"[..], 9, false));
    let entry = one(Tar::new().global(&[("path", b"global"), ("size", b"99"), ("uid", b"7")]).file("a", "1"));
    assert_eq!((entry.path.as_slice(), entry.size, entry.uid), (&b"a"[..], 1, 0), "global ones are ignored");
    fails(Tar::new().pax(&[("size", b"1")]).global(&[("a", b"b")]).file("a", "1"), "a global PAX header parts");
    fails(Tar::new().meta(b'L', b"name\0").global(&[("a", b"b")]).file("a", "1"), "a global PAX header parts");
    fails(Tar::new().file("a", "1").pax(&[("path", b"b")]), "no entry behind it");
    fails(Tar::new().meta(b'x', b"no record").file("a", ""), "PAX record");
    fails(Tar::new().meta(b'g', b"no record").file("a", ""), "PAX record");
}

#[test]
fn numbers_that_are_none() {
    let item = Item::new(b'0', "name");
    let cases: &[(usize, &[u8], &str)] = &[
        (100, b"00rwx00\0", "the mode of \"name\""),
        (108, b"\xff\xff\xff\xff\xff\xff\xff\xff", "the owner of \"name\""),
        (108, b"\x80\0\0\0\xff\xff\xff\xff", "the owner of \"name\""),
        (116, b"\x80\0\0\x01\0\0\0\0", "the group of \"name\""),
        (124, b"zz", "the size of \"name\""),
        (124, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "the size of \"name\""),
        (136, b"later", "the modification time of \"name\""),
    ];
    for (at, bytes, want) in cases {
        fails(Tar::new().raw(&patched(&item, &[(*at, bytes)])), want);
    }
    fails(Tar::new().pax(&[("uid", b"-1")]).file("a", ""), "the owner of \"a\"");
    fails(Tar::new().pax(&[("gid", b"4294967295")]).file("a", ""), "the group of \"a\"");
}

#[test]
fn ends() {
    let a = Tar::new().file("a", "1").bytes;
    let count = |bytes: &[u8]| read(bytes).map(|entries| entries.len()).map_err(|e| e.to_string());
    let zero = [0_u8; 512];
    assert_eq!(count(b""), Ok(0), "an empty layer");
    assert_eq!(count(&a), Ok(1), "no trailer");
    assert_eq!(count(&[&a[..], &zero].concat()), Ok(1), "half a trailer");
    assert_eq!(count(&[&a[..], &zero, &zero[..100]].concat()), Ok(1), "a part of a trailer");
    assert!(count(&[&a[..], &zero, b"junk"].concat()).unwrap_err().contains("single zero block"));
    assert_eq!(count(&[&a[..], &zero, &zero, b"trailing bytes", &a].concat()), Ok(1), "bytes behind the end");
    assert!(count(&[&a[..], &zero, &a].concat()).unwrap_err().contains("single zero block"));
    assert!(count(&[&a[..], b"garbage"].concat()).unwrap_err().contains("ends inside a header"));
    assert!(count(&[&a[..], &[b'g'; 512]].concat()).unwrap_err().contains("wrong checksum"));
    for cut in (1..a.len()).filter(|cut| *cut <= 512) {
        let got = read(&a[..cut]).expect_err("cut");
        let TarError::Truncated { inside, offset } = got else { panic!("{cut}: {got}") };
        assert_eq!(inside, if cut < 512 { "a header" } else { "\"a\"" });
        assert_eq!(offset, cut as u64);
    }
    for cut in 513..a.len() {
        assert_eq!(count(&a[..cut]), Ok(1), "padding is left out, as umoci does, or a part of it");
    }
}

#[test]
fn sparse_files() {
    let old = |pieces: &[(u64, u64)], more: bool, real: u64, data: &[u8]| {
        let mut fields = Vec::new();
        for (offset, len) in pieces {
            fields.extend_from_slice(format!("{offset:011o}\0{len:011o}\0").as_bytes());
        }
        let real = format!("{real:011o}\0");
        let item = Item { size: Some(data.len() as u64), ..Item::new(b'S', "s") };
        Tar::new().raw(&patched(&item, &[(386, &fields), (482, &[u8::from(more)]), (483, real.as_bytes())]))
    };
    let pieces = |entry: &Entry| entry.pieces.as_ref().unwrap().iter().map(|p| (p.offset, p.len)).collect::<Vec<_>>();

    let entry = one(old(&[(0, 3), (1000, 2), (5000, 0)], false, 5000, b"abcde").blocks(b"abcde"));
    assert_eq!((entry.size, pieces(&entry)), (5000, vec![(0, 3), (1000, 2), (5000, 0)]), "old GNU");

    let mut extension = [0_u8; 512];
    extension[..24].copy_from_slice(format!("{:011o}\0{:011o}\0", 900, 1).as_bytes());
    let four = [(0, 1), (100, 1), (200, 1), (300, 1)];
    let entry = one(old(&four, true, 1000, b"abcde").raw(&extension).blocks(b"abcde"));
    assert_eq!(pieces(&entry).last(), Some(&(900, 1)), "old GNU with an extension");

    let records: &[(&str, &[u8])] =
        &[("GNU.sparse.size", b"50"), ("GNU.sparse.map", b"0,2,40,3"), ("GNU.sparse.name", b"real")];
    let entry = one(Tar::new().pax(records).file("GNUSparseFile.1/s", "abcde"));
    assert_eq!((entry.path.as_slice(), entry.size, pieces(&entry)), (&b"real"[..], 50, vec![(0, 2), (40, 3)]), "0.1");

    let records: &[(&str, &[u8])] = &[
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"real"),
        ("GNU.sparse.realsize", b"60"),
    ];
    let mut body = b"2\n0\n2\n40\n3\n".to_vec();
    body.resize(512, 0);
    body.extend_from_slice(b"abcde");
    let entries = read(&Tar::new().pax(records).file("x", &body).end()).unwrap();
    assert_eq!((entries[0].0.size, pieces(&entries[0].0)), (60, vec![(0, 2), (40, 3)]), "1.0");
    assert_eq!(entries[0].1, b"abcde");

    fails(old(&[(0, 3)], false, 5000, b"abcde").blocks(b"abcde"), "differ in length");
    fails(old(&[(0, 3), (1, 2)], false, 5000, b"abcde").blocks(b"abcde"), "overlap");
    fails(old(&[(0, 5)], false, 4, b"abcde").blocks(b"abcde"), "beyond its end");
    fails(Tar::new().raw(&patched(&Item::new(b'S', "s"), &[(257, b"ustar\x0000")])), "no GNU archive");
    fails(Tar::new().pax(records).file("x", "9\n0\n"), "does not end");
    fails(Tar::new().pax(records).file("x", "x".repeat(512)), "no number");
    fails(Tar::new().pax(&records[..2]).file("x", &body), "has no size");
}

#[test]
fn a_sparse_map_may_cross_blocks() {
    let pieces: Vec<(u64, u64)> = (0..200).map(|at| (at * 1000, 1)).collect();
    let mut body = format!("{}\n", pieces.len()).into_bytes();
    for (offset, len) in &pieces {
        body.extend_from_slice(format!("{offset}\n{len}\n").as_bytes());
    }
    body.resize(body.len().next_multiple_of(512), 0);
    body.extend_from_slice(&[b'x'; 200]);
    let records: &[(&str, &[u8])] =
        &[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"1000000")];
    let tar = Tar::new().pax(records).file("x", &body).end();
    let entries = read(&tar).unwrap();
    assert_eq!(entries[0].0.pieces.as_ref().unwrap().len(), 200);
    let few = Limits { sparse_pieces: 199, ..Limits::default() };
    let error = read_with(&mut &tar[..], &few).unwrap_err().to_string();
    assert!(error.contains("200 pieces of a sparse file, over the limit of 199"), "{error}");
}

#[test]
fn limits_name_themselves_and_what_was_seen() {
    let base =
        Limits { layer_bytes: 10_000, entries: 3, long_name_bytes: 200, pax_record_bytes: 100, ..Limits::default() };
    let limits = Limits { pax_header_bytes: 300, xattrs: 2, ..base };
    let says = |tar: Tar, want: &str| {
        let error = read_with(&mut &tar.end()[..], &limits).expect_err(want).to_string();
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    };
    says(Tar::new().file("a", [0; 20_000]), "the layer has 22016 uncompressed bytes, over the limit of 10000");
    says(Tar::new().dir("a").dir("b").dir("c").dir("d"), "the layer has 4 entries, over the limit of 3");
    says(Tar::new().file("n".repeat(201), ""), "202 bytes in a GNU long name, over the limit of 200");
    let value = [b'v'; 200];
    says(Tar::new().pax(&[("comment", &value)]), "213 bytes in a PAX record, over the limit of 100");
    let many = [("comment", &value[..80]); 5];
    says(Tar::new().pax(&many), "bytes in a PAX header, over the limit of 300");
    let xattr = |name| (name, &b"1"[..]);
    says(
        Tar::new().pax(&[xattr("SCHILY.xattr.a"), xattr("SCHILY.xattr.b"), xattr("SCHILY.xattr.c")]),
        "3 extended attributes, over the limit of 2",
    );
}

#[test]
fn huge_sizes_allocate_nothing() {
    for flag in [b'0', b'L', b'K', b'x', b'g'] {
        let item = Item { size: Some(1 << 62), ..Item::new(flag, "x") };
        let error = read(&Tar::new().item(&item).bytes).expect_err("cut or refused").to_string();
        assert!(error.contains("ends inside \"x\"") || error.contains("over the limit"), "{error}");
    }
}

/// Returns a few bytes at a time, and an error at the end if the flag is set.
struct Drops<'a>(&'a [u8], usize, bool);

impl Read for Drops<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(self.0.len()).min(buffer.len());
        if len == 0 && self.2 {
            return Err(io::Error::other("the network is gone"));
        }
        buffer[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

#[test]
fn the_source_may_hand_out_drops_and_fail() {
    let tar = Tar::new().file("a", vec![7; 300_000]).pax(&[("path", b"b")]).file("x", "1").end();
    let whole = read_with(&mut &tar[..], &Limits::default()).unwrap();
    for len in [1, 7, 511, 513, 65_537] {
        assert_eq!(
            read_with(&mut BufReader::with_capacity(len, Drops(&tar, len, false)), &Limits::default()).unwrap(),
            whole
        );
    }
    let error = read_with(&mut BufReader::new(Drops(&tar[..5000], 100, true)), &Limits::default()).unwrap_err();
    assert!(matches!(error, TarError::Read(_)));
}

/// Blocks that look like headers, so that random archives are not refused at once.
fn any_block() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop::sample::select(b"0123456\0xgLKS7VX".to_vec());
    let magic = prop::sample::select(vec![*b"ustar  \0", *b"ustar\x0000", [0; 8]]);
    let name = prop::collection::vec(any::<u8>(), 0..20);
    let fields =
        (flags, magic, name, 0..3000_u64, any::<bool>(), prop::collection::vec((0..512_usize, any::<u8>()), 0..3));
    let head = fields.prop_map(|(flag, magic, name, size, right, noise)| {
        let mut block = header(&Item { size: Some(size), ..Item::new(flag, name) });
        block[257..265].copy_from_slice(&magic);
        for (at, byte) in noise {
            block[at] = byte;
        }
        if right {
            seal(&mut block);
        }
        block.to_vec()
    });
    let records =
        prop::collection::vec((prop::sample::select(KEYS.to_vec()), prop::collection::vec(any::<u8>(), 0..30)), 0..4);
    let meta = records.prop_map(|records| {
        let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        Tar::new().meta(b'x', &records).bytes
    });
    let body = prop::collection::vec(any::<u8>(), 512..=512);
    let digits = "[0-9,\n]{512}".prop_map(String::into_bytes);
    prop_oneof![4 => head, 2 => meta, 1 => body, 1 => digits, 1 => Just(vec![0; 512])]
}

const KEYS: [&str; 9] = [
    "path",
    "size",
    "mtime",
    "GNU.sparse.map",
    "GNU.sparse.size",
    "GNU.sparse.major",
    "GNU.sparse.offset",
    "SCHILY.xattr.user.a",
    "LIBARCHIVE.xattr.a",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For any input, the reader ends, without panic, and never returns more bytes than it has read.
    #[test]
    fn garbage_ends_in_an_error_or_in_peace(blocks in prop::collection::vec(any_block(), 0..12), cut in 0..600_usize) {
        let mut bytes = blocks.concat();
        bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(100)));
        if let Ok(got) = read_with(&mut &bytes[..], &Limits::default()) {
            let data: usize = got.entries.iter().map(|(_, data)| data.len()).sum();
            prop_assert_eq!(got.raw + data, bytes.len());
        }
    }

    /// A single changed byte in a real archive leads to no panic.
    #[test]
    fn mutated_archives(at in 0..4096_usize, byte: u8) {
        let mut bytes = Tar::new().pax(&[("path", b"p"), ("size", b"3")]).file("a", "123").symlink("s", "t").end();
        let at = at % bytes.len();
        bytes[at] = byte;
        drop(read_with(&mut &bytes[..], &Limits::default()));
    }

    #[test]
    fn numbers_survive(uid in 0..u32::MAX, gid in 0..u32::MAX, mtime in 0..1_u64 << 40, mode in 0..0o10000_u32) {
        let item = Item { mtime, ..Item::new(b'0', "n").owner(uid.into(), gid.into()).mode(mode) };
        let entry = one(Tar::new().item(&item));
        prop_assert_eq!((entry.uid, entry.gid, entry.mode), (uid, gid, mode));
        prop_assert_eq!(entry.mtime.seconds, i64::try_from(mtime).unwrap());
    }
}
