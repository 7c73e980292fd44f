//! What the parsers of this crate have to keep, whatever comes: run by libFuzzer (`fuzz/` at the top of the repository), and over the
//! committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use std::io::{self, Read as _};
use std::sync::Arc;

use bytes::Bytes;

use crate::{Alone, Error, GzipBackend, Held, Options, Sink, Source, Spare, Stopped, Work, run};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] = &[("gzip", gzip), ("zstd", zstd)];

/// More than this comes out of nothing that is looked at here.
const MOST: usize = 1 << 20;

struct Chunks<'a>(std::slice::Chunks<'a, u8>);

impl Source for Chunks<'_> {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        Ok(self.0.next().map(Bytes::copy_from_slice))
    }
}

/// Takes so much and then no more.
struct Gathered(Vec<u8>);

impl Sink for Gathered {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        if self.0.len() > MOST { Err(Stopped) } else { Ok(vec![0; 40_000]) }
    }

    fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped> {
        self.0.extend_from_slice(&full[..len]);
        Ok(())
    }
}

/// Helps at once, on the thread that asks.
struct AtOnce;

impl Spare for AtOnce {
    fn helper(&self, work: Work) -> Result<(), Work> {
        work();
        Ok(())
    }

    fn memory(&self, bytes: usize) -> Option<Held> {
        (bytes <= 64 << 20).then(|| Box::new(()) as Held)
    }

    fn needed(&self, bytes: usize) -> Result<Held, Stopped> {
        // A window that is asked for is within the limit.
        assert!(bytes <= 1 << 27);
        Ok(Box::new(()))
    }
}

/// All that came out, and how it ended.
fn inflate(bytes: &[u8], chunk: usize, options: &Options) -> (Vec<u8>, Result<(), Error>) {
    let mut sink = Gathered(Vec::new());
    let ended = run(&mut Chunks(bytes.chunks(chunk)), &mut sink, options, &mut |_| ());
    (sink.0, ended)
}

fn options(parallel: bool) -> Options {
    let spare: Arc<dyn Spare> = if parallel { Arc::new(AtOnce) } else { Arc::new(Alone) };
    Options { parallel, parallel_from: 0, spare, ..Options::default() }
}

/// Every decoder, every way to cut the stream, and another implementation: the same bytes, or an error.
fn gzip(bytes: &[u8]) {
    let bytes = &[&[0x1f, 0x8b], bytes].concat()[..];
    let (out, ended) = inflate(bytes, bytes.len(), &options(false));
    let mut others = vec![(options(false), 1), (options(true), 7), (options(true), bytes.len())];
    for gzip in GzipBackend::ALL {
        others.push((Options { gzip: *gzip, ..options(false) }, 100));
    }
    for (options, chunk) in others {
        let (other, other_ended) = inflate(bytes, chunk, &options);
        match (&ended, &other_ended) {
            (Ok(()), Ok(())) => assert!(out == other, "other bytes"),
            (Err(Error::Corrupt(..)), Err(Error::Corrupt(..))) | (Err(Error::Stopped(_)), Err(Error::Stopped(_))) => {}
            // Damage behind what is taken of a long stream may be met or not.
            (Err(Error::Corrupt(..)), Err(Error::Stopped(_))) | (Err(Error::Stopped(_)), Err(Error::Corrupt(..))) => {}
            (one, two) => panic!("{one:?} and {two:?}"),
        }
    }
    if ended.is_ok() {
        let mut theirs = Vec::new();
        let read = flate2::bufread::MultiGzDecoder::new(bytes).read_to_end(&mut theirs);
        assert!(read.is_err() || theirs == out, "flate2 reads other bytes");
    }
}

/// Cut in any way, a stream has the same bytes, and those that another reader of it finds.
fn zstd(bytes: &[u8]) {
    let bytes = &[&[0x28, 0xb5, 0x2f, 0xfd], bytes].concat()[..];
    let mut small = options(true);
    // Windows of hundreds of megabytes take a fuzzer's memory, and are what they are.
    small.window_log_max = 20;
    let (out, ended) = inflate(bytes, bytes.len(), &small);
    let (other, other_ended) = inflate(bytes, 3, &small);
    match (&ended, &other_ended) {
        (Ok(()), Ok(())) => assert!(out == other, "other bytes"),
        (Err(_), Err(_)) => {}
        (one, two) => panic!("{one:?} and {two:?}"),
    }
    if ended.is_ok() {
        // Byte by byte, since it takes other empty blocks where it has all of a frame.
        let mut theirs = Vec::new();
        let slowly = io::BufReader::with_capacity(1, bytes);
        let read = zstd::stream::read::Decoder::with_buffer(slowly).and_then(|mut all| all.read_to_end(&mut theirs));
        assert!(read.is_ok() && theirs == out, "the library reads other bytes");
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
