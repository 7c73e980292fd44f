//! The invariants of the decoders on any input: checked by libFuzzer (`fuzz/` at the top of the repository), and over the committed
//! corpora by a test. The harnesses are listed in [`crate::fuzz`].

use std::io::{self, Read as _};

use bytes::Bytes;

use crate::inflate::{Error, MemoryShare, Options, Sink, Source, Stopped, run};

/// Bytes of output after which a harness stops reading.
const MOST: usize = 1 << 20;

struct Chunks<'a>(std::slice::Chunks<'a, u8>);

impl Source for Chunks<'_> {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        Ok(self.0.next().map(Bytes::copy_from_slice))
    }
}

/// Collects [`MOST`] bytes, a buffer more, and then stops.
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

/// Grants what a window within the limit needs.
fn reserve_at_most_the_limit(bytes: usize) -> Result<MemoryShare, Stopped> {
    assert!(bytes <= 1 << 27);
    Ok(Box::new(()))
}

/// Returns all that came out, and how it ended.
fn inflate(bytes: &[u8], chunk: usize, options: &Options<'_>) -> (Vec<u8>, Result<(), Error>) {
    let mut sink = Gathered(Vec::new());
    let ended = run(&mut Chunks(bytes.chunks(chunk)), &mut sink, options, &mut |_| ());
    (sink.0, ended)
}

/// The same bytes or an error, however the stream is cut, and no other bytes than another reader finds.
pub(crate) fn gzip(bytes: &[u8]) {
    let bytes = &[&[0x1f, 0x8b], bytes].concat()[..];
    let options = Options::default();
    let (out, ended) = inflate(bytes, bytes.len(), &options);
    for chunk in [1, 7, 100] {
        let (other, other_ended) = inflate(bytes, chunk, &options);
        match (&ended, &other_ended) {
            (Ok(()), Ok(())) => assert!(out == other, "other bytes"),
            (Err(Error::Corrupt(..)), Err(Error::Corrupt(..))) | (Err(Error::Stopped(_)), Err(Error::Stopped(_))) => {}
            // Damage behind the bytes that are taken of a long stream may be met or not.
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

/// The same bytes however the stream is cut, and those that another reader of it finds.
pub(crate) fn zstd(bytes: &[u8]) {
    let bytes = &[&[0x28, 0xb5, 0x2f, 0xfd], bytes].concat()[..];
    // A window of hundreds of megabytes would only take the fuzzer's memory.
    let small = Options { reserve: &reserve_at_most_the_limit, window_log_max: 20 };
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
