//! Cost of a pass over a node: `detect` over 1,000, 10,000 and 100,000 images with ten times as many containers, and
//! `select` of half of them. Prints what is allocated. `cargo bench -p imagelet-image-manager --bench gc`.
//!
//! For comparison, the kubelet on the same (Go, 1.36, a fake runtime): detect 2.2, 26 and 437 ms with 3.1, 30 and 300 MB
//! allocated; order and free half of them 3.2, 36 and 540 ms.

#![expect(clippy::unwrap_used, reason = "a bench that cannot make its lists has nothing to measure")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use cri_api::{Container, ContainerMetadata, Image};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use imagelet_image_manager::gc::{AlwaysUsed, Goal, Inventory, Item, Rules, UsageHistory, detect, key, select};
use jiff::Timestamp;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const NOW: i64 = 1_800_000_000;
/// Layers of an image; it shares the first three with the other images of its group.
const LAYERS: u32 = 8;
const SHARED: u32 = 3;
const GROUP: u32 = 20;

/// Pseudo-random numbers, the same in each run.
fn mix(number: usize) -> u64 {
    let mut x = (number as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn digest(number: usize) -> String {
    format!("sha256:{:016x}{:016x}{:032x}", mix(number), mix(number + 1), number)
}

fn images(count: usize) -> Vec<Image> {
    let one = |number: usize| Image {
        id: digest(number),
        repo_tags: vec![format!("registry.example.com/team-{}/service-{number}:v1.{}", number % 100, number % 17)],
        repo_digests: vec![format!(
            "registry.example.com/team-{}/service-{number}@{}",
            number % 100,
            digest(number + 7)
        )],
        size: 1_000_000 + mix(number) % 1_000_000_000,
        ..Image::default()
    };
    (0..count).map(one).collect()
}

/// Ten containers for each image, in no order of the images.
fn containers(images: &[Image]) -> Vec<Container> {
    let one = |number: usize| {
        let image = &images[usize::try_from(mix(number)).unwrap() % images.len()];
        let labels = [
            ("io.kubernetes.container.name", "main".to_owned()),
            ("io.kubernetes.pod.name", format!("service-{}-7d4b9c", number / 2)),
            ("io.kubernetes.pod.namespace", format!("team-{}", number % 100)),
            ("io.kubernetes.pod.uid", format!("0f3ee0d6-2a8b-4a9f-8f0e-{number:012}")),
        ];
        Container {
            id: format!("{:064x}", mix(number)),
            metadata: ContainerMetadata { name: "main".into(), attempt: 0 },
            image_ref: image.id.clone(),
            image_id: image.id.clone(),
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            ..Container::default()
        }
    };
    (0..images.len() * 10).map(one).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn timed(rounds: u64, mut work: impl FnMut()) -> Duration {
    let begun = Instant::now();
    (0..rounds).for_each(|_| work());
    begun.elapsed()
}

#[expect(clippy::print_stderr, reason = "criterion has no place for a count")]
fn report(name: &str, work: impl FnOnce()) {
    let counted = measure(work);
    eprintln!(
        "{name}: {:.1} MB in {} allocations, {:.1} MB at once",
        counted.bytes_total as f64 / 1e6,
        counted.count_total,
        counted.bytes_max as f64 / 1e6,
    );
}

fn detecting(c: &mut Criterion) {
    let mut group = c.benchmark_group("detect");
    group.sample_size(10);
    for count in SIZES {
        let images = images(count);
        let containers = containers(&images);
        let pass = |history: &mut UsageHistory, second: i64| {
            black_box(detect(history, black_box(&images), black_box(&containers), AlwaysUsed::default(), at(second)));
        };
        let mut history = UsageHistory::default();
        report(&format!("the first detect of {count} images"), || pass(&mut history, NOW));
        report(&format!("another detect of {count} images"), || pass(&mut history, NOW + 300));
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("first", count), |b| {
            b.iter_custom(|rounds| {
                let mut histories: Vec<_> = (0..rounds).map(|_| UsageHistory::default()).collect();
                let mut next = histories.iter_mut();
                timed(rounds, || pass(next.next().unwrap(), NOW))
            });
        });
        group.bench_function(BenchmarkId::new("again", count), |b| {
            b.iter_custom(|rounds| timed(rounds, || pass(&mut history, NOW + 300)));
        });
    }
    group.finish();
}

/// Layers of an image in an order of their own, as a store numbers them.
fn layers_of(number: usize) -> Vec<u32> {
    let number = u32::try_from(number).unwrap();
    let (group, first) = (number / GROUP, number / GROUP * (SHARED + GROUP * (LAYERS - SHARED)));
    let own = first + SHARED + (number - group * GROUP) * (LAYERS - SHARED);
    (first..first + SHARED).chain(own..own + LAYERS - SHARED).collect()
}

fn selecting(c: &mut Criterion) {
    let mut group = c.benchmark_group("select half");
    group.sample_size(10);
    for count in SIZES {
        let images = images(count);
        let mut history = UsageHistory::default();
        detect(&mut history, &images, &[], AlwaysUsed::default(), at(NOW));
        let keys: Vec<_> = images.iter().map(|image| key(&image.id, "").into_owned()).collect();
        for (number, key) in keys.iter().enumerate() {
            let mut record = history.get(key, "").unwrap().clone();
            record.last_used = Some(at(NOW - i64::try_from(mix(number) % 10_000_000).unwrap()));
            history.insert(key.as_str(), record);
        }
        let layers: Vec<Vec<u32>> = (0..count).map(layers_of).collect();
        let sizes: Vec<u64> = (0..count * 6).map(|layer| mix(layer) % 200_000_000).collect();
        let rules = Rules { min_age: Duration::from_secs(120), protect_unused: Duration::ZERO };
        let inventory = |known: bool| {
            let item = |number: usize| {
                let image = &images[number];
                let record = history.get(&image.id, "").unwrap();
                Item {
                    id: &image.id,
                    runtime_handler: "",
                    first_detected: record.first_detected,
                    last_used: record.last_used,
                    protected_until: None,
                    must_stay: None,
                    weight: 1.0,
                    own_bytes: if known { 5000 } else { image.size },
                    layers: if known { &layers[number] } else { &[] },
                }
            };
            Inventory { items: (0..count).map(item).collect(), layers: if known { &sizes } else { &[] } }
        };
        for (name, known) in [("layers not known", false), ("layers known", true)] {
            let all = select(&inventory(known), &rules, Goal::AllUnused, at(NOW + 1000)).frees;
            let half = || {
                black_box(select(black_box(&inventory(known)), &rules, Goal::Free(all / 2), at(NOW + 1000)));
            };
            report(&format!("select half of {count} images {name}"), half);
            group.throughput(Throughput::Elements(count as u64));
            group.bench_function(BenchmarkId::new(name, count), |b| b.iter_custom(|rounds| timed(rounds, half)));
        }
    }
    group.finish();
}

criterion_group!(benches, detecting, selecting);
criterion_main!(benches);
