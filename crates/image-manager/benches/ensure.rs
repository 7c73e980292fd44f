//! Cost of a request for an image without the runtime: `EnsureImageExists` with the image present, and the decision
//! alone. Prints how many allocations a request makes. Run by `cargo bench -p imagelet-image-manager --bench ensure`.

#[path = "../tests/support/present.rs"]
mod present;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use credentials::{Keyring, KeyringOptions};
use criterion::{Criterion, criterion_group, criterion_main};
use imagelet_image_manager::{
    Access, EventRecorder, EventRef, Grant, ImageManager, Options, Presence, PullPolicy, PullRecords, RingRecorder,
    VerificationPolicy, decide,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

use present::{Everything, ID, IMAGE, records, request};

/// Records nothing.
struct NoRecorder;

impl EventRecorder for NoRecorder {
    fn record(&self, event: EventRef<'_>) {
        black_box(event);
    }
}

fn manager(events: Arc<dyn EventRecorder>, records: Option<PullRecords>) -> ImageManager {
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
    ImageManager::new(Arc::new(Everything), events, Options { keyring, records, ..Options::default() })
}

#[expect(clippy::print_stderr, reason = "criterion has no place for a count")]
fn bench(c: &mut Criterion, runtime: &Runtime, name: &str, manager: &ImageManager) {
    const ROUNDS: usize = 1000;
    let request = request();
    let once = async || drop(black_box(manager.ensure_image_exists(black_box(&request)).await.expect("present")));
    runtime.block_on(async {
        // Fill the ring of events and the like first: that is not part of a request's cost.
        for _ in 0..ROUNDS {
            once().await;
        }
    });
    let counted = measure(|| {
        for _ in 0..ROUNDS {
            runtime.block_on(once());
        }
    });
    let each = |count: u64| count as f64 / ROUNDS as f64;
    eprintln!("{name}: {} allocations, {} bytes per request", each(counted.count_total), each(counted.bytes_total));
    c.bench_function(name, |b| {
        b.iter_custom(|rounds| {
            runtime.block_on(async {
                let begun = cpu_time();
                for _ in 0..rounds {
                    once().await;
                }
                cpu_time() - begun
            })
        });
    });
}

/// CPU time of this thread, which does not depend on the load of the machine. The measured code never waits.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

fn ensure(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let directories = [tempfile::tempdir(), tempfile::tempdir()].map(|made| made.expect("a temporary directory"));
    // Made before the first benchmark: a directory that was only just written to is not believed from memory.
    runtime.block_on(async {
        records(&directories[0], VerificationPolicy::default()).await;
        let recorded = records(&directories[1], VerificationPolicy::AlwaysVerify).await;
        recorded.add(IMAGE, ID, None).await.expect("recorded");
    });
    let ring = || Arc::new(RingRecorder::new(256));
    bench(c, &runtime, "ensure present, no records, no recorder", &manager(Arc::new(NoRecorder), None));
    bench(c, &runtime, "ensure present, no records, ring", &manager(ring(), None));
    let kept = runtime.block_on(records(&directories[0], VerificationPolicy::default()));
    bench(c, &runtime, "ensure present, preloaded, ring", &manager(ring(), Some(kept)));
    let kept = runtime.block_on(records(&directories[1], VerificationPolicy::AlwaysVerify));
    bench(c, &runtime, "ensure present, recorded, ring", &manager(ring(), Some(kept)));
}

fn decision(c: &mut Criterion) {
    c.bench_function("decide", |b| {
        b.iter(|| {
            let presence = Presence::Present { image_ref: String::new() };
            decide(black_box(PullPolicy::IfNotPresent), presence, black_box(Access::Granted(Grant::NodeAccessible)))
        });
    });
    c.bench_function("apply_default_tag", |b| b.iter(|| oci::apply_default_tag(black_box(IMAGE))));
}

criterion_group!(benches, ensure, decision);
criterion_main!(benches);
