//! Pods on a CRI runtime: the model of a pod, what a pod needs done (pure), and the hands that do it over
//! `cri_api::RuntimeService`. Images are asked of `image_manager` and nobody else, containers are asked over the network
//! through `probe`. It knows no gRPC, no embedded engine and no credentials; the binary calls it.

mod actions;
mod admission;
pub mod config;
pub mod container_gc;
mod defaults;
mod documents;
mod environment;
mod events;
pub mod eviction;
mod field;
pub mod handlers;
mod hash;
mod identity;
pub mod labels;
pub mod logs;
pub mod pod;
pub mod probes;
mod qos;
mod restart_backoff;
pub mod sources;
mod status;
pub mod sync;
mod termination;
mod validate;
mod volume_files;
pub mod volumes;
pub mod workers;

pub use actions::{
    ContainerKill, ContainerReset, ContainerStart, KillReason, LeaveReason, PodActions, PodReason, ProbeResult,
    ProbeResults, Probed, RestartVerdict, StartReason, compute_pod_actions, restart_verdict,
};
pub use admission::NodeCapacity;
pub use defaults::set_defaults;
pub use documents::{Document, DocumentContent, DocumentKind, Documents, TokenKey};
pub use environment::{
    Environment, EnvironmentError, SkippedKeys, Surroundings, expand, resolve as resolve_environment,
};
pub use events::PodEvent;
pub use field::{FieldError, FieldErrors, FieldPath, FieldProblem};
pub use identity::{
    CONFIG_HASH_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Origin, admit, make_static,
};
pub use qos::{QosClass, oom_score_adj, qos_class};
pub use restart_backoff::{RestartBackoff, RestartWait};
pub use status::api::{
    ContainerState, ContainerStatus, Phase, PodCondition, PodIp, PodStatus, Running, Terminated, Waiting,
};
pub use status::{ObservedContainer, ObservedPod, ObservedSandbox, PodEnd, StatusInput, pod_status};
pub use termination::{MINIMUM_GRACE_PERIOD, after_hook, grace_period, orphan_grace_period, termination_order};
pub use validate::validate;
pub use volume_files::{VolumeError, VolumeFile, VolumeFiles, volume_files};

#[cfg(test)]
mod round_trip_tests;
