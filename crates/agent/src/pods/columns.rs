//! READY, STATUS and RESTARTS of a pod, by the rules of `kubectl get pods`: what stands in the way counts more than the phase.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::shape::{Container, Pod, Terminated};
use crate::age;

/// The columns of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Containers that can serve, and all that should.
    pub ready: (usize, usize),
    /// The status in one word.
    pub status: String,
    /// Number of restarts of the containers.
    pub restarts: u32,
    /// Last end of a container that `restarts` counts; `None` where no earlier run is known.
    pub last_restart: Option<Timestamp>,
}

impl Columns {
    /// `1/2`.
    pub fn ready(&self) -> String {
        format!("{}/{}", self.ready.0, self.ready.1)
    }

    /// `3 (2m ago)`.
    pub fn restarts(&self, now: Timestamp) -> String {
        match (self.restarts, self.last_restart) {
            (0, _) | (_, None) => self.restarts.to_string(),
            (count, last) => format!("{count} ({} ago)", age::since(last, now)),
        }
    }
}

/// Counts restarts.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: u32,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, count: u32, last: Option<&Terminated>) {
        self.count = self.count.saturating_add(count);
        self.last = self.last.max(last.and_then(|terminated| terminated.finished_at));
    }
}

/// Returns the columns of a pod.
pub fn columns(pod: &Pod) -> Columns {
    let status = &pod.status;
    let init: BTreeMap<&str, &Container> = pod.spec.init_containers.iter().map(|c| (c.name.as_str(), c)).collect();
    let is_sidecar = |name: &str| init.get(name).is_some_and(|container| container.restart_policy == "Always");
    let sidecars = pod.spec.init_containers.iter().filter(|container| is_sidecar(&container.name)).count();
    let all = pod.spec.containers.len() + sidecars;
    let mut word = if status.reason.is_empty() { status.phase.clone() } else { status.reason.clone() };
    let (mut of_init, mut of_sidecars, mut ready) = (Restarts::default(), Restarts::default(), 0);

    let mut initializing = false;
    for (index, container) in status.init_container_statuses.iter().enumerate() {
        let (state, last) = (&container.state, container.last_state.terminated.as_ref());
        of_init.add(container.restart_count, last);
        let sidecar = is_sidecar(&container.name);
        if sidecar {
            of_sidecars.add(container.restart_count, last);
        }
        if state.terminated.as_ref().is_some_and(|terminated| terminated.exit_code == 0) {
            continue;
        }
        if sidecar && container.started == Some(true) {
            ready += usize::from(container.ready);
            continue;
        }
        let waiting = state.waiting.as_ref().map(|waiting| waiting.reason.as_str());
        word = match (&state.terminated, waiting) {
            (Some(terminated), _) => format!("Init:{}", end(terminated)),
            (None, Some(reason)) if !reason.is_empty() && reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{index}/{}", pod.spec.init_containers.len()),
        };
        initializing = true;
        break;
    }

    let mut restarts = of_init;
    if !initializing || pod.is("Initialized") {
        restarts = of_sidecars;
        let mut running = false;
        // The first container has the last word.
        for container in status.container_statuses.iter().rev() {
            let state = &container.state;
            restarts.add(container.restart_count, container.last_state.terminated.as_ref());
            match (&state.waiting, &state.terminated) {
                (Some(waiting), _) if !waiting.reason.is_empty() => word.clone_from(&waiting.reason),
                (_, Some(terminated)) => word = end(terminated),
                _ if container.ready && state.running.is_some() => {
                    running = true;
                    ready += 1;
                }
                _ => {}
            }
        }
        if word == "Completed" && running {
            word = if pod.is("Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if pod.metadata.deletion_timestamp.is_some() && !pod.is_over() {
        word = "Terminating".to_owned();
    }
    Columns { ready: (ready, all), status: word, restarts: restarts.count, last_restart: restarts.last }
}

/// Returns the end of a container in one word.
fn end(terminated: &Terminated) -> String {
    match (terminated.reason.as_str(), terminated.signal) {
        ("", 0) => format!("ExitCode:{}", terminated.exit_code),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
