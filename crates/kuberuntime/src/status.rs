//! What is known of a running pod: as the runtime shows it ([`ObservedPod`]), and as Kubernetes would tell it
//! ([`PodStatus`]). Pure: runtime, clock and probes are asked by others.

mod observed;

pub use observed::{ObservedContainer, ObservedPod, ObservedSandbox};
