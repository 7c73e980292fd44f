//! Tests of what is done about disk pressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::gc::manager::tests::{Rig, image, policy};
use crate::gc::{DiskSpace, EvictPods, EvictionCause, ReclaimContainers, Signal, Thresholds};

/// Counts how often it is asked, and cannot do everything.
#[derive(Default)]
struct Containers(AtomicUsize);

#[async_trait]
impl ReclaimContainers for Containers {
    async fn delete_all_unused_containers(&self) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err("one is stuck".to_owned())
    }
}

fn rig(available: u64, containers: &Arc<Containers>) -> Rig {
    let images = (0..8).map(|number| image(&number.to_string(), 100)).collect();
    let containers = Arc::clone(containers) as Arc<dyn ReclaimContainers>;
    Rig::changed(policy(100, 70, 0, 0), 1000, available, images, move |options| {
        options.pressure.containers = Some(containers);
        // The loop waits by it.
        options.clock = Arc::new(tokio::time::Instant::now);
    })
}

#[tokio::test]
async fn containers_go_before_images_and_images_until_the_low_mark() {
    let containers = Arc::default();
    let calm = rig(150, &containers);
    assert_eq!(calm.manager.relieve().await.expect("measured"), None);
    assert_eq!((containers.0.load(Ordering::Relaxed), calm.shelf.ids().len()), (0, 8));
    let pressed = rig(149, &containers);
    let report = pressed.manager.relieve().await.expect("enough").expect("there was reason");
    assert_eq!((containers.0.load(Ordering::Relaxed), report.removed.len()), (1, 2));
    assert_eq!(report.disk.map(|disk| disk.available), Some(349));
}

#[tokio::test]
async fn thresholds_beyond_the_low_mark_are_met() {
    let thresholds = Thresholds::parse([("imagefs.available", "50%")]).expect("a threshold");
    let images = (0..8).map(|number| image(&number.to_string(), 100)).collect();
    let rig = Rig::changed(policy(100, 70, 0, 0), 1000, 100, images, |options| {
        options.pressure.thresholds = thresholds;
    });
    let report = rig.manager.relieve().await.expect("enough").expect("there was reason");
    assert_eq!(report.disk.map(|disk| disk.available), Some(500));
}

#[tokio::test]
async fn a_root_that_is_full_elsewhere_costs_no_image() {
    let images = vec![image("0", 100)];
    let rig = Rig::changed(policy(100, 80, 0, 0), 1000, 0, images, |options| {
        options.pressure.node_directory = Some("/root-of-the-node".into());
        options.disk = Arc::new(|path| {
            let (device, available) = if path.starts_with("/root-of-the-node") { (2, 0) } else { (1, 900) };
            Ok(DiskSpace { capacity: 1000, available, device, ..DiskSpace::default() })
        });
    });
    assert_eq!(rig.manager.relieve().await.expect("measured"), None);
    assert!(rig.manager.status().await.expect("measured").has_disk_pressure());
    assert_eq!(rig.shelf.ids(), ["0"]);
}

#[tokio::test(start_paused = true)]
async fn the_loop_tells_once_and_tries_less_often_what_does_not_help() {
    let containers: Arc<Containers> = Arc::default();
    let rig = rig(100, &containers);
    for number in 0..8 {
        rig.use_image(&number.to_string());
    }
    let stop = tokio_util::sync::CancellationToken::new();
    let drive = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // At once, after 20, 40, 80, 160, 320 s, and from then on every 320 s.
        let asked = containers.0.load(Ordering::Relaxed);
        assert!((14..=18).contains(&asked), "{asked}");
        let events = rig.events();
        let told = |what: &str| events.iter().filter(|event| event.contains(what)).count();
        assert_eq!(told("Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage"), 1, "{events:?}");
        assert_eq!(told("Normal NodeHasDiskPressure"), 1);
        // The users of the images are removed: that helps, and the condition ends after the transition period.
        for number in 0..8 {
            rig.runtime.take_container(&format!("c-{number}"));
        }
        while rig.shelf.ids().len() > 6 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stop.cancel();
    };
    tokio::join!(rig.manager.relieving(&stop), drive);
    assert_eq!(rig.shelf.ids().len(), 6);
}

/// Keeps why it was asked to end pods.
#[derive(Default)]
struct Pods(base::lock::Mutex<Vec<EvictionCause>>);

#[async_trait]
impl EvictPods for Pods {
    async fn evict_one(&self, cause: &EvictionCause) -> bool {
        self.0.lock().push(*cause);
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_only_after_all_images() {
    let pods = Arc::<Pods>::default();
    let evictor = Arc::clone(&pods) as Arc<dyn EvictPods>;
    let rig = |available: u64| {
        let evictor = Arc::clone(&evictor);
        let images = (0..2).map(|number| image(&number.to_string(), 10)).collect();
        Rig::changed(policy(100, 80, 0, 0), 1000, available, images, move |options| {
            options.pressure.pods = Some(evictor);
            options.clock = Arc::new(tokio::time::Instant::now);
        })
    };
    let run = async |rig: &Rig| {
        let stop = tokio_util::sync::CancellationToken::new();
        tokio::select! {
            () = rig.manager.run(&stop) => {}
            () = tokio::time::sleep(Duration::from_secs(25)) => {}
        }
    };
    // Two images are enough.
    let enough = rig(145);
    run(&enough).await;
    assert!(pods.0.lock().is_empty(), "{:?}", pods.0.lock());
    assert!(enough.shelf.ids().len() < 2);
    // They are not: after them, a pod in each turn.
    let short = rig(100);
    run(&short).await;
    assert_eq!(short.shelf.ids().len(), 0);
    let causes = pods.0.lock().clone();
    assert!(causes.len() >= 2, "{causes:?}");
    let expected = EvictionCause {
        signal: Signal::ImageFsAvailable,
        threshold: 150,
        available: 120,
        writable_layers: true,
        logs_and_volumes: true,
    };
    assert_eq!(causes[0], expected);
}
