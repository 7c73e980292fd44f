//! Probes and hooks. Called by [`super::containers`].

use manifest::{FieldErrors, FieldPath};

use super::names::{port, port_name, report};
use crate::pod::{Container, ContainerKind, HTTPGetAction, IntOrString, LifecycleHandler, Probe};

/// Validates the probes and hooks of one container.
pub(super) fn probes(kind: ContainerKind, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let lifecycle = &container.lifecycle;
    let hooks = [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)];
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    if let Some(signal) = lifecycle.stop_signal.as_ref().filter(|signal| !signal.is_empty())
        && cri_api::Signal::from_name(signal).is_none()
    {
        let names: Vec<&str> = cri_api::Signal::all().map(cri_api::Signal::as_str).collect();
        errors.unsupported(path.child("lifecycle").child("stopSignal"), signal, &names);
    }
    // Init containers that run to their end are not probed, and their hooks are not waited for.
    let runs_on = kind != ContainerKind::Init || container.is_sidecar();
    for (field, _) in probes.iter().filter(|(_, probe)| probe.is_some() && !runs_on) {
        errors.forbidden(path.child(field), "may not be set for init containers without restartPolicy=Always");
    }
    if !runs_on && hooks.iter().any(|(_, hook)| hook.is_some()) {
        errors.forbidden(path.child("lifecycle"), "may not be set for init containers without restartPolicy=Always");
    }
    if !runs_on {
        return;
    }
    for (field, hook) in hooks {
        if let Some(hook) = hook {
            self::hook(hook, &path.child("lifecycle").child(field), errors);
        }
    }
    for (field, each) in probes {
        if let Some(each) = each {
            probe(each, field, &path.child(field), errors);
        }
    }
}

fn probe(probe: &Probe, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let set = [probe.exec.is_some(), probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.grpc.is_some()];
    one_handler(&set, path, errors);
    if let Some(exec) = &probe.exec {
        command(exec.command.as_deref(), path, errors);
    }
    if let Some(request) = &probe.http_get {
        http(request, &path.child("httpGet"), errors);
    }
    if let Some(tcp) = &probe.tcp_socket {
        number_or_name(&tcp.port, &path.child("tcpSocket").child("port"), errors);
    }
    if let Some(grpc) = &probe.grpc {
        number_or_name(&IntOrString::Int(grpc.port), &path.child("grpc").child("port"), errors);
    }
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, number) in numbers {
        let Some(number) = number.filter(|number| *number < 0) else { continue };
        errors.invalid_plain(path.child(name), number, "must be greater than or equal to 0");
    }
    if let Some(threshold) = probe.success_threshold.filter(|threshold| field != "readinessProbe" && *threshold > 1) {
        errors.invalid_plain(path.child("successThreshold"), threshold, "must be 1");
    }
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let path = path.child("terminationGracePeriodSeconds");
        if field == "readinessProbe" {
            errors.invalid_plain(path, seconds, "must not be set for readinessProbes");
        } else if seconds <= 0 {
            errors.invalid_plain(path, seconds, "must be greater than 0");
        }
    }
}

fn hook(hook: &LifecycleHandler, path: &FieldPath, errors: &mut FieldErrors) {
    let set = [hook.exec.is_some(), hook.http_get.is_some(), hook.tcp_socket.is_some(), hook.sleep.is_some()];
    one_handler(&set, path, errors);
    if let Some(exec) = &hook.exec {
        command(exec.command.as_deref(), path, errors);
    }
    if let Some(request) = &hook.http_get {
        http(request, &path.child("httpGet"), errors);
    }
    if hook.tcp_socket.is_some() {
        let reason = "a connection has no answer for a hook; use exec, httpGet or sleep";
        errors.not_supported(path.child("tcpSocket"), reason);
    }
    if let Some(sleep) = hook.sleep.as_ref().filter(|sleep| sleep.seconds < 0) {
        let path = path.child("sleep").child("seconds");
        errors.invalid_plain(path, sleep.seconds, "must be greater than or equal to 0");
    }
}

/// Checks that one handler is set.
fn one_handler(set: &[bool], path: &FieldPath, errors: &mut FieldErrors) {
    match set.iter().filter(|set| **set).count() {
        0 => errors.required(path.clone(), "must specify a handler type"),
        1 => {}
        _ => errors.forbidden(path.clone(), "may not specify more than 1 handler type"),
    }
}

fn command(command: Option<&[String]>, path: &FieldPath, errors: &mut FieldErrors) {
    if command.unwrap_or_default().is_empty() {
        errors.required(path.child("exec").child("command"), "");
    }
}

fn http(http: &HTTPGetAction, path: &FieldPath, errors: &mut FieldErrors) {
    if http.path.as_ref().is_none_or(String::is_empty) {
        errors.required(path.child("path"), "");
    }
    number_or_name(&http.port, &path.child("port"), errors);
    for (index, header) in http.http_headers.iter().flatten().enumerate() {
        let path = path.child("httpHeaders").index(index);
        let name = &header.name;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                          'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(path.child("name"), name, detail);
        }
        if header.value.bytes().any(|b| b == b'\r' || b == b'\n' || b == 0) {
            errors.invalid_plain(path.child("value"), "text", "must not hold line breaks or NUL");
        }
    }
}

fn number_or_name(value: &IntOrString, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        IntOrString::Int(number) => {
            if let Some(detail) = port(*number).pop() {
                errors.invalid_plain(path.clone(), number, detail);
            }
        }
        IntOrString::String(name) => report(errors, path, name, port_name(name)),
    }
}
