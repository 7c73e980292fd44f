//! Tables for the records of PAX headers.

use super::*;

const LIMITS: PaxLimits = PaxLimits { record_bytes: 100, xattrs: 2, sparse_pieces: 2 };

fn rec(key: &str, value: &[u8]) -> Vec<u8> {
    crate::tar::build::record(key, value)
}

fn ok(records: &[(&str, &[u8])]) -> Pax {
    let bytes: Vec<u8> = records.iter().flat_map(|(k, v)| rec(k, v)).collect();
    parse(&bytes, LIMITS).expect("well formed")
}

fn err(records: &[(&str, &[u8])]) -> PaxError {
    let bytes: Vec<u8> = records.iter().flat_map(|(k, v)| rec(k, v)).collect();
    parse(&bytes, LIMITS).expect_err("must be refused")
}

#[test]
fn values() {
    let pax = ok(&[
        ("path", b"a\xff=b"),
        ("linkpath", b"l"),
        ("size", b"18446744073709551615"),
        ("uid", b"2097152"),
        ("gid", b"-2"),
        ("comment", b"what ever"),
        ("vendor.unknown", b""),
    ]);
    assert_eq!(pax.path.as_deref(), Some(&b"a\xff=b"[..]));
    assert_eq!(pax.link.as_deref(), Some(&b"l"[..]));
    assert_eq!((pax.size, pax.uid, pax.gid), (Some(u64::MAX), Some(2_097_152), Some(-2)));
}

#[test]
fn numbers_may_begin_with_zeros() {
    let zeros = b"00000000000000000000000000000000000000012";
    let pax = ok(&[("size", zeros), ("uid", zeros), ("gid", zeros), ("mtime", zeros), ("GNU.sparse.realsize", zeros)]);
    let mtime = pax.mtime.expect("a time");
    assert_eq!(
        (pax.size, pax.uid, pax.gid, mtime.seconds, pax.sparse.real_size),
        (Some(12), Some(12), Some(12), 12, Some(12))
    );
    let record = b"0000000000000000000000000000000000000048 path=a\n";
    assert_eq!(parse(&record[..], LIMITS).expect("well formed").path.as_deref(), Some(&b"a"[..]));
}

#[test]
fn later_records_win_and_empty_ones_take_back() {
    let pax =
        ok(&[("path", b"a"), ("path", b"b"), ("size", b"5"), ("size", b""), ("linkpath", b"x"), ("linkpath", b"")]);
    assert_eq!((pax.path.as_deref(), pax.size, pax.link), (Some(&b"b"[..]), None, None));
}

#[test]
fn times() {
    let cases: &[(&str, Option<(i64, u32)>)] = &[
        ("0", Some((0, 0))),
        ("1700000000", Some((1_700_000_000, 0))),
        ("1.5", Some((1, 500_000_000))),
        ("1.", Some((1, 0))),
        ("1.000000001999", Some((1, 1))),
        ("-1.25", Some((-2, 750_000_000))),
        ("-3", Some((-3, 0))),
        ("9223372036854775807.999999999", Some((i64::MAX, 999_999_999))),
        ("9223372036854775808", None),
        ("-", None),
        (".5", None),
        ("1.x", None),
        ("1e9", None),
        ("+1", None),
        (" 1", None),
    ];
    for (text, want) in cases {
        assert_eq!(time(text.as_bytes()), want.map(|(seconds, nanos)| Time { seconds, nanos }), "{text}");
    }
}

#[test]
fn extended_attributes() {
    let pax =
        ok(&[("LIBARCHIVE.xattr.user.a%3Db%20c", b"aGVsbG8"), ("SCHILY.xattr.security.capability", b"\x01\0\0\x02")]);
    assert_eq!(pax.xattrs[0], (b"user.a=b c".to_vec(), b"hello".to_vec()));
    assert_eq!(pax.xattrs[1], (b"security.capability".to_vec(), b"\x01\0\0\x02".to_vec()));
    let pax = ok(&[("SCHILY.xattr.user.a", b"1"), ("LIBARCHIVE.xattr.user.a", b"Mg==")]);
    assert_eq!(pax.xattrs, [(b"user.a".to_vec(), b"1".to_vec())], "the plain form wins");
    assert!(matches!(err(&[("LIBARCHIVE.xattr.user.%4", b"aGVsbG8")]), PaxError::Malformed(_)));
    assert!(matches!(err(&[("LIBARCHIVE.xattr.user.a", b"!")]), PaxError::Malformed(_)));
    assert!(matches!(err(&[("SCHILY.xattr.", b"1")]), PaxError::Malformed(_)));
    let three = err(&[("SCHILY.xattr.a", b"1"), ("SCHILY.xattr.b", b"1"), ("SCHILY.xattr.c", b"1")]);
    assert_eq!(three, PaxError::Limit { limit_name: "extended attributes", limit: 2, seen: 3 });
}

#[test]
fn malformed_records() {
    let cases: &[&[u8]] = &[
        b"x",
        b"11 path=a\n",
        b"10 path=a\n8 ",
        b"11 path=ab\n\0",
        b"10 path=ab\n",
        b"+10 path=a\n",
        b"-9 path=a\n",
        b"000000000000000000000000010 path=a\n",
        b"5 =a\n",
        b"4 a\n",
        b"2 ",
        b"3 \n",
        b"11 path=a\0\n",
    ];
    for case in cases {
        let got = parse(case, LIMITS);
        assert!(matches!(got, Err(PaxError::Malformed(_))), "{:?}: {got:?}", String::from_utf8_lossy(case));
    }
    let values: &[(&str, &[u8])] = &[
        ("pa\0h", b"a"),
        ("path", b"a\0"),
        ("linkpath", b"\0"),
        ("size", b"x"),
        ("size", b"-1"),
        ("size", b"18446744073709551616"),
        ("uid", b"1.5"),
        ("mtime", b"yesterday"),
    ];
    for case in values {
        assert!(matches!(err(&[*case]), PaxError::Malformed(_)), "{case:?}");
    }
}

#[test]
fn a_long_record_names_the_limit() {
    assert_eq!(
        err(&[("path", &[b'a'; 200])]),
        PaxError::Limit { limit_name: "bytes in a PAX record", limit: 100, seen: 210 }
    );
}

#[test]
fn sparse_versions() {
    let piece = |offset, len| Piece { offset, len };
    let mut v00 = ok(&[
        ("GNU.sparse.size", b"9"),
        ("GNU.sparse.offset", b"0"),
        ("GNU.sparse.numbytes", b"1"),
        ("GNU.sparse.offset", b"8"),
        ("GNU.sparse.numbytes", b"1"),
    ]);
    assert_eq!(v00.sparse.map(), SparseMap::Here(vec![piece(0, 1), piece(8, 1)]));
    assert_eq!(v00.sparse.real_size, Some(9));
    let mut v01 = ok(&[("GNU.sparse.map", b"0,1,8,1"), ("GNU.sparse.name", b"n")]);
    assert_eq!(v01.sparse.map(), SparseMap::Here(vec![piece(0, 1), piece(8, 1)]));
    let mut v10 = ok(&[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0")]);
    assert_eq!(v10.sparse.map(), SparseMap::InData);
    let mut unknown = ok(&[("GNU.sparse.major", b"7"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.map", b"0,1")]);
    assert_eq!(unknown.sparse.map(), SparseMap::None);
    assert_eq!(ok(&[]).sparse.map(), SparseMap::None);
    for bad in [
        &[("GNU.sparse.numbytes", &b"1"[..])][..],
        &[("GNU.sparse.offset", b"1")],
        &[("GNU.sparse.offset", b"1"), ("GNU.sparse.offset", b"1")],
        &[("GNU.sparse.size", b"-1")],
        &[("GNU.sparse.map", b"1,")],
    ] {
        assert!(matches!(err(bad), PaxError::Malformed(_)), "{bad:?}");
    }
    assert!(matches!(err(&[("GNU.sparse.map", b"0,1,2,1,4,1")]), PaxError::Limit { limit: 2, .. }));
}
