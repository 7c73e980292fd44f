//! Unpacks a tar file into a new directory, for measuring by hand: `unpack TAR DIRECTORY [tree|erofs] [rebuild]`.
//!
//! Prints what was made, or why it was refused, and how long it took. Compare on a journaled file system, several rounds, directory new.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use imagelet_store::unpack::{Limits, UnpackOptions, unpack, unpack_erofs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(tar), Some(directory)) = (arguments.next(), arguments.next().map(PathBuf::from)) else {
        return Err("usage: unpack TAR DIRECTORY [tree|erofs] [rebuild]".into());
    };
    std::fs::create_dir_all(directory.join("fs"))?;
    let layer = File::open(&directory)?;
    let (limits, cancelled) = (Limits::default(), || false);
    let privileged = rustix::process::geteuid().is_root();
    let options = UnpackOptions {
        limits: &limits,
        privileged,
        cancelled: &cancelled,
        write_back: None,
        hollow: false,
        nested: false,
    };
    let erofs = arguments.next().is_some_and(|form| form == "erofs");
    let mut tar = BufReader::with_capacity(256 << 10, File::open(tar)?);
    let begin = Instant::now();
    let unpack = if erofs { unpack_erofs } else { unpack };
    let unpacked = unpack(&mut tar, layer.as_fd(), &options);
    let took = begin.elapsed();
    let outcome = unpacked.inspect_err(|_| drop(writeln!(io::stdout(), "refused after {took:?}")))?;
    rustix::fs::syncfs(&layer)?;
    let durable = begin.elapsed();
    writeln!(io::stdout(), "unpack {took:?}, durable {durable:?}, {outcome:?}")?;
    if arguments.next().is_some() {
        let begin = Instant::now();
        imagelet_store::recipe::rebuild(layer.as_fd(), &mut io::sink())?;
        writeln!(io::stdout(), "rebuild {:?}", begin.elapsed())?;
    }
    Ok(())
}
