//! Any calls in any order, with much and with little memory: the same EROFS file, and the tree that was meant.

use std::fs::{self, File};

use proptest::prelude::*;

use super::model::{Builder, What, bytes, options, plain};
use super::mounted::{check, image};
use crate::{Attributes, Options, Sink, Special};

/// A step, in numbers that are made to fit what is there.
#[derive(Clone, Debug)]
pub(super) struct Step {
    what: u8,
    dir: usize,
    name: u16,
    size: u32,
    seed: u64,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        4 => 0..300_u32,
        4 => 3900..4200_u32,
        4 => 0..30_000_u32,
        1 => 30_000..800_000_u32,
    ];
    // Few names: they meet.
    let numbers = (0..20_u8, any::<usize>(), 0..60_u16, size, any::<u64>());
    numbers.prop_map(|(what, dir, name, size, seed)| Step { what, dir, name, size, seed })
}

/// A name by its number: some long, some no text, each of another length.
fn name(number: u16) -> Vec<u8> {
    let length = usize::from(number) * 4 % 255 + 1;
    let mut name: Vec<u8> =
        bytes(u64::from(number), length).iter().map(|byte| if *byte == b'/' { b'0' } else { (*byte).max(1) }).collect();
    if matches!(&name[..], b"." | b"..") {
        name[0] = b'x';
    }
    name
}

fn attributes(seed: u64, user: bool) -> Attributes {
    let pick = |shift: u32, of: u64| (seed >> shift) % of;
    let mut attributes = Attributes {
        mode: u32::try_from(pick(0, 0o10_000)).unwrap(),
        // Of the time and owners of compact inodes, and not.
        uid: [0, 1000, 65_535, 65_536, u32::MAX - 1][usize::try_from(pick(12, 5)).unwrap()],
        gid: [0, 0, 0, 100, 70_000][usize::try_from(pick(15, 5)).unwrap()],
        mtime: [(0, 0), (1_700_000_000, 0), (-86_400, 1), (1 << 40, 999_999_999)]
            [usize::try_from(pick(18, 4)).unwrap()],
        xattrs: Vec::new(),
    };
    let namespace = if user { "user" } else { "trusted" };
    let count = [0, 0, 0, 1, 1, 2, 5, 30][usize::try_from(pick(20, 8)).unwrap()];
    for n in 0..count {
        let value = pick(24 + n % 8, 40);
        let length = if pick(34, 30) == 0 { 9000 } else { usize::try_from(value).unwrap() * 3 };
        attributes.xattrs.push((format!("{namespace}.n{n}").into_bytes(), bytes(value, length)));
    }
    attributes
}

pub(super) fn play<S: Sink>(steps: &[Step], sink: S, memory: usize) -> Builder<S> {
    let mut builder = Builder::new(sink, options(memory));
    for step in steps {
        // Directories and inodes that have a name.
        let alive: Vec<usize> = builder.model.links().into_keys().collect();
        let is_dir = |node: &usize| matches!(builder.model.nodes[*node].what, What::Dir(_));
        let dirs: Vec<usize> = alive.iter().copied().filter(is_dir).collect();
        let inodes: Vec<usize> = alive.iter().copied().filter(|node| !is_dir(node)).collect();
        let dir = dirs[step.dir % dirs.len()];
        let name = name(step.name);
        let attributes = attributes(step.seed, matches!(step.what, 0..=13));
        let size = step.size as usize;
        match step.what {
            0..=5 => {
                let piece = [1 << 20, 70_000, 4096, 1000][usize::try_from(step.seed % 4).unwrap()];
                builder.file(dir, &name, bytes(step.seed, size), piece, &attributes);
            }
            6..=8 => {
                builder.directory(dir, &name, &attributes);
            }
            9 => {
                builder.implicit(dir, &name);
            }
            10 => builder.set(dir, &attributes, step.seed % 2 == 0),
            11 | 12 => {
                let size = u64::from(step.size) << (step.seed % 19);
                let size = size.min(1 << 33);
                let mut pieces = Vec::new();
                let mut at = 0;
                for n in 0..step.seed % 6 {
                    at += step.seed.rotate_left(u32::try_from(n).unwrap() * 9) % (size / 3 + 1);
                    let length =
                        (step.seed.rotate_right(u32::try_from(n).unwrap() * 7) % 9000).min(size.saturating_sub(at));
                    if length > 0 {
                        pieces.push((at, bytes(n, usize::try_from(length).unwrap())));
                    }
                    at += length;
                }
                builder.sparse(dir, &name, size, pieces, &attributes);
            }
            13 => builder.lookup(dir, &name),
            14 => {
                let special = [
                    Special::Char(0, 0),
                    Special::Char(4095, 1),
                    Special::Block(8, (1 << 20) - 1),
                    Special::Fifo,
                    Special::Socket,
                ][usize::try_from(step.seed % 5).unwrap()];
                builder.special(dir, &name, special, &attributes);
            }
            15 => {
                builder.symlink(dir, &name, &vec![b't'; (size % 4095).max(1)], &attributes);
            }
            16..=18 => {
                if let Some(inode) = inodes.get(step.dir.rotate_left(7) % inodes.len().max(1)) {
                    builder.link(dir, &name, *inode);
                }
            }
            _ => builder.unlink(dir, &name),
        }
    }
    builder
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn any_tree_round_trips(steps in prop::collection::vec(step(), 0..120)) {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = image(&dir);
        check(play(&steps, file, Options::MEMORY), &path);
        // Hardly any memory: names, directories and their attributes are put aside again and again.
        let (other, ..) = play(&steps, Vec::new(), 600).finish().unwrap();
        prop_assert!(fs::read(&path).unwrap() == other, "with little memory it is another image");
    }
}

/// Many directories, names and links, with memory for some hundred of them: everything is put aside.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn spilled_data_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let build = |sink: File, memory| {
        let mut builder = Builder::new(sink, options(memory));
        let mut dirs = vec![0];
        let mut files = Vec::new();
        for n in 0..6000_u64 {
            let seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let parent = dirs[usize::try_from(seed >> 40).unwrap() % dirs.len()];
            let name = format!("{:x}", seed >> 52);
            builder.lookup(parent, name.as_bytes());
            match n % 5 {
                0 => {
                    let xattrs = vec![(b"user.number".to_vec(), bytes(n, 300))];
                    // What is replaced goes with all that is below it.
                    let attributes = Attributes { xattrs, ..plain(0o755, n as i64) };
                    dirs.push(builder.directory(parent, format!("d{n}").as_bytes(), &attributes));
                }
                1 => files.push(builder.file(parent, name.as_bytes(), bytes(n, 10), 10, &plain(0o600, 5))),
                4 if n % 35 == 4 => builder.unlink(parent, name.as_bytes()),
                _ => {
                    let file = files.get(usize::try_from(seed >> 20).unwrap() % files.len().max(1));
                    if let Some(file) = file.copied() {
                        builder.link(parent, name.as_bytes(), file);
                    }
                }
            }
        }
        builder
    };
    let (file, path) = image(&dir);
    check(build(file, Options::MEMORY), &path);
    let other = tempfile::tempdir().unwrap();
    let (file, small) = image(&other);
    build(file, 20_000).finish().unwrap();
    assert!(fs::read(path).unwrap() == fs::read(small).unwrap());
}
