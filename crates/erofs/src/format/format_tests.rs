//! The format's values into bytes and back.

use proptest::prelude::*;

use super::*;
use crate::Kind;
use crate::format::inode::{Layout, RawInode};

#[test]
fn checksum_is_castagnoli() {
    // The check value of the catalogue of CRCs, before its last inversion.
    assert_eq!(!crc32c::update(u32::MAX, b"123456789"), 0xe306_9283);
    assert_eq!(crc32c::update(crc32c::update(u32::MAX, b"12345"), b"6789"), crc32c::update(u32::MAX, b"123456789"));
}

#[test]
fn superblock_matches_the_content() {
    let value = superblock::Superblock {
        magic: superblock::MAGIC,
        checksum: 1,
        compat: 3,
        block_bits: BLOCK_BITS,
        root_nid: 36,
        inodes: 7,
        time: (-5, 999),
        blocks: 8,
        meta_block: 9,
        xattr_block: 10,
        uuid: *b"0123456789abcdef",
        volume: *b"a layer\0\0\0\0\0\0\0\0\0",
        incompat: superblock::INCOMPAT_CHUNKED,
        devices: 11,
        table: 32,
        directory_bits: 1,
    };
    assert_eq!(superblock::Superblock::decode(&value.encode()), value);
    let mut block = [0; BLOCK];
    block[superblock::OFFSET..superblock::OFFSET + superblock::LENGTH].copy_from_slice(&value.encode());
    superblock::seal(&mut block);
    assert_eq!(u32_at(&block, superblock::OFFSET + 4), superblock::checksum(&block));
    block[BLOCK - 1] ^= 1;
    assert_ne!(u32_at(&block, superblock::OFFSET + 4), superblock::checksum(&block));
}

#[test]
fn names_of_attributes_are_split_where_the_kernel_does() {
    for (name, answer) in [
        (&b"user.a"[..], Some((1, &b"a"[..]))),
        (b"trusted.overlay.opaque", Some((4, b"overlay.opaque"))),
        (b"security.capability", Some((6, b"capability"))),
        (b"system.posix_acl_access", Some((2, b""))),
        (b"system.posix_acl_default", Some((3, b""))),
        (b"system.posix_acl_accessory", None),
        (b"system.nfs4_acl", None),
        (b"user.", None),
        (b"user", None),
        (b"", None),
        (b"user.a\0b", None),
        (b"btrfs.compression", None),
    ] {
        assert_eq!(xattr::split(name), answer, "{}", String::from_utf8_lossy(name));
    }
    let long = [&b"user."[..], &[b'x'; 250]].concat();
    assert_eq!(xattr::split(&long).map(|(_, rest)| rest.len()), Some(250));
    assert_eq!(xattr::split(&[&long[..], b"x"].concat()), None);
    for area in [0, 12, 16, xattr::AREA_MAX] {
        assert_eq!(xattr::count(area).map(xattr::area), Some(area));
    }
    assert_eq!(xattr::count(xattr::AREA_MAX + 4), None);
}

#[test]
fn devices_fit_or_are_refused() {
    for (major, minor) in [(0, 0), (1, 3), (4095, (1 << 20) - 1), (259, 65_537)] {
        assert_eq!(inode::device(major, minor).map(inode::device_parts), Some((major, minor)));
    }
    assert_eq!(inode::device(4096, 0), None);
    assert_eq!(inode::device(0, 1 << 20), None);
    // As mknod's numbers are: major 8, minor 1 is 0x801.
    assert_eq!(inode::device(8, 1), Some(0x801));
}

#[test]
fn file_kinds_round_trip() {
    for kind in [Kind::File, Kind::Directory, Kind::Symlink, Kind::Char, Kind::Block, Kind::Fifo, Kind::Socket] {
        assert_eq!(inode::kind_of(inode::kind_bits(kind) | 0o7777), Some(kind));
        assert_eq!(dirent::kind_of(dirent::kind_number(kind)), Some(kind));
    }
    assert_eq!(inode::kind_of(0o755), None);
    assert_eq!(dirent::kind_of(0), None);
}

proptest! {
    #[test]
    fn inodes_round_trip(
        extended in any::<bool>(),
        layout in prop_oneof![Just(Layout::Plain), Just(Layout::Inline), Just(Layout::Chunks)],
        (xattr_count, mode, union, number) in any::<(u16, u16, u32, u32)>(),
        (links, size, uid, gid, mtime) in any::<(u32, u64, u32, u32, (i64, u32))>(),
    ) {
        let mut value = RawInode { extended, layout, xattr_count, mode, links, size, union, number, uid, gid, mtime };
        if !extended {
            value.links &= 0xffff;
            value.size &= 0xffff_ffff;
            value.uid &= 0xffff;
            value.gid &= 0xffff;
            value.mtime = (0, 0);
        }
        let mut bytes = [0xff; 64];
        value.encode(&mut bytes);
        prop_assert_eq!(RawInode::decode(&bytes[..RawInode::len(extended)]), Some(value));
        prop_assert_eq!(RawInode::decode(&bytes[..RawInode::len(extended) - 1]), None);
    }

    #[test]
    fn directory_entries_round_trip(nid: u64, name_at: u16, kind: u8) {
        let value = dirent::RawDirent { nid, name_at, kind };
        prop_assert_eq!(dirent::RawDirent::decode(&value.encode()), value);
    }
}
