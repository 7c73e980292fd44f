//! Cost of decompression over something like a layer (a tar of text, code and noise). `INFLATE_BLOB=FILE` takes a layer's gzip
//! blob instead. Bytes are those of the tar stream.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads its own environment")]

use std::hint::black_box;
use std::io::{self, Write as _};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use imagelet_image_service::inflate::{BUFFER, Options, Sink, Source, Stopped, run};

/// A blob in chunks of the size that a connection gives.
struct Chunks(Bytes);

impl Source for Chunks {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.0.split_to(self.0.len().min(128 * 1024))))
    }
}

/// Counts bytes, and recycles eight buffers.
struct Count {
    free: Vec<Vec<u8>>,
    bytes: u64,
}

impl Sink for Count {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        Ok(self.free.remove(0))
    }

    fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped> {
        self.bytes += len as u64;
        self.free.push(full);
        Ok(())
    }
}

fn inflate(blob: &Bytes) -> u64 {
    let free = (0..8).map(|_| vec![0; BUFFER]).collect();
    let mut sink = Count { free, bytes: 0 };
    run(&mut Chunks(blob.clone()), &mut sink, &Options::default(), &mut |_| ()).expect("inflates");
    sink.bytes
}

/// Makes text, code (this program) and noise in turn.
fn like_a_layer() -> Vec<u8> {
    let code = std::env::current_exe().and_then(std::fs::read).expect("this program");
    let mut seed = 1_u64;
    let mut noise = |n: usize| -> Vec<u8> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        };
        (0..n).map(|_| next()).collect()
    };
    let mut data = Vec::new();
    for (i, part) in code.chunks(200_000).take(200).enumerate() {
        data.extend_from_slice(part);
        for line in 0..1500 {
            writeln!(data, "/usr/share/doc/package-{}/file{line} {:x}", i % 7, line * i * 7919).expect("to memory");
        }
        data.extend(noise(5000));
    }
    data
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let (gzip, zstd) = match std::env::var_os("INFLATE_BLOB") {
        Some(path) => (std::fs::read(path).expect("the blob"), None),
        None => {
            let data = like_a_layer();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&data).expect("to memory");
            let zstd = zstd::stream::encode_all(&data[..], 3).expect("to memory");
            (encoder.finish().expect("to memory"), Some(zstd))
        }
    };
    let gzip = Bytes::from(gzip);
    let mut group = criterion.benchmark_group("inflate");
    group.throughput(Throughput::Bytes(inflate(&gzip)));
    group.bench_function("gzip", |b| b.iter(|| black_box(inflate(&gzip))));
    if let Some(zstd) = zstd.map(Bytes::from) {
        group.bench_function("zstd", |b| b.iter(|| black_box(inflate(&zstd))));
    }
    group.finish();
    criterion.final_summary();
}
