//! Builds the options of collection from the configuration. Decides nothing. Called by [`App`](crate::app::App) and by [`wiring::node`](crate::wiring::node).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::node::machine::container_links;
use image_manager::ObjectRef;
use image_manager::gc::{GcOptions, GcPolicy, PressureOptions, measure};
use jiff::SignedDuration;
use kuberuntime::container_gc::{ContainerGcOptions, ContainerGcPolicy, LogDirectories};

use crate::config::{Config, Durability, eviction, keep};

/// Time that the file system may take to show the space that a runtime's removal has freed.
const SETTLE: Duration = Duration::from_secs(5);

/// Returns the directory of the state. Images of the embedded store and of each endpoint have a directory of their own, since listing
/// images drops the state of those that are not in the list.
fn directory(root: &Path, endpoint: &str) -> PathBuf {
    let directory = root.join("image_gc");
    match endpoint {
        "" => directory,
        endpoint => directory.join("endpoints").join(endpoint.replace('%', "%25").replace('/', "%2F")),
    }
}

/// Returns the options of container collection, with the kubelet's defaults: one ended instance of each container stays.
pub(crate) fn of_containers(config: &Config) -> ContainerGcOptions {
    ContainerGcOptions {
        policy: ContainerGcPolicy::default(),
        logs: Some(LogDirectories { pods: config.pod_logs.clone(), links: container_links(&config.pod_logs) }),
        node: ObjectRef { name: config.pods.node_name(), ..ObjectRef::default() },
        ..ContainerGcOptions::new(Arc::new(jiff::Timestamp::now))
    }
}

/// Returns the options of collecting the images behind `endpoint`; empty: the embedded store.
pub(crate) fn of_images(config: &Config, endpoint: &str) -> GcOptions {
    let gc = &config.gc;
    // Validated to be numbers of 32 bits.
    let number = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
    let age = |age: SignedDuration| if age.is_negative() { Duration::ZERO } else { age.unsigned_abs() };
    GcOptions {
        policy: GcPolicy {
            high_threshold_percent: number(gc.high),
            low_threshold_percent: number(gc.low),
            min_age: age(gc.min_age),
            max_age: age(gc.max_age),
        },
        keep: keep::rules(&gc.keep),
        sandbox_image: (!gc.sandbox_image.is_empty()).then(|| gc.sandbox_image.as_str().into()),
        directory: Some(directory(&config.root, endpoint)),
        durable: config.engine.durability == Durability::Full,
        settle: SETTLE,
        node: ObjectRef { name: config.pods.node_name(), ..ObjectRef::default() },
        pressure: PressureOptions {
            thresholds: eviction::thresholds(&config.eviction),
            transition: config.eviction.transition,
            node_directory: Some(config.root.clone()),
            ..PressureOptions::default()
        },
        node_status_max_images: number(config.status_max_images),
        ..GcOptions::new(Arc::new(jiff::Timestamp::now), Arc::new(measure))
    }
}
