//! Duration of a look-up among 1, 1,000 and 10,000 entries: `cargo bench -p imagelet-credentials --bench keyring`. The
//! kubelet compares every entry: 5 µs for ten of them, 5 ms for 10,000.
//!
//! The crate's tests check the number of allocations.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use imagelet_credentials::{Index, Keyring, KeyringOptions, NodeFiles, PathMatch, PullSecret, Requester};
use oci::{Reference, Secret};

const SIZES: [usize; 3] = [1, 1_000, 10_000];

fn index(size: usize, location: impl Fn(usize) -> String) -> Index<usize> {
    let mut index = Index::new(PathMatch::Segments);
    for at in 0..size {
        index.insert(&location(at), at).expect("is a location");
    }
    index
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    for size in SIZES {
        let last = size - 1;
        let hosts = index(size, |at| format!("registry-{at}.example.com"));
        let paths = index(size, |at| format!("registry.example.com/team-{at}"));
        let globs = index(size, |at| format!("*.dkr.ecr.region-{at}.amazonaws.com"));
        let prefixes = index(size, |at| format!("team-{at}-*.example.com"));
        let cases = [
            ("hit", &hosts, format!("registry-{last}.example.com/team/app"), 1),
            ("miss", &hosts, "elsewhere.example.com/team/app".to_owned(), 0),
            ("path", &paths, format!("registry.example.com/team-{last}/app"), 1),
            ("path miss", &paths, "registry.example.com/other/app".to_owned(), 0),
            ("glob", &globs, format!("1234.dkr.ecr.region-{last}.amazonaws.com/app"), 1),
            ("glob miss", &globs, "1234.dkr.ecr.elsewhere.amazonaws.com/app".to_owned(), 0),
            ("glob by prefix", &prefixes, format!("team-{last}-x.example.com/app"), 1),
        ];
        for (name, index, image, found) in cases {
            assert_eq!(index.lookup(&image).len(), found, "{name}: {image}");
            group.bench_function(BenchmarkId::new(name, size), |b| b.iter(|| index.lookup(black_box(&image)).len()));
        }
    }
    group.finish();
}

fn config(size: usize) -> String {
    let entries: Vec<String> = (0..size)
        .map(|at| format!(r#""registry-{at}.example.com": {{"username": "user-{at}", "password": "password-{at}"}}"#))
        .collect();
    format!(r#"{{"auths": {{{}}}}}"#, entries.join(","))
}

fn keyrings(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut group = c.benchmark_group("keyring");
    for size in SIZES {
        let name = format!("registry-{}.example.com/team/app:1", size - 1);
        let image = Reference::parse(&name).expect("a name");
        let secret = PullSecret {
            namespace: "shop".into(),
            name: "pull".into(),
            kind: "kubernetes.io/dockerconfigjson".into(),
            data: [(".dockerconfigjson".to_owned(), Secret::new(config(size)))].into(),
            ..PullSecret::default()
        };
        let pod = Requester { secrets: vec![secret], ..Requester::default() };
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("config.json"), config(size)).expect("written");
        let node_files = NodeFiles { search: vec![dir.path().to_owned()], ..NodeFiles::default() };
        let without = Keyring::new(KeyringOptions::default());
        let with = Keyring::new(KeyringOptions { node_files, ..KeyringOptions::default() });
        let nobody = Requester::default();
        let cases = [("pull secret", &without, &pod), ("node file", &with, &nobody), ("both", &with, &pod)];
        for (name, keyring, pod) in cases {
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| {
                    runtime.block_on(keyring.candidates(black_box(&image), pod)).map(|found| found.candidates.len())
                });
            });
        }
        group.bench_function(BenchmarkId::new("secrets only", size), |b| {
            b.iter(|| without.secrets_only(black_box(&image), &pod).map(|found| found.candidates.len()));
        });
        group.bench_function(BenchmarkId::new("fingerprint", size), |b| {
            b.iter(|| with.fingerprint(black_box(&name), &pod));
        });
    }
    group.finish();
}

criterion_group!(benches, lookups, keyrings);
criterion_main!(benches);
