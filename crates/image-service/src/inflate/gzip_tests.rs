//! Gzip streams of every form and level: equal output however the stream is cut into chunks, and an error for any damage.
#![expect(clippy::cast_possible_truncation, reason = "bytes and small numbers are cut out of random words")]

use std::io::Write as _;

use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use crate::inflate::tests::{Chunks, gzip, run_in};
use crate::inflate::{BUFFER, Error, Options, Sink, Stopped, run};

/// Bytes like a layer's: runs, words that come again, numbers, noise.
fn layer(seed: u64, parts: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut data = Vec::new();
    for _ in 0..parts {
        let length = 1 + next() as usize % 60_000;
        match next() % 5 {
            0 => data.resize(data.len() + length, next() as u8),
            1 => data.extend((0..length).map(|_| next() as u8)),
            2 => {
                while (next() % 400) != 0 {
                    writeln!(data, "usr/lib/python3/dist-packages/module_{}.py {}", next() % 500, next() % 9).unwrap();
                }
            }
            3 => {
                let from = data.len().saturating_sub(1 + next() as usize % 40_000);
                let again = data[from..].to_vec();
                data.extend(again);
            }
            _ => data.extend((0..length).map(|i| (i / 7) as u8 ^ (next() % 4) as u8)),
        }
    }
    data
}

/// A gzip member with a flush after every so many bytes.
fn flushed(data: &[u8], level: u32, every: usize, flush: FlushCompress) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut compress = Compress::new(Compression::new(level), false);
    let mut parts = data.chunks(every.max(1)).peekable();
    loop {
        let part = parts.next().unwrap_or(&[]);
        let flush = if parts.peek().is_some() { flush } else { FlushCompress::Finish };
        let start = compress.total_in();
        loop {
            out.reserve(64 * 1024);
            let used = (compress.total_in() - start) as usize;
            let status = compress.compress_vec(&part[used..], &mut out, flush).unwrap();
            let used = (compress.total_in() - start) as usize;
            if status == flate2::Status::StreamEnd || (used == part.len() && out.len() < out.capacity()) {
                break;
            }
        }
        if matches!(flush, FlushCompress::Finish) {
            break;
        }
    }
    let mut crc = flate2::Crc::new();
    crc.update(data);
    out.extend(crc.sum().to_le_bytes());
    out.extend(crc.amount().to_le_bytes());
    out
}

fn same(blob: &[u8], want: &[u8], chunk: usize) {
    for buffer in [BUFFER, 100_000] {
        assert!(run_in(blob, chunk, buffer, &Options::default()).unwrap() == want, "buffers of {buffer}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn equal_output_in_every_way(
        seeds in proptest::collection::vec((any::<u64>(), 0_usize..120, 0_u32..10, 1_usize..300_000, 0_u8..3), 1..4),
        chunk in prop_oneof![Just(1_usize), 100..1000_usize, 30_000..200_000_usize],
    ) {
        let (mut blob, mut want) = (Vec::new(), Vec::new());
        for (seed, parts, level, every, flush) in seeds {
            let data = layer(seed, parts);
            let flush = [FlushCompress::None, FlushCompress::Sync, FlushCompress::Full][usize::from(flush)];
            blob.extend(flushed(&data, level, every, flush));
            want.extend(data);
        }
        same(&blob, &want, chunk);
    }

    #[test]
    fn damage_is_an_error_in_every_way(
        seed in any::<u64>(),
        place in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
        cut in any::<bool>(),
    ) {
        let data = layer(seed, 150);
        let whole = gzip(&data);
        let at = place.index(whole.len());
        let mut bad = whole.clone();
        if cut {
            bad.truncate(at);
        } else {
            bad[at] ^= flip;
        }
        // A cut at nothing is an empty stream, and damaged magic no gzip; time and system in the header say nothing.
        prop_assume!(at >= 10 || (at == 3 && !cut));
        let result = run_in(&bad, 50_000, BUFFER, &Options::default());
        prop_assert!(matches!(result, Err(Error::Corrupt(..))), "{:?}", result.map(|b| b.len()));
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let blob = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255][..], &noise].concat();
        drop(run_in(&blob, 700, BUFFER, &Options::default()));
    }
}

/// The text of a damaged stream's error.
fn wrong(result: Result<Vec<u8>, Error>) -> String {
    match result {
        Err(Error::Corrupt(what, error)) => format!("{what}: {error}"),
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    }
}

#[test]
fn a_stream_that_is_cut_off_says_so() {
    let data = layer(11, 40);
    for (level, every, flush) in
        [(6, usize::MAX, FlushCompress::None), (0, usize::MAX, FlushCompress::None), (1, 9000, FlushCompress::Sync)]
    {
        let one = flushed(&data, level, every, flush);
        let blob = [&one[..], &flushed(&[], 6, 1, flush), &one].concat();
        let ends = [one.len(), blob.len() - one.len(), blob.len()];
        let near = ends.iter().flat_map(|end| end - 9..*end);
        let cuts = (10..300).step_by(29).chain((300..blob.len()).step_by(blob.len() / 12)).chain(near);
        for at in cuts.filter(|at| !ends.contains(at)) {
            for chunk in [700, 60_000] {
                let error = wrong(run_in(&blob[..at], chunk, BUFFER, &Options::default()));
                assert_eq!(error, "the gzip stream: it ends too early", "level {level}, at {at} of {}", blob.len());
            }
        }
    }
}

#[test]
fn what_follows_is_refused_by_its_first_bytes() {
    let blob = gzip(&layer(5, 150));
    let cases: [(&[u8], &str); 4] = [
        (b"x", "what follows its end is no gzip"),
        (&[0; 700], "what follows its end is no gzip"),
        (&[0x1f, 0x8b], "it ends too early"),
        (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 7, 7], "its deflate stream is wrong"),
    ];
    for (more, want) in cases {
        let bad = [&blob[..], more].concat();
        for chunk in [1000, 60_000] {
            let error = wrong(run_in(&bad, chunk, BUFFER, &Options::default()));
            assert_eq!(error, format!("the gzip stream: {want}"), "{more:?}");
        }
    }
}

#[test]
fn real_programs_and_streams_within_streams() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let program = &program[..program.len().min(6 << 20)];
    let deflated = gzip(program);
    same(&deflated, program, 100_000);
    same(&deflated, program, 5000);
    // Streams inside of a stream: stored, and in blocks of codes that keep them as they are.
    for level in [0, 1] {
        same(&flushed(&deflated, level, usize::MAX, FlushCompress::None), &deflated, 100_000);
    }
}

#[test]
fn a_bomb_takes_no_memory() {
    // A thousand to one, through one buffer.
    let data = vec![0; 100 << 20];
    let blob = gzip(&data);
    struct Nothing(Vec<u8>, u64);
    impl Sink for Nothing {
        fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
            Ok(std::mem::take(&mut self.0))
        }

        fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped> {
            self.1 += len as u64;
            self.0 = full;
            Ok(())
        }
    }
    let mut sink = Nothing(vec![0; BUFFER], 0);
    run(&mut Chunks::new(&blob, 4096), &mut sink, &Options::default(), &mut |_| ()).unwrap();
    assert_eq!(sink.1, data.len() as u64);
}

#[test]
fn a_stopped_reader_ends_the_decoder() {
    let blob = gzip(&layer(3, 600));
    struct StoppedAfter(u32);
    impl Sink for StoppedAfter {
        fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
            Ok(vec![0; BUFFER])
        }

        fn send(&mut self, _: Vec<u8>, _: usize) -> Result<(), Stopped> {
            self.0 += 1;
            if self.0 > 3 { Err(Stopped) } else { Ok(()) }
        }
    }
    let mut source = Chunks::new(&blob, 10_000);
    assert!(matches!(run(&mut source, &mut StoppedAfter(0), &Options::default(), &mut |_| ()), Err(Error::Stopped(_))));
}
