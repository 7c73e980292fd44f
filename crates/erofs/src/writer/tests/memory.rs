//! How much memory a writer takes, counted by the allocator.

use std::io;

use super::model::{no_spill, options, plain};
use crate::{Attributes, Dir, Options, Sink, Writer};

struct Null;

impl Sink for Null {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// The most bytes that are held at once while an EROFS file is written.
fn most(options: Options, build: impl FnOnce(&mut Writer<Null>)) -> u64 {
    let info = allocation_counter::measure(|| {
        let mut writer = Writer::new(Null, options).unwrap();
        build(&mut writer);
        writer.finish().unwrap();
    });
    info.bytes_max
}

fn files(writer: &mut Writer<Null>, count: usize, name: usize, directory_of: usize) {
    let mut dir = writer.root();
    let mut attributes = plain(0o644, 0);
    for n in 0..count {
        if n % directory_of == 0 {
            dir = directory(writer, writer.root(), format!("{n:0name$}").as_bytes());
        }
        attributes.mtime.1 = 1;
        writer.begin_file(3, &attributes).unwrap();
        writer.data(b"abc").unwrap();
        let inode = writer.end_file().unwrap();
        writer.link(dir, format!("{n:0name$}").as_bytes(), inode).unwrap();
    }
}

fn directory(writer: &mut Writer<Null>, parent: Dir, name: &[u8]) -> Dir {
    let dir = writer.directory(parent, name).unwrap();
    let label = format!("label of {}", String::from_utf8_lossy(name));
    let xattrs = vec![(b"security.selinux".to_vec(), label.into_bytes())];
    writer.set_directory(dir, &Attributes { xattrs, ..plain(0o755, 1) }, false).unwrap();
    dir
}

#[test]
fn a_hundred_thousand_entries() {
    let usual = || Options { spill: no_spill(), ..options(Options::MEMORY) };
    type Build = dyn Fn(&mut Writer<Null>);
    let cases: [(&str, u64, Options, &Build); 4] = [
        // As in images: nothing is put aside.
        ("names of 20 bytes", 12, usual(), &|writer| files(writer, 100_000, 20, 10)),
        ("names of 255 bytes", 32, options(Options::MEMORY), &|writer| files(writer, 100_000, 255, 1000)),
        ("directories", 32, options(Options::MEMORY), &|writer| {
            let mut parent = writer.root();
            for n in 0..100_000 {
                let dir = directory(writer, parent, n.to_string().as_bytes());
                parent = if n % 100 == 0 { dir } else { parent };
            }
        }),
        ("two names each", 16, options(Options::MEMORY), &|writer| {
            let mut inode = None;
            for n in 0..100_000 {
                let inode = match inode {
                    Some(inode) if n % 2 == 1 => inode,
                    _ => {
                        writer.begin_file(0, &plain(0o644, 1)).unwrap();
                        *inode.insert(writer.end_file().unwrap())
                    }
                };
                writer.link(writer.root(), n.to_string().as_bytes(), inode).unwrap();
            }
        }),
    ];
    for (what, mib, options, build) in cases {
        let most = most(options, build);
        assert!(most < mib << 20, "{what}: {most} bytes");
    }
}

/// Many more do not take as much more: what is put aside costs two bytes each.
#[test]
fn half_a_million_entries() {
    let most = most(options(Options::MEMORY), |writer| files(writer, 500_000, 40, 100));
    assert!(most < 20 << 20, "{most} bytes");
}

/// The budget is what decides.
#[test]
fn memory_limit_is_respected() {
    let of = |memory| most(options(memory), |writer| files(writer, 100_000, 100, 100));
    let (much, little) = (of(64 << 20), of(1 << 20));
    assert!(little < 4 << 20, "{little} bytes");
    assert!(much > 3 * little, "{much} and {little} bytes");
}
