//! [`ProbeKind`]: which of a container's three probes, and where a container stands in its pod.

use crate::pod::{Container, ContainerKind, Pod, Probe};

/// Which of a container's three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// All kinds in the order of evaluation: the startup probe decides whether the others run.
    pub(super) const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// Returns the name in events and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    pub(super) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// Returns the container at this index among those of its kind; ephemeral ones have no probes.
pub(super) fn container_at(pod: &Pod, (kind, index): (ContainerKind, usize)) -> Option<&Container> {
    match kind {
        ContainerKind::Init => pod.spec.init_containers.get(index),
        ContainerKind::Normal => pod.spec.containers.get(index),
        ContainerKind::Ephemeral => None,
    }
}
