//! Logs as runtimes write and rotate them, and as disks spoil them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;

struct Bench {
    top: tempfile::TempDir,
}

fn bench() -> Bench {
    Bench { top: tempfile::tempdir().unwrap() }
}

/// `SECOND:TEXT` with `P` before it for a part of a line.
fn lines(list: &[&str]) -> String {
    let line = |text: &&str| {
        let (tag, text) = text.strip_prefix("P:").map_or(("F", *text), |text| ("P", text));
        let (second, text) = text.split_once(':').unwrap();
        format!("2026-01-01T00:00:{second:0>2}.5Z stdout {tag} {text}\n")
    };
    list.iter().map(line).collect()
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        let bytes = match name.ends_with(".gz") {
            true => {
                let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                writer.write_all(text.as_bytes()).unwrap();
                writer.finish().unwrap()
            }
            false => text.as_bytes().to_vec(),
        };
        fs::write(self.path(name), bytes).unwrap();
    }

    fn add(&self, name: &str, text: &str) {
        fs::OpenOptions::new().append(true).open(self.path(name)).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn open(&self, options: LogOptions) -> LogReader {
        LogReader::open(&self.location("0.log"), options).unwrap()
    }

    fn location(&self, name: &str) -> LogLocation {
        LogLocation::new(&self.path(name), &BTreeMap::new())
    }

    fn read(&self, options: LogOptions) -> String {
        let mut out = Vec::new();
        self.open(options).finish(&mut out).unwrap();
        String::from_utf8_lossy(&out).into_owned()
    }

    fn tail(&self, tail: u64) -> String {
        self.read(LogOptions { tail: Some(tail), ..LogOptions::default() })
    }
}

fn step(reader: &mut LogReader) -> String {
    let mut out = Vec::new();
    assert_eq!(reader.step(&mut out).unwrap(), LogStep::UpToDate);
    String::from_utf8(out).unwrap()
}

#[test]
fn all_files_of_a_log_are_one() {
    let bench = bench();
    bench.put("0.log.20260101-000001.gz", &lines(&["1:a", "2:b"]));
    bench.put("0.log.20260101-000003", &lines(&["3:c", "P:4:d"]));
    bench.put("0.log.20260101-000004.gz.tmp", "rubbish");
    bench.put("0.log", &lines(&["5:D", "6:e"]));
    bench.put("1.log", &lines(&["7:f"]));
    assert_eq!(bench.read(LogOptions::default()), "a\nb\nc\ndD\ne\n");
    let stamped = bench.read(LogOptions { timestamps: true, ..LogOptions::default() });
    assert_eq!(stamped.lines().nth(3), Some("2026-01-01T00:00:04.500000000Z dD"));
    assert_eq!(stamped.lines().count(), 5);
    let whole = "a\nb\nc\ndD\ne\n";
    let tails = [(0, ""), (1, "e\n"), (2, "dD\ne\n"), (3, "c\ndD\ne\n"), (4, "b\nc\ndD\ne\n"), (5, whole), (6, whole)];
    for (tail, want) in tails {
        assert_eq!(bench.tail(tail), want, "{tail}");
    }
    // The same with compressed rotated files, and with rotated files of a single line.
    std::fs::remove_file(bench.path("0.log.20260101-000003")).unwrap();
    bench.put("0.log.20260101-000002.gz", &lines(&["3:c", "P:4:d"]));
    bench.put("0.log.20260101-000003", &lines(&["P:4:"]));
    for (tail, want) in tails {
        assert_eq!(bench.tail(tail), want, "{tail}, compressed");
    }
    let since = |second: i64| {
        let since = Timestamp::from_second(1_767_225_600 + second).unwrap();
        bench.read(LogOptions { since: Some(since), ..LogOptions::default() })
    };
    assert_eq!([since(5), since(6), since(9)], ["D\ne\n", "e\n", ""]);
    for (limit, want) in [(0, ""), (3, "a\nb"), (4, "a\nb\n"), (99, "a\nb\nc\ndD\ne\n")] {
        assert_eq!(bench.read(LogOptions { limit_bytes: Some(limit), ..LogOptions::default() }), want, "{limit}");
    }
    assert!(LogReader::open(&bench.location("2.log"), LogOptions::default()).is_err());
}

#[test]
fn the_last_lines_are_found_from_the_end() {
    let bench = bench();
    // Far more than one step reads, with lines that are longer than that and lines that are written in parts.
    let mut all = Vec::new();
    let mut text = String::new();
    for number in 0..400 {
        let mut line = format!("{number}-");
        for part in 0..number % 4 {
            let part = "x".repeat(if number % 97 == 0 { 70_000 } else { 700 } + part);
            text += &lines(&[&format!("P:7:{line}{part}")]);
            all.push(format!("{line}{part}"));
            line.clear();
        }
        text += &lines(&[&format!("8:{line}end")]);
        all.push(format!("{line}end\n"));
    }
    let all = all.concat();
    for name in ["0.log", "0.log.20260101-000001", "0.log.20260101-000001.gz"] {
        let bench = super::tests::bench();
        bench.put(name, &text);
        for tail in [1, 2, 3, 50, 97, 98, 399, 400, 500] {
            let begin = all.lines().count().saturating_sub(usize::try_from(tail).unwrap());
            let want: String = all.lines().skip(begin).map(|line| format!("{line}\n")).collect();
            assert!(bench.tail(tail) == want, "{name} {tail}");
        }
    }
    // A last line that has no end yet is a line.
    bench.put("0.log", &(lines(&["1:a", "2:b"]) + "2026-01-01T00:00:03Z stdout F c"));
    assert_eq!([bench.tail(1), bench.tail(2)], ["c", "b\nc"]);
    bench.put("0.log", &lines(&["1:a", "P:2:b"]));
    assert_eq!([bench.tail(1), bench.tail(2)], ["b", "a\nb"]);
    bench.put("0.log", "");
    assert_eq!([bench.tail(1), bench.read(LogOptions::default())], ["", ""]);
}

#[test]
fn lines_of_another_format_are_left_out() {
    let bench = bench();
    let odd = format!("{}panic\n\n{}\0\0\0no end", lines(&["1:a"]), lines(&["2:b"]));
    bench.put("0.log", &odd);
    assert_eq!(bench.read(LogOptions::default()), "a\nb\n");
    for (tail, want) in [(0, ""), (1, "b\n"), (2, "a\nb\n"), (3, "a\nb\n")] {
        assert_eq!(bench.tail(tail), want, "{tail}");
    }
    let since = Some(Timestamp::from_second(1_767_225_602).unwrap());
    assert_eq!(bench.read(LogOptions { since, ..LogOptions::default() }), "b\n");
    // The same where it is rotated and compressed.
    fs::remove_file(bench.path("0.log")).unwrap();
    bench.put("0.log.20260101-000001.gz", &odd);
    for (tail, want) in [(1, "b\n"), (2, "a\nb\n"), (3, "a\nb\n")] {
        assert_eq!(bench.tail(tail), want, "{tail}, compressed");
    }
    fs::remove_file(bench.path("0.log.20260101-000001.gz")).unwrap();
    // A file of the node that took the place of a log.
    bench.put("0.log", "root:$6$salt$hash:20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\n");
    assert_eq!(bench.read(LogOptions::default()), "");
    // A long line of a container is one, and what follows it is another.
    let long = "x".repeat(3 << 20);
    bench.put("0.log", &format!("{}{}\n{}", lines(&[&format!("1:{long}")]), "y".repeat(3 << 20), lines(&["2:end"])));
    assert_eq!(bench.read(LogOptions::default()), format!("{long}\nend\n"));
    assert_eq!(bench.tail(1), "end\n");
    bench.put("0.log.20260101-000001.gz", &lines(&[&format!("1:{long}"), "2:b"]));
    bench.put("0.log", &lines(&["3:c"]));
    assert_eq!(bench.tail(2), "b\nc\n");
}

#[test]
fn links_are_not_followed() {
    let bench = bench();
    let secret = bench.top.path().join("secret");
    fs::write(&secret, lines(&["1:secret"])).unwrap();
    std::os::unix::fs::symlink(&secret, bench.path("0.log")).unwrap();
    assert!(LogReader::open(&bench.location("0.log"), LogOptions::default()).is_err());
    fs::remove_file(bench.path("0.log")).unwrap();
    bench.put("0.log", &lines(&["2:a"]));
    // A rotated one, and one that takes the place of a log that is followed.
    std::os::unix::fs::symlink(&secret, bench.path("0.log.20260101-000001")).unwrap();
    assert!(LogReader::open(&bench.location("0.log"), LogOptions::default()).is_err());
    fs::remove_file(bench.path("0.log.20260101-000001")).unwrap();
    let mut reader = bench.open(LogOptions::default());
    assert_eq!(step(&mut reader), "a\n");
    fs::remove_file(bench.path("0.log")).unwrap();
    std::os::unix::fs::symlink(&secret, bench.path("0.log")).unwrap();
    let mut out = Vec::new();
    assert!(reader.step(&mut out).is_err());
    assert_eq!(out, b"");
}

#[test]
fn what_is_no_log_does_no_harm() {
    let bench = bench();
    // Bytes that are no text, a line without any end, a compressed file that is none or was cut off.
    fs::write(bench.path("0.log"), b"2026-01-01T00:00:01Z stdout F \xff\xfe\n").unwrap();
    let mut out = Vec::new();
    bench.open(LogOptions::default()).finish(&mut out).unwrap();
    assert_eq!(out, b"\xff\xfe\n");
    bench.put("0.log", &"z".repeat(5 << 20));
    let mut reader = bench.open(LogOptions::default());
    assert_eq!(step(&mut reader), "");
    assert!(reader.begun.capacity() <= 3 << 20);
    bench.put("0.log", &lines(&["9:end"]));
    fs::write(bench.path("0.log.20260101-000001.gz"), "no gzip").unwrap();
    bench.put("0.log.20260101-000002.gz", &lines(&["1:a", "2:b"]).repeat(500));
    let whole = fs::read(bench.path("0.log.20260101-000002.gz")).unwrap();
    fs::write(bench.path("0.log.20260101-000002.gz"), &whole[..whole.len() - 9]).unwrap();
    let read = bench.read(LogOptions::default());
    assert!(read.starts_with("a\nb\n") && read.ends_with("end\n"), "{read}");
    // What is no file at all.
    fs::remove_file(bench.path("0.log")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.path("0.log"), rustix::fs::Mode::RWXU).unwrap();
    let error = LogReader::open(&bench.location("0.log"), LogOptions::default()).err().unwrap();
    assert_eq!(error.to_string(), "it is no ordinary file");
}

#[test]
fn a_log_is_followed_over_rotations() {
    let bench = bench();
    bench.put("0.log", &lines(&["1:a", "2:b"]));
    let mut reader = bench.open(LogOptions { tail: Some(1), ..LogOptions::default() });
    assert_eq!(step(&mut reader), "b\n");
    bench.add("0.log", "2026-01-01T00:00:03Z stdo");
    assert_eq!(step(&mut reader), "");
    bench.add("0.log", "ut F c\n");
    assert_eq!(step(&mut reader), "c\n");
    // The file gets another name, and is written to until the runtime has opened a new one.
    fs::rename(bench.path("0.log"), bench.path("0.log.20260101-000010")).unwrap();
    assert_eq!(step(&mut reader), "");
    bench.add("0.log.20260101-000010", &lines(&["4:d"]));
    bench.put("0.log", &lines(&["6:f"]));
    assert_eq!(step(&mut reader), "d\n");
    bench.add("0.log.20260101-000010", &lines(&["5:e"]));
    assert_eq!(step(&mut reader), "e\nf\n");
    // Two rotations between two steps.
    fs::rename(bench.path("0.log"), bench.path("0.log.20260101-000020")).unwrap();
    bench.put("0.log.20260101-000030", &lines(&["7:g"]));
    bench.put("0.log", &lines(&["8:h"]));
    assert_eq!(step(&mut reader) + &step(&mut reader), "g\nh\n");
    // Twice as well, and the file that was read is compressed by then.
    bench.put("0.log.20260101-000033.gz", &lines(&["8:h"]));
    bench.put("0.log.20260101-000035", &lines(&["8:i"]));
    fs::remove_file(bench.path("0.log")).unwrap();
    bench.put("0.log", &lines(&["8:j"]));
    assert_eq!(step(&mut reader) + &step(&mut reader), "i\nj\n");
    // The file is truncated.
    bench.put("0.log", &lines(&[]));
    assert_eq!(step(&mut reader), "");
    bench.add("0.log", &lines(&["9:i"]));
    assert_eq!(step(&mut reader), "i\n");
    // A reader that starts when there is no log, because the runtime has not opened the new one.
    fs::rename(bench.path("0.log"), bench.path("0.log.20260101-000037")).unwrap();
    let mut late = bench.open(LogOptions { tail: Some(1), ..LogOptions::default() });
    assert_eq!(step(&mut late), "i\n");
    bench.put("0.log", &lines(&["9:j"]));
    assert_eq!(step(&mut late) + &step(&mut late), "j\n");
    assert_eq!(step(&mut reader) + &step(&mut reader), "j\n");
    // The container ends while a rotation is under way, in the middle of a line.
    bench.add("0.log", "2026-01-01T00:00:10Z stdout F j");
    fs::rename(bench.path("0.log"), bench.path("0.log.20260101-000040")).unwrap();
    bench.put("0.log", &lines(&["11:k"]));
    let mut out = Vec::new();
    reader.finish(&mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "jk\n");
}

#[test]
fn nothing_is_written_after_the_client_has_disconnected() {
    struct Disconnected;
    impl Write for Disconnected {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let bench = bench();
    bench.put("0.log", &lines(&["1:a"]));
    let error = bench.open(LogOptions::default()).step(&mut Disconnected).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
