//! Fetches one blob from a registry in this process whose line is slow for each connection, with one and more connections
//! allowed, and says how long each took, what was asked for, and what was sent for nothing. It is what `docs/performance.md`
//! quotes; no product code calls it. usage: `slow_line [MB [MB/S]]`
#![expect(clippy::print_stdout, reason = "a command line program")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use imagelet_registry::testing::{Line, TestRegistry};
use imagelet_registry::{Allowance, Client, Options, RangePolicy};
use oci::Reference;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let size = numbers.next().transpose()?.unwrap_or(64) * 1_000_000;
    let rate = numbers.next().transpose()?.unwrap_or(8) * 1_000_000;
    let bytes: Vec<u8> = (0..size / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    println!(
        "{:>12} {:>10} {:>8} {:>7} {:>9} {:>13} {:>12}",
        "rate/conn.", "latency", "allowed", "s", "requests", "connections", "for nothing"
    );
    let lines = [(Some(rate), 0), (Some(rate), 20), (None, 0)];
    for (rate, latency) in lines {
        for per_blob in [1, 2, 4, 8] {
            let registry = TestRegistry::open().await;
            registry.set_line(Line { rate, latency: Duration::from_millis(latency), ..Line::default() });
            let blob = registry.push_blob("app", bytes.clone());
            let ranges = RangePolicy { per_blob, ..RangePolicy::default() };
            let client = Client::new(Options { ranges, memory: Arc::new(Allowance::default()), ..Options::default() });
            let session = client.repository(&Reference::parse(&format!("{}/app", registry.host()))?, None)?;
            let start = Instant::now();
            let mut stream = session.blob(&blob).await?;
            let mut got = 0;
            while let Some(bytes) = stream.next().await? {
                got += bytes.len() as u64;
            }
            let took = start.elapsed().as_secs_f64();
            assert_eq!(got, blob.size, "all of it");
            println!(
                "{:>12} {:>7} ms {:>8} {:>7.2} {:>9} {:>13} {:>12}",
                rate.map_or("no limit".to_owned(), |rate| format!("{} MB/s", rate / 1_000_000)),
                latency,
                per_blob,
                took,
                registry.requests_for("/blobs/").len(),
                registry.connections(),
                registry.bytes_sent() - got,
            );
        }
    }
    Ok(())
}
