//! Failures of each read and write, and calls that make no sense.

use std::fs::File;
use std::io;

use super::model::{options, plain};
use crate::{Attributes, Options, Sink, Special, WriteError, Writer};

/// Fails from the call of this number on.
struct Faulty {
    calls: usize,
    from: usize,
}

impl Faulty {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.calls > self.from { Err(io::Error::other("no more space")) } else { Ok(()) }
    }
}

impl Sink for Faulty {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        self.call()
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        self.call()
    }
}

/// Uses all that a writer can do. Answers how often the sink was called.
fn image(writer: &mut Writer<Faulty>) -> Result<(), WriteError> {
    let xattrs = vec![(b"user.x".to_vec(), vec![1; 9000])];
    let attributes = Attributes { xattrs, ..plain(0o644, 1) };
    let root = writer.root();
    for n in 0..16_u32 {
        let dir = writer.directory(root, format!("d{n}").as_bytes())?;
        writer.set_directory(dir, &attributes, n % 7 == 0)?;
        writer.begin_file(100_000, &plain(0o644, 2))?;
        writer.data(&[1; 100_000])?;
        let file = writer.end_file()?;
        writer.link(dir, b"file", file)?;
        writer.link(root, format!("f{n}").as_bytes(), file)?;
        writer.begin_sparse_file(1 << 20, &attributes)?;
        writer.hole(50_000)?;
        writer.data(&[1; 3000])?;
        writer.hole((1 << 20) - 53_000)?;
        let file = writer.end_file()?;
        writer.link(dir, b"sparse", file)?;
        let link = writer.symlink(&[b'x'; 4000], &plain(0o777, 1))?;
        writer.link(dir, b"link", link)?;
        writer.attributes(dir)?;
        writer.lookup(dir, b"link")?;
        for name in 0..100_u32 {
            writer.link(dir, format!("{name}-{}", "n".repeat(40)).as_bytes(), link)?;
        }
    }
    Ok(())
}

#[test]
fn sink_errors_are_returned() {
    let run = |from| {
        let mut writer = Writer::new(Faulty { calls: 0, from }, options(100_000)).unwrap();
        match image(&mut writer) {
            Ok(()) => writer.finish().map(|(sink, _)| sink.calls),
            Err(error) => {
                // Nothing more is done, and nothing is said to be well.
                assert!(matches!(writer.lookup(writer.root(), b"x"), Err(WriteError::Broken)));
                assert!(matches!(writer.finish(), Err(WriteError::Broken)));
                Err(error)
            }
        }
    };
    let calls = run(usize::MAX).unwrap();
    assert!(calls > 20, "{calls}");
    for from in 0..calls {
        let error = run(from).unwrap_err();
        assert!(matches!(&error, WriteError::Sink(error) if error.to_string() == "no more space"), "{from}: {error}");
    }
}

/// A temporary file that cannot be made, and one that cannot be written.
#[test]
fn spill_errors_are_returned() {
    let makes: [Box<dyn FnMut() -> io::Result<File> + Send>; 3] = [
        Box::new(|| Err(io::Error::other("no directory for it"))),
        Box::new(|| File::open("/dev/null")),
        Box::new(|| File::options().write(true).open("/dev/full")),
    ];
    for spill in makes {
        let sink = Faulty { calls: 0, from: usize::MAX };
        let mut writer = Writer::new(sink, Options { spill, ..options(100_000) }).unwrap();
        let error = image(&mut writer).and_then(|()| writer.finish().map(drop)).unwrap_err();
        assert!(matches!(error, WriteError::Spill(_)), "{error}");
    }
    // The file is asked for once.
    let mut asked = 0;
    let (send, receive) = std::sync::mpsc::channel();
    let spill = Box::new(move || {
        send.send(()).unwrap();
        tempfile::tempfile()
    });
    let sink = Faulty { calls: 0, from: usize::MAX };
    let mut writer = Writer::new(sink, Options { spill, ..options(100_000) }).unwrap();
    image(&mut writer).unwrap();
    writer.finish().unwrap();
    asked += receive.iter().count();
    assert_eq!(asked, 1);
}

#[test]
fn values_beyond_the_format_are_refused() {
    type Act = dyn Fn(&mut Writer<Vec<u8>>) -> Result<(), WriteError>;
    let fine = plain(0o644, 1);
    let with = |name: &str, length: usize| Attributes {
        xattrs: vec![(name.as_bytes().to_vec(), vec![0; length])],
        ..plain(0o644, 1)
    };
    let file = |attributes: Attributes| move |writer: &mut Writer<Vec<u8>>| writer.begin_file(0, &attributes).map(drop);
    let device = |special: Special| move |writer: &mut Writer<Vec<u8>>| writer.special(special, &plain(0, 0)).map(drop);
    let named = |name: &'static [u8]| {
        move |writer: &mut Writer<Vec<u8>>| {
            let inode = writer.special(Special::Fifo, &plain(0, 0))?;
            writer.link(writer.root(), name, inode).map(drop)
        }
    };
    let directory =
        |name: &'static [u8]| move |writer: &mut Writer<Vec<u8>>| writer.directory(writer.root(), name).map(drop);
    let twice =
        Attributes { xattrs: vec![(b"user.a".to_vec(), vec![]), (b"user.a".to_vec(), vec![1])], ..fine.clone() };
    let many = (0..300).map(|n| (format!("user.{n}").into_bytes(), vec![0; 65_535])).collect();
    let many = Attributes { xattrs: many, ..fine.clone() };
    let cases: Vec<(&str, Box<Act>, &str)> = vec![
        ("another namespace", Box::new(file(with("system.nfs4_acl", 1))), "system.nfs4_acl"),
        ("a value", Box::new(file(with("user.a", 65_536))), "of 65536 bytes"),
        ("no name", Box::new(file(with("user.", 1))), "user."),
        ("the same name", Box::new(file(twice)), "twice"),
        ("too much", Box::new(file(many)), "extended attributes of one inode"),
        ("a mode", Box::new(file(plain(0o100_644, 0))), "permission bits"),
        ("a time", Box::new(file(Attributes { mtime: (0, 1_000_000_000), ..fine })), "nanoseconds"),
        ("a major", Box::new(device(Special::Char(4096, 0))), "device 4096:0"),
        ("a minor", Box::new(device(Special::Block(0, 1 << 20))), "device 0:1048576"),
        ("an empty name", Box::new(named(b"")), "name"),
        ("a dot", Box::new(named(b".")), "name"),
        ("dots", Box::new(directory(b"..")), "name"),
        ("a slash", Box::new(directory(b"a/b")), "a/b"),
        ("a zero", Box::new(named(b"a\0b")), "name"),
        ("a long name", Box::new(directory(&[b'n'; 256])), "name"),
        ("no target", Box::new(|writer| writer.symlink(b"", &plain(0, 0)).map(drop)), "0 bytes"),
        ("a long target", Box::new(|writer| writer.symlink(&[1; 4096], &plain(0, 0)).map(drop)), "4096 bytes"),
        ("a long file", Box::new(|writer| writer.begin_file(1 << 63, &plain(0, 0)).map(drop)), "bytes"),
        ("more than blocks", Box::new(|writer| writer.begin_file(1 << 45, &plain(0, 0)).map(drop)), "16 TiB"),
        ("a long sparse file", Box::new(|writer| writer.begin_sparse_file(u64::MAX, &plain(0, 0)).map(drop)), "bytes"),
        (
            "too much data",
            Box::new(|writer| {
                writer.begin_file(3, &plain(0, 0))?;
                writer.data(b"four")
            }),
            "more bytes",
        ),
        (
            "too long a hole",
            Box::new(|writer| {
                writer.begin_sparse_file(3, &plain(0, 0))?;
                writer.hole(4)
            }),
            "more bytes",
        ),
        (
            "too little data",
            Box::new(|writer| {
                writer.begin_file(3, &plain(0, 0))?;
                writer.end_file().map(drop)
            }),
            "fewer bytes",
        ),
        ("no file", Box::new(|writer| writer.data(b"")), "no file"),
        ("no file to end", Box::new(|writer| writer.end_file().map(drop)), "no file"),
        (
            "two files",
            Box::new(|writer| {
                writer.begin_file(3, &plain(0, 0))?;
                writer.begin_file(3, &plain(0, 0)).map(drop)
            }),
            "not ended",
        ),
        (
            "a directory's attribute",
            Box::new(move |writer| writer.set_directory(writer.root(), &with("other.a", 1), true)),
            "other.a",
        ),
    ];
    for (what, act, word) in cases {
        let mut writer = Writer::new(Vec::new(), options(Options::MEMORY)).unwrap();
        let error = act(&mut writer).unwrap_err().to_string();
        assert!(error.contains(word), "{what}: {error}");
        assert!(matches!(writer.finish(), Err(WriteError::Broken)), "{what}");
    }
    let mut writer = Writer::new(Vec::new(), options(Options::MEMORY)).unwrap();
    writer.begin_file(3, &plain(0, 0)).unwrap();
    assert!(matches!(writer.finish(), Err(WriteError::Misused(_))));
    // A root has no more room than its block.
    let mut writer = Writer::new(Vec::new(), options(Options::MEMORY)).unwrap();
    let xattrs = (0..400).map(|n| (format!("user.{n}").into_bytes(), vec![0; 100])).collect();
    writer.set_directory(writer.root(), &Attributes { xattrs, ..plain(0o755, 0) }, false).unwrap();
    assert!(matches!(writer.finish(), Err(WriteError::Beyond { .. })));
}
