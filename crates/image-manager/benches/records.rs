//! Pull records: opening a directory of 10,000, and the question whether a pod may use an image, answered from memory
//! and from files. `cargo bench -p imagelet-image-manager --bench records`.
//!
//! For comparison, the kubelet's check of the same (Go, 1.36): 5 to 9 µs and 37 allocations in memory, 13 to 33 µs and
//! 83 allocations on files. This benchmark measures CPU time; the crate's tests check the number of allocations.

#![expect(clippy::unwrap_used, reason = "a bench that cannot make its directory has nothing to measure")]

use std::convert::Infallible;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use credentials::{Candidate, SecretCoordinates, Source};
use criterion::{Criterion, criterion_group, criterion_main};
use imagelet_image_manager::{Access, AccessUnverified, Grant, PullRecords, RecordsOptions};
use jiff::Timestamp;
use oci::{Digest, RegistryAuth};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

const RECORDS: usize = 10_000;
const IMAGE: &str = "registry.example.com:5000/team/service:v1.2.3";

fn image_ref(i: usize) -> String {
    Digest::sha256(i.to_string().as_bytes()).to_string()
}

fn secret(i: usize) -> Candidate {
    Candidate {
        auth: RegistryAuth::default(),
        source: Source::Secret(SecretCoordinates {
            namespace: format!("tenant-{i}"),
            name: "pull-secret".to_owned(),
            uid: format!("3d2a7cfc-3554-49b5-9fdb-{i:012}"),
            ..SecretCoordinates::default()
        }),
        hash: Digest::sha256(format!("secret {i}").as_bytes()).hex().to_owned(),
    }
}

/// A directory as a node has it that pulled 10,000 images with the secrets of two tenants each.
fn fill(directory: &Path) {
    let pulled = directory.join("pulled");
    fs::create_dir_all(&pulled).unwrap();
    for i in 0..RECORDS {
        let image_ref = image_ref(i);
        let secrets = [i % 100, i % 100 + 1].map(|tenant| {
            let hash = secret(tenant).hash;
            format!(
                "{{\"uid\":\"3d2a7cfc-3554-49b5-9fdb-{tenant:012}\",\"namespace\":\"tenant-{tenant}\",\"name\":\"pull-secret\",\"credentialHash\":\"{hash}\"}}"
            )
        });
        let text = format!(
            "{{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"lastUpdatedTime\":\"2026-01-02T03:04:05Z\",\"imageRef\":\"{image_ref}\",\"credentialMapping\":{{\"registry.example.com:5000/team/service\":{{\"kubernetesSecrets\":[{}]}}}}}}\n",
            secrets.join(",")
        );
        let name = format!("sha256-{}", Digest::sha256(image_ref.as_bytes()).hex());
        fs::write(pulled.join(name), text).unwrap();
    }
}

fn options(directory: &Path, max_records: usize) -> RecordsOptions {
    RecordsOptions { max_records, ..RecordsOptions::new(directory, Arc::new(|| Timestamp::UNIX_EPOCH)) }
}

fn benches(c: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("image_manager");
    fill(&directory);
    let runtime = Runtime::new().unwrap();
    // Makes what is missing, and lets the file system's clock go on.
    drop(runtime.block_on(PullRecords::open(options(&directory, 1))).unwrap());
    std::thread::sleep(Duration::from_millis(50));

    let mut group = c.benchmark_group("records");
    group.sample_size(20);
    group.bench_function("open 10,000", |b| {
        b.iter(|| runtime.block_on(PullRecords::open(options(&directory, RECORDS))).unwrap());
    });
    group.bench_function("open 10,000, memory for 2,000", |b| {
        b.iter(|| runtime.block_on(PullRecords::open(options(&directory, 2_000))).unwrap());
    });
    group.finish();

    let mut group = c.benchmark_group("access");
    let refs: Vec<String> = (0..RECORDS).map(image_ref).collect();
    let pods: Vec<Arc<[Candidate]>> = (0..100).map(|i| Arc::from([secret(i)])).collect();
    let stranger: Arc<[Candidate]> = Arc::from([secret(5_000)]);
    let _entered = runtime.enter();
    let ask = |records: &PullRecords, image_ref: &str, pod: &Arc<[Candidate]>| {
        let mut access = pin!(records.access(IMAGE, image_ref, async || Ok::<_, Infallible>(Arc::clone(pod))));
        // An answer from memory is ready at the first poll.
        match access.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer.unwrap(),
            Poll::Pending => runtime.block_on(access).unwrap(),
        }
    };
    // Memory for one record: every request except for the last image reads a file.
    for (name, max_records) in [("memory", RECORDS), ("files", 1)] {
        let records = runtime.block_on(PullRecords::open(options(&directory, max_records))).unwrap();
        type Question<'a> = (&'a str, &'a dyn Fn(usize) -> Access, Access);
        let questions: [Question<'_>; 3] = [
            (
                "granted by a secret",
                &|i| ask(&records, &refs[i], &pods[i % 100]),
                Access::Granted(Grant::CredentialMatches),
            ),
            (
                "refused to a stranger",
                &|i| ask(&records, &refs[i], &stranger),
                Access::MustVerify(AccessUnverified::NoMatchingCredential),
            ),
            ("never pulled", &|_| ask(&records, "sha256:none", &stranger), Access::Granted(Grant::Preloaded)),
        ];
        for (question, asked, want) in questions {
            assert_eq!(asked(7), want, "{name}: {question}");
            let mut i = 0;
            group.bench_function(format!("{name}, {question}"), |b| {
                b.iter_custom(|rounds| {
                    let begun = cpu_time();
                    for _ in 0..rounds {
                        i = (i + 1) % RECORDS;
                        black_box(asked(i));
                    }
                    cpu_time() - begun
                });
            });
        }
    }
    group.finish();
}

/// CPU time of this thread, which does not depend on the load of the machine. The measured code never waits.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

criterion_group!(all, benches);
criterion_main!(all);
