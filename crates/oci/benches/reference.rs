//! How long it takes to read an image's name: `cargo bench -p imagelet-oci --bench reference`.
//!
//! How many allocations it takes is held by the crate's tests.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use imagelet_oci::{Reference, apply_default_tag, parse_image_name, trim_tag_and_digest};

const NAMES: [(&str, &str); 4] = [
    ("short", "nginx"),
    ("tagged", "registry.k8s.io/kube-apiserver:v1.36.2"),
    ("port", "registry.example.com:5000/team/project/application:2026.07-1"),
    ("digest", "registry.k8s.io/pause:3.10@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
];

fn names(c: &mut Criterion) {
    for (what, name) in NAMES {
        let mut group = c.benchmark_group(format!("reference/{what}"));
        group.bench_function("parse_image_name", |b| b.iter(|| parse_image_name(black_box(name))));
        group.bench_function("apply_default_tag", |b| b.iter(|| apply_default_tag(black_box(name))));
        group.bench_function("trim_tag_and_digest", |b| b.iter(|| trim_tag_and_digest(black_box(name))));
        group.bench_function("parse", |b| b.iter(|| Reference::parse(black_box(name))));
        group.finish();
    }
}

criterion_group!(benches, names);
criterion_main!(benches);
