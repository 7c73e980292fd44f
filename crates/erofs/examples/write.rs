//! Times the writer: `write FILES BYTES [IMAGE]` writes so many files of about so many bytes (from half to one and a half of it), ten in
//! a directory, to IMAGE or to nowhere, and prints what each took.

use std::error::Error;
use std::fs::File;
use std::io;
use std::time::Instant;

use imagelet_erofs::{Attributes, Options, Sink, Writer};

/// Nowhere.
struct Null;

impl Sink for Null {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (files, bytes) = (number(80_000)?, number(9_000)?);
    let begin = Instant::now();
    let (what, total, size) = match std::env::args().nth(3) {
        None => ("nowhere".to_owned(), write(Null, files, bytes)?, 0),
        Some(path) => {
            let total = write(File::create(&path)?, files, bytes)?;
            let size = std::fs::metadata(&path)?.len();
            (path, total, size)
        }
    };
    let took = begin.elapsed();
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (each, rate) = (seconds * 1e9 / files as f64, total as f64 / seconds / 1e9);
    println!("{files} files, {total} bytes to {what} ({size} bytes): {took:?}, {each:.0} ns a file, {rate:.2} GB/s");
    Ok(())
}

fn write(sink: impl Sink, files: u64, bytes: u64) -> Result<u64, Box<dyn Error>> {
    // As a tar reader's buffer: data comes in pieces of at most a quarter of a megabyte.
    let buffer: Vec<u8> = (0..256_u32 << 10).map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    let spill = Box::new(|| Err(io::Error::other("there is memory enough")));
    let mut writer = Writer::new(sink, Options { uuid: [7; 16], time: None, memory: 64 << 20, spill })?;
    let (mut dir, mut total, mut random) = (writer.root(), 0, 0x2545_f491_4f6c_dd1d_u64);
    let mut attributes = Attributes { mode: 0o644, ..Attributes::default() };
    for n in 0..files {
        if n % 10 == 0 {
            dir = writer.directory(writer.root(), format!("directory-{n}").as_bytes())?;
            writer.set_directory(
                dir,
                &Attributes { mode: 0o755, mtime: (1_700_000_000, 1), ..Attributes::default() },
                false,
            )?;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let size = if bytes == 0 { 0 } else { bytes / 2 + random % bytes };
        attributes.mtime = (1_700_000_000 + i64::try_from(n)?, 5);
        let name = format!("file-{n}.txt");
        if writer.lookup(dir, name.as_bytes())?.is_some() {
            return Err("it is there already".into());
        }
        writer.begin_file(size, &attributes)?;
        let mut left = size;
        while left > 0 {
            let piece = usize::try_from(left)?.min(buffer.len());
            writer.data(&buffer[..piece])?;
            left -= piece as u64;
        }
        let inode = writer.end_file()?;
        writer.link(dir, name.as_bytes(), inode)?;
        total += size;
    }
    writer.finish()?;
    Ok(total)
}
