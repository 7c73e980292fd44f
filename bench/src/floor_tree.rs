//! Making the files of an image as fast as plain system calls can: the machine's floor for the file part of a pull.
//!
//! The list of files is read from tar streams beforehand. A separate process, whose CPU can be counted, then
//! creates the same files with the same sizes and times. It keeps one working directory, so that every name is resolved
//! once; it reads no content, checks nothing, and is not safe for untrusted archives. `floor.rs` calls it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, bail};

/// The first argument with which this program makes files; the list and the directory follow it.
pub(crate) const WRITE_TREE: &str = "--as-writer";

/// An entry: kind (`f`, `d`, `l`, `h`), size or nothing, seconds of its time, name, what it links to.
#[derive(Debug, PartialEq, Eq)]
struct TreeEntry {
    kind: char,
    size: u64,
    time: u64,
    name: String,
    target: String,
}

/// Totals of a list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeTotals {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Adds the entries of one tar stream, below a directory of their own, to a list.
pub(crate) fn list(tar: impl Read, directory: &str, list: &mut String) -> anyhow::Result<TreeTotals> {
    let mut tar = BufReader::with_capacity(1 << 20, tar);
    let mut totals = TreeTotals::default();
    let mut block = [0_u8; 512];
    let (mut long_name, mut long_target) = (None, None);
    writeln!(list, "d\t0\t0\t{directory}\t")?;
    loop {
        tar.read_exact(&mut block).context("read a tar header")?;
        if block[0] == 0 {
            return Ok(totals);
        }
        let size = octal(&block[124..136])?;
        let mut content = tar.by_ref().take(size.div_ceil(512) * 512);
        let kind = match block[156] {
            b'x' | b'L' | b'K' => {
                let mut text = Vec::new();
                content.read_to_end(&mut text)?;
                text.truncate(usize::try_from(size)?);
                match block[156] {
                    b'L' => long_name = Some(c_string(&text)),
                    b'K' => long_target = Some(c_string(&text)),
                    _ => {
                        long_name = pax(&text, "path").or(long_name);
                        long_target = pax(&text, "linkpath").or(long_target);
                    }
                }
                continue;
            }
            b'0' | 0 => 'f',
            b'1' => 'h',
            b'2' => 'l',
            b'5' => 'd',
            // Devices and global headers: too few to count.
            _ => {
                io::copy(&mut content, &mut io::sink())?;
                continue;
            }
        };
        io::copy(&mut content, &mut io::sink())?;
        let prefix = c_string(&block[345..500]);
        let short = c_string(&block[..100]);
        let short = if prefix.is_empty() { short } else { format!("{prefix}/{short}") };
        let name = long_name.take().unwrap_or(short);
        let target = long_target.take().unwrap_or_else(|| c_string(&block[157..257]));
        let name = name.trim_start_matches("./").trim_end_matches('/');
        if name.is_empty() || name == "." || name.contains(['\t', '\n']) || target.contains(['\t', '\n']) {
            continue;
        }
        let target = if kind == 'h' { format!("{directory}/{}", target.trim_start_matches("./")) } else { target };
        writeln!(list, "{kind}\t{size}\t{}\t{directory}/{name}\t{target}", octal(&block[136..148])?)?;
        totals.entries += 1;
        totals.bytes += size;
    }
}

/// Makes everything on a list below a directory.
pub(crate) fn write(list: &Path, directory: &Path) -> anyhow::Result<()> {
    let directory = fs::canonicalize(directory).with_context(|| format!("find {}", directory.display()))?;
    let zeros = vec![0_u8; 1 << 20];
    let mut here = PathBuf::new();
    for line in BufReader::new(File::open(list)?).lines() {
        let line = line?;
        let entry = entry(&line).with_context(|| format!("{line:?} is no entry"))?;
        let path = Path::new(&entry.name);
        let parent = path.parent().unwrap_or(Path::new(""));
        if here != parent || here.as_os_str().is_empty() {
            let there = directory.join(parent);
            if std::env::set_current_dir(&there).is_err() {
                fs::create_dir_all(&there)?;
                std::env::set_current_dir(&there)?;
            }
            here = parent.to_owned();
        }
        let name = path.file_name().with_context(|| format!("{line:?} has no name"))?;
        make(&entry, Path::new(name), &directory, &zeros).with_context(|| format!("make {}", entry.name))?;
    }
    Ok(())
}

fn make(entry: &TreeEntry, name: &Path, root: &Path, zeros: &[u8]) -> io::Result<()> {
    let made = match entry.kind {
        'd' => fs::create_dir(name),
        'l' => symlink(&entry.target, name),
        'h' => fs::hard_link(root.join(&entry.target), name),
        _ => {
            let mut file = File::options().write(true).create_new(true).mode(0o644).open(name)?;
            let mut left = usize::try_from(entry.size).map_err(io::Error::other)?;
            while left > 0 {
                let now = left.min(zeros.len());
                file.write_all(&zeros[..now])?;
                left -= now;
            }
            file.set_modified(UNIX_EPOCH + Duration::from_secs(entry.time))
        }
    };
    // A name that occurs twice in a stream is kept as it is; the cost of replacing it is not part of the floor.
    if made.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists) { Ok(()) } else { made }
}

fn entry(line: &str) -> Option<TreeEntry> {
    let mut fields = line.split('\t');
    let kind = fields.next()?.chars().next()?;
    let (size, time) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TreeEntry { kind, size, time, name: fields.next()?.to_owned(), target: fields.next()?.to_owned() })
}

fn octal(field: &[u8]) -> anyhow::Result<u64> {
    let text = c_string(field);
    match text.trim() {
        "" => Ok(0),
        digits => u64::from_str_radix(digits, 8).or_else(|_| bail!("{digits:?} is no octal number")),
    }
}

fn c_string(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// A value of a pax header: `LENGTH NAME=VALUE\n` each.
fn pax(text: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().find_map(|line| Some(line.split_once(' ')?.1.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, kind: u8, content: &[u8], target: &str) -> Vec<u8> {
        let mut block = vec![0_u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[136..147].copy_from_slice(b"00000000012");
        block[156] = kind;
        block[157..157 + target.len()].copy_from_slice(target.as_bytes());
        block.extend_from_slice(content);
        block.resize(block.len().div_ceil(512) * 512, 0);
        block
    }

    #[test]
    fn a_tar_becomes_a_list_and_the_list_a_tree() {
        let long = format!("d/{}", "n".repeat(120));
        let tar = [
            header("./", b'5', b"", ""),
            header("./d/", b'5', b"", ""),
            header("./d/f", b'0', b"hello", ""),
            header("x", b'x', format!("131 path={long}\n").as_bytes(), ""),
            header("short", b'0', &[7; 700], ""),
            header("./s", b'2', b"", "d/f"),
            header("./h", b'1', b"", "./d/f"),
            vec![0; 1024],
        ]
        .concat();
        let mut text = String::new();
        let totals = list(&tar[..], "0", &mut text).expect("a tar");
        assert_eq!(totals, TreeTotals { entries: 5, bytes: 705 });
        assert!(text.starts_with("d\t0\t0\t0\t\nd\t0\t10\t0/d\t\nf\t5\t10\t0/d/f\t\n"), "{text}");
        assert!(text.contains(&format!("f\t700\t10\t0/{long}\t\n")), "{text}");
        assert!(text.ends_with("l\t0\t10\t0/s\td/f\nh\t0\t10\t0/h\t0/d/f\n"), "{text}");
        for line in text.lines() {
            assert!(entry(line).is_some(), "{line}");
        }
        assert_eq!(entry("f\t1"), None);
    }

    #[test]
    fn a_broken_tar_is_an_error() {
        assert!(list(&[1_u8; 100][..], "0", &mut String::new()).is_err());
        let mut bad = header("f", b'0', b"", "");
        bad[124] = b'9';
        assert!(list(&bad[..], "0", &mut String::new()).expect_err("no number").to_string().contains("octal"));
    }
}
