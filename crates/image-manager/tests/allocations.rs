//! Number of allocations of a request for a present image, and the size of its future. The kubelet takes 22, and 37 more
//! with its pull manager. In a program of its own, because it counts every allocation.

#[path = "support/present.rs"]
mod present;

use std::sync::Arc;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use credentials::{Keyring, KeyringOptions};
use cri_api::{Container, ContainerMetadata, Image};
use imagelet_image_manager::gc::{AlwaysUsed, UsageHistory, detect};
use imagelet_image_manager::{ImageManager, Options, PullRecords, RingRecorder, VerificationPolicy};
use oci::Digest;

use present::{Everything, ID, IMAGE, records, request};

#[test]
fn a_request_for_what_is_here_is_made_of_little() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let request = request();
    let of_requests = |case: &str, records: Option<PullRecords>| {
        let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
        let options = Options { keyring, records, ..Options::default() };
        let manager = ImageManager::new(Arc::new(Everything), Arc::new(RingRecorder::new(4)), options);
        let room = size_of_val(&manager.ensure_image_exists(&request));
        assert!(room <= 1024, "{case}: a request that waits holds {room} bytes");
        let once = || runtime.block_on(manager.ensure_image_exists(&request)).map(drop).expect("present");
        // Until the ring is full it grows.
        (0..8).for_each(|_| once());
        measure(|| (0..100).for_each(|_| once())).count_total
    };
    // The requested name, the call of the service and its answer, the message.
    assert_eq!(of_requests("no records", None), 400);
    for (case, policy, recorded) in
        [("preloaded", VerificationPolicy::default(), false), ("recorded", VerificationPolicy::AlwaysVerify, true)]
    {
        let directory = tempfile::tempdir().expect("a temporary directory");
        if recorded {
            let records = runtime.block_on(records(&directory, policy.clone()));
            runtime.block_on(records.add(IMAGE, ID, None)).expect("recorded");
        }
        // A directory that was written to within the same tick of the clock is not believed from memory.
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut count = u64::MAX;
        while count > 400 && Instant::now() < deadline {
            count = of_requests(case, Some(runtime.block_on(records(&directory, policy.clone()))));
        }
        assert_eq!(count, 400, "{case}");
    }
}

/// The kubelet allocates 3.1 MB to inspect 1,000 images and 10,000 containers, and 30 MB for ten times as many: here the first
/// pass takes a tenth at most, and each later one a hundredth.
#[test]
fn a_pass_over_a_node_allocates_little() {
    let digest = |number: usize| Digest::sha256(number.to_string().as_bytes()).to_string();
    for (count, most) in [(1_000, 310_000), (10_000, 3_000_000)] {
        let image = |number| Image { id: digest(number), size: 1, ..Image::default() };
        let images: Vec<Image> = (0..count).map(image).collect();
        let container = |number: usize| {
            let labels = [
                ("io.kubernetes.pod.namespace".to_owned(), "team".to_owned()),
                ("io.kubernetes.pod.name".to_owned(), format!("service-{number}-7d4b9c")),
            ];
            Container {
                id: digest(number + 1_000_000),
                metadata: ContainerMetadata { name: "main".into(), attempt: 0 },
                image_id: images[number % count].id.clone(),
                labels: labels.into(),
                ..Container::default()
            }
        };
        let containers: Vec<Container> = (0..count * 10).map(container).collect();
        let mut history = UsageHistory::default();
        let mut look = |second: i64| {
            let now = jiff::Timestamp::from_second(second).expect("in range");
            measure(|| drop(detect(&mut history, &images, &containers, AlwaysUsed::default(), now)))
        };
        let first = look(1_800_000_000);
        assert!(first.bytes_total <= most, "{count}: {first:?}");
        let again = look(1_800_000_300);
        assert!(again.bytes_total <= most / 10 && again.count_total <= 16, "{count}: {again:?}");
    }
}
