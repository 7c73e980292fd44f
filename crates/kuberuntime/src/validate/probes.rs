//! Probes and hooks. Called by [`super::containers`].

use super::names::{port, port_name, report};
use manifest::{FieldErrors, FieldPath};
use crate::pod::{Container, ContainerKind, Handler, IntOrText, Probe};

/// Use of a handler, which decides about its allowed forms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandlerUse {
    Probe,
    Hook,
}

/// The probes and hooks of one container.
pub(super) fn probes(kind: ContainerKind, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let lifecycle = &container.lifecycle;
    let hooks = [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)];
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    if !lifecycle.stop_signal.is_empty() && cri_api::Signal::from_name(&lifecycle.stop_signal).is_none() {
        let names: Vec<&str> = cri_api::Signal::all().map(cri_api::Signal::as_str).collect();
        errors.unsupported(path.child("lifecycle").child("stopSignal"), &lifecycle.stop_signal, &names);
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
            handler(hook, HandlerUse::Hook, &path.child("lifecycle").child(field), errors);
        }
    }
    for (field, each) in probes {
        if let Some(each) = each {
            probe(each, field, &path.child(field), errors);
        }
    }
}

fn probe(probe: &Probe, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    handler(&probe.handler, HandlerUse::Probe, path, errors);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number < 0) {
        errors.invalid_plain(path.child(name), number, "must be greater than or equal to 0");
    }
    if field != "readinessProbe" && probe.success_threshold > 1 {
        errors.invalid_plain(path.child("successThreshold"), probe.success_threshold, "must be 1");
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

fn handler(handler: &Handler, used: HandlerUse, path: &FieldPath, errors: &mut FieldErrors) {
    match handler.parts() {
        0 => errors.required(path.clone(), "must specify a handler type"),
        1 => {}
        _ => errors.forbidden(path.clone(), "may not specify more than 1 handler type"),
    }
    if let Some(exec) = &handler.exec
        && exec.command.is_empty()
    {
        errors.required(path.child("exec").child("command"), "");
    }
    if let Some(http) = &handler.http_get {
        let path = path.child("httpGet");
        if http.path.is_empty() {
            errors.required(path.child("path"), "");
        }
        number_or_name(&http.port, &path.child("port"), errors);
        for (index, header) in http.http_headers.iter().enumerate() {
            let name = &header.name;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                              'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                errors.invalid(path.child("httpHeaders").index(index).child("name"), name, detail);
            }
            if header.value.bytes().any(|b| b == b'\r' || b == b'\n' || b == 0) {
                errors.invalid_plain(
                    path.child("httpHeaders").index(index).child("value"),
                    "text",
                    "must not hold line breaks or NUL",
                );
            }
        }
    }
    if let Some(tcp) = &handler.tcp_socket {
        let path = path.child("tcpSocket");
        match used {
            HandlerUse::Probe => number_or_name(&tcp.port, &path.child("port"), errors),
            HandlerUse::Hook => {
                errors.not_supported(path, "a connection tells nothing to a hook; use exec, httpGet or sleep")
            }
        }
    }
    if let Some(grpc) = &handler.grpc {
        match used {
            HandlerUse::Probe => number_or_name(&IntOrText::Int(grpc.port), &path.child("grpc").child("port"), errors),
            HandlerUse::Hook => errors.forbidden(path.child("grpc"), "is for probes only"),
        }
    }
    if let Some(sleep) = &handler.sleep {
        let path = path.child("sleep");
        match used {
            HandlerUse::Probe => errors.forbidden(path, "is for hooks only"),
            HandlerUse::Hook if sleep.seconds < 0 => {
                errors.invalid_plain(path.child("seconds"), sleep.seconds, "must be greater than or equal to 0");
            }
            HandlerUse::Hook => {}
        }
    }
}

fn number_or_name(value: &IntOrText, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        IntOrText::Int(number) => {
            if let Some(detail) = port(*number).pop() {
                errors.invalid_plain(path.clone(), number, detail);
            }
        }
        IntOrText::Text(name) => report(errors, path, name, port_name(name)),
    }
}
