//! The trouble of one pod: why it is not as it should be, from its containers, its phase and its last events. Pure; called by
//! [`super::troubles`].

use std::time::Duration;

use image_manager::EventType;
use jiff::Timestamp;

use super::trouble::{Retry, Subject, Trouble, details, short, words};
use crate::node::events::RecordedEvent;
use crate::pods::columns::columns;
use crate::pods::shape::{ContainerStatus, Pod};

/// Seconds that a running container has until it must be ready.
const READY_TIME: i64 = 60;
/// Reasons of containers whose pod is still being started.
const STARTING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];
/// Reasons of containers whose image cannot be pulled.
const NO_IMAGE: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// A failing container.
struct Failing<'a> {
    container: &'a ContainerStatus,
    cause: String,
    retry: Retry,
    /// True if the log of the container says more than the description of the pod.
    has_log: bool,
    message: String,
}

/// Returns the trouble of a pod, or `None` if the pod is as it should be or has just been started. `waits_for_image`: an entry about an
/// image in back-off has this pod.
pub(super) fn trouble(pod: &Pod, events: &[RecordedEvent], waits_for_image: bool, now: Timestamp) -> Option<Trouble> {
    let name = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
    let made = |cause: String, retry: Retry, command: Vec<String>, messages: &[&str]| Trouble {
        key: format!("pod {}", pod.metadata.uid),
        subject: Subject::Pod(name.clone()),
        cause,
        retry,
        command,
        details: details(messages.iter().copied()),
    };
    let describe = words(&["describe", &name]);
    if pod.metadata.deletion_timestamp.is_some() || pod.status.phase == "Succeeded" {
        return None;
    }
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let failing: Vec<Failing<'_>> = statuses.filter_map(|container| failing(container, waits_for_image, now)).collect();
    if let Some(first) = failing.first() {
        let container = first.container.name.as_str();
        let command = match (first.has_log, first.container.state.waiting.is_some()) {
            (false, _) => describe,
            (true, true) => words(&["logs", "--previous", &name, "-c", container]),
            (true, false) => words(&["logs", &name, "-c", container]),
        };
        let cause = match failing.len() {
            1 => first.cause.clone(),
            more => format!("{}, and {} more", first.cause, more - 1),
        };
        let messages: Vec<&str> = failing.iter().map(|failing| failing.message.as_str()).collect();
        return Some(made(cause, first.retry, command, &messages));
    }
    if pod.status.phase == "Failed" {
        let message = pod.status.message.as_str();
        return Some(made(columns(pod).status, Retry::Never, describe, &[message]));
    }
    if waits_for_image || pod.is("Ready") {
        return None;
    }
    // A sandbox that cannot be created, or a volume that cannot be set up, is known from events only.
    let last = events.iter().find(|entry| {
        let object = &entry.event.object;
        object.name == pod.metadata.name && object.namespace == pod.metadata.namespace
    })?;
    let event = &last.event;
    (event.kind == EventType::Warning).then(|| {
        made(format!("{}: {}", event.reason, short(&event.message)), Retry::Never, describe, &[&event.message])
    })
}

/// Returns the failure of a container, or `None` if it is as it should be, or an entry about its image says the same.
fn failing(container: &ContainerStatus, waits_for_image: bool, now: Timestamp) -> Option<Failing<'_>> {
    let name = &container.name;
    let made = |cause: String, retry: Retry, has_log: bool, message: &str| {
        Some(Failing { container, cause, retry, has_log, message: message.to_owned() })
    };
    if let Some(waiting) = &container.state.waiting {
        let reason = waiting.reason.as_str();
        let is_known = STARTING.contains(&reason) || (waits_for_image && NO_IMAGE.contains(&reason));
        let Some(last) = container.last_state.terminated.as_ref().filter(|_| reason == "CrashLoopBackOff") else {
            return if is_known {
                None
            } else {
                made(format!("{reason}, container {name}"), Retry::Never, false, &waiting.message)
            };
        };
        let times = container.restart_count;
        let plural = if times == 1 { "" } else { "s" };
        let cause =
            format!("{}, container {name}, {times} restart{plural}", end(last.exit_code, last.signal, &last.reason));
        let retry = last.finished_at.zip(delay(&waiting.message)).map_or(Retry::Never, |(ended, delay)| {
            let since = u64::try_from(now.as_millisecond() - ended.as_millisecond()).unwrap_or_default();
            Retry::In(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).saturating_sub(since))
        });
        return made(cause, retry, true, &last.message);
    }
    if let Some(ended) = &container.state.terminated {
        if ended.exit_code == 0 && ended.signal == 0 {
            return None;
        }
        let cause = format!("{}, container {name}", end(ended.exit_code, ended.signal, &ended.reason));
        return made(cause, Retry::Never, true, &ended.message);
    }
    let started = container.state.running.as_ref()?.started_at?;
    if container.ready || now.as_second() - started.as_second() < READY_TIME {
        return None;
    }
    // Init containers run until they end, and are ready then.
    match container.started {
        Some(false) => made(format!("startup probe fails, container {name}"), Retry::Never, false, ""),
        _ => made(format!("not ready, container {name}"), Retry::Never, false, ""),
    }
}

/// Returns the end of a container in a few words.
fn end(exit_code: i32, signal: i32, reason: &str) -> String {
    match (reason, signal) {
        ("" | "Error" | "Completed", 0) => format!("exited with code {exit_code}"),
        ("" | "Error", signal) => format!("killed by signal {signal}"),
        (reason, _) => format!("{reason}, code {exit_code}"),
    }
}

/// Returns the delay in a message such as `back-off 2m40s restarting failed container=a pod=p`.
fn delay(message: &str) -> Option<Duration> {
    base::GoDuration::parse_unsigned(message.strip_prefix("back-off ")?.split(' ').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_restarts_are_read() {
        let cases = [
            ("back-off 10s restarting failed container=a pod=b", Some(10)),
            ("back-off 5m0s restarting failed container=a pod=b", Some(300)),
            ("back-off 1h0m1s restarting", Some(3601)),
            ("back-off 1.5s restarting", Some(1)),
            ("back-off 99999999999999999999s restarting", None),
            ("back-off 7 restarting", None),
            ("something else", None),
        ];
        for (message, want) in cases {
            assert_eq!(delay(message).map(|delay| delay.as_secs()), want, "{message}");
        }
    }
}
