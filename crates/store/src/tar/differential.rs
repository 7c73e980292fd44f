//! The tar reader against a second implementation, the crate `tar`: of every archive that both read they must find the same
//! entries with the same data. Where they may not is said in [`DIFFERENCES`], each with the headers that cause it; what ours
//! refuses, it refuses. For tests and the fuzzer only: no product code has that crate.

use std::io::Read as _;

use tar::{Archive, EntryType};

use super::header::{BLOCK, Format, Header};
use super::{Entry, Kind, Limits, Reader};

/// The fields of an entry that are compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct ComparedEntry {
    path: Vec<u8>,
    link: Vec<u8>,
    kind: char,
    data: Vec<u8>,
}

/// Headers behind which the second implementation may find something else, and why ours is right or careful.
type Difference = (&'static str, fn(Header<'_>, &[u8; BLOCK]) -> bool);

/// All that is known. Ours follows Go's reader, with which containerd and docker unpack.
const DIFFERENCES: &[Difference] = &[
    ("it takes data behind what is no file, where Go and Python have none", |h, _| {
        !matches!(h.type_flag(), 0 | b'0' | b'7' | b'S' | b'x' | b'g' | b'L' | b'K' | b'D') && h.size() != Some(0)
    }),
    ("it knows no labels and no directories of GNU's incremental archives", |h, _| {
        matches!(h.type_flag(), b'V' | b'D')
    }),
    ("it has rules of its own for sparse files of GNU", |h, _| matches!(h.type_flag(), b'S')),
    ("it takes Solaris' extended header for an entry", |h, _| h.type_flag() == b'X'),
    ("it joins a prefix where the format has none, or one of another length", |h, _| {
        matches!(h.format(), Format::Star | Format::V7 | Format::Gnu)
    }),
    ("it takes ustar of another version for something older, which has no prefix", |_, block| {
        block[263..265] != *b"00"
    }),
];

/// The bytes before an entry's data: blocks that may be headers, and all of it.
#[derive(Default)]
struct Head {
    blocks: Vec<[u8; BLOCK]>,
    raw: Vec<u8>,
}

impl Head {
    /// Returns true if the second implementation may return other entries from this point on.
    fn excuses(&self) -> bool {
        let count = |what: &[u8]| self.raw.windows(what.len()).filter(|part| *part == what).count();
        let header = |block: &[u8; BLOCK]| {
            Header::new(block).is_some_and(|header| DIFFERENCES.iter().any(|(_, causes)| causes(header, block)))
        };
        // That implementation supports no sparse files of PAX, and of several records it takes the first, where the later one
        // counts.
        count(b"GNU.sparse.") > 0
            || [&b" path="[..], b" linkpath=", b" size="].iter().any(|key| count(key) > 1)
            || self.blocks.iter().any(header)
    }
}

/// Reads with both.
///
/// # Panics
/// Where they differ and nothing excuses it.
pub(crate) fn compare(bytes: &[u8], limits: &Limits) {
    let (ours, headers, whole) = ours(bytes, limits);
    let mut archive = Archive::new(bytes);
    let Ok(entries) = archive.entries() else { return };
    let mut theirs = entries;
    for (at, found) in ours.iter().enumerate() {
        // That implementation ends PAX records at the ends of lines, which names may contain.
        let has_lines = found.path.contains(&b'\n') || found.link.contains(&b'\n');
        let excused = || has_lines || headers[..=at].iter().any(Head::excuses);
        let next = loop {
            match theirs.next() {
                // Ours passes over it, as containerd does.
                Some(Ok(entry)) if entry.header().entry_type() == EntryType::XGlobalHeader => {}
                other => break other,
            }
        };
        let (their, size) = match next {
            Some(Ok(mut entry)) => {
                let mut data = Vec::new();
                if entry.read_to_end(&mut data).is_err() {
                    // The archive is cut off, or a number is invalid: ours has read the entry, and reports an error for the next.
                    return;
                }
                let path = until_nul(&entry.path_bytes());
                let size = data.len();
                let kind = match entry.header().as_old().linkflag[0] {
                    0 if path.ends_with(b"/") => {
                        // In archives from before there were directories; it finds a file. A directory has no data.
                        data.clear();
                        '5'
                    }
                    0 | b'7' => '0',
                    other => char::from(other),
                };
                let link = match kind {
                    '1' | '2' => entry.link_name_bytes().map(|link| until_nul(&link)).unwrap_or_default(),
                    _ => Vec::new(),
                };
                (ComparedEntry { path, link, kind, data }, size)
            }
            // The other one refuses an archive that ours can read: the rest is not compared.
            Some(Err(_)) => return,
            None => {
                assert!(excused(), "they do not find {found:?}");
                return;
            }
        };
        if *found != their {
            // A name of GNU's that is empty is none for Go: the header's own counts.
            let is_none = their.path.is_empty() || (their.link.is_empty() && !found.link.is_empty());
            if is_none && has_long_name(&headers[at]) {
                return;
            }
            assert!(excused(), "ours is {found:?}, theirs {their:?}");
            return;
        }
        if size != their.data.len() {
            // The other one has skipped an entry that ours returns.
            return;
        }
    }
    if whole && let Some(Ok(entry)) = theirs.next() {
        let excused = entry.header().entry_type() == EntryType::XGlobalHeader || headers.iter().any(Head::excuses);
        assert!(excused, "they find {:?} more", entry.path_bytes());
    }
}

/// Returns true if a record of GNU's gives a name or a target.
fn has_long_name(head: &Head) -> bool {
    let type_flag = |block: &[u8; BLOCK]| Header::new(block).map(|header| header.type_flag());
    head.blocks.iter().any(|block| matches!(type_flag(block), Some(b'L' | b'K')))
}

/// A name of GNU's may be padded by more than the one NUL that it leaves away; for C, and for Go, a name ends at the first.
fn until_nul(name: &[u8]) -> Vec<u8> {
    name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// The entries up to what ours refuses, the headers of each and of the end, and whether it is all of them.
fn ours(bytes: &[u8], limits: &Limits) -> (Vec<ComparedEntry>, Vec<Head>, bool) {
    let mut source = bytes;
    let mut reader = Reader::new(&mut source, limits);
    let (mut entry, mut all, mut headers) = (Entry::default(), Vec::new(), Vec::new());
    loop {
        let mut head = Head::default();
        let next = reader.next(&mut entry, &mut |raw| {
            head.blocks.extend(<[u8; BLOCK]>::try_from(raw));
            head.raw.extend_from_slice(raw);
            Ok(())
        });
        match next {
            Ok(true) => {}
            Ok(false) => {
                // A name without an entry may be one for the other.
                headers.push(head);
                return (all, headers, true);
            }
            Err(_) => return (all, headers, false),
        }
        let mut data = Vec::new();
        loop {
            match reader.data(1 << 20) {
                Ok([]) => break,
                Ok(piece) => data.extend_from_slice(piece),
                Err(_) => return (all, headers, false),
            }
        }
        let kind = match entry.kind {
            Kind::File => '0',
            Kind::HardLink => '1',
            Kind::Symlink => '2',
            Kind::Char => '3',
            Kind::Block => '4',
            Kind::Directory => '5',
            Kind::Fifo => '6',
        };
        let link = if matches!(kind, '1' | '2') { entry.link.clone() } else { Vec::new() };
        all.push(ComparedEntry { path: entry.path.clone(), link, kind, data });
        headers.push(head);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tar::{Builder, Header};

    use super::*;

    /// An entry as their writer makes it.
    #[derive(Clone, Debug)]
    struct Line {
        kind: EntryType,
        path: String,
        link: String,
        data: Vec<u8>,
        records: Vec<(&'static str, String)>,
    }

    fn line() -> impl Strategy<Value = Line> {
        let kinds = [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Link, EntryType::Fifo];
        let name = || prop_oneof!["[a-z]{1,8}(/[a-zé]{1,8}){0,3}", "[a-z]{90,110}/[a-z]{100}", "[a-z/]{1,5}[.]{1,3}x"];
        let records = prop::collection::vec(
            prop_oneof![
                Just(("mtime", "1700000000.25".to_owned())),
                Just(("SCHILY.xattr.user.a", "b\nc".to_owned())),
                name().prop_map(|path| ("path", path)),
                name().prop_map(|link| ("linkpath", link)),
            ],
            0..3,
        );
        (prop::sample::select(kinds.to_vec()), name(), name(), prop::collection::vec(any::<u8>(), 0..1300), records)
            .prop_map(|(kind, path, link, data, records)| {
                let data = if kind == EntryType::Regular { data } else { Vec::new() };
                Line { kind, path, link, data, records }
            })
    }

    fn written(lines: &[Line], gnu: bool) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for Line { kind, path, link, data, records } in lines {
            let mut header = if gnu { Header::new_gnu() } else { Header::new_ustar() };
            header.set_entry_type(*kind);
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(1_700_000_000);
            header.set_uid(0);
            header.set_gid(0);
            let records: BTreeMap<_, _> = records.iter().cloned().collect();
            if !records.is_empty() {
                let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
                builder.append_pax_extensions(records).expect("writes");
            }
            let wrote = match kind {
                EntryType::Symlink | EntryType::Link => builder.append_link(&mut header, path, link),
                _ => builder.append_data(&mut header, path, &data[..]),
            };
            // A name that does not fit into their ustar header.
            if wrote.is_err() {
                break;
            }
        }
        builder.into_inner().expect("ends")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn another_reader_finds_the_same(lines in prop::collection::vec(line(), 0..6), gnu: bool) {
            compare(&written(&lines, gnu), &Limits::default());
        }

        #[test]
        fn another_reader_of_what_is_damaged_finds_the_same_or_it_is_known(
            lines in prop::collection::vec(line(), 1..4), gnu: bool,
            spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = written(&lines, gnu);
            for (at, byte) in spoilt {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            compare(&crate::fuzz::sealed(&bytes), &Limits::default());
        }
    }
}
