//! Containers of all three kinds: names, images, ports, mounts, restart policies. Called by [`super::validate`].

use std::collections::BTreeSet;

use manifest::{FieldErrors, FieldPath};

use super::names::UniqueNames;
use super::names::{label, needed, port, port_name, relative_path, report};
use super::{probes, resources, security, variables};
use crate::pod::{
    Container, ContainerKind, EphemeralContainer, MountPropagation, Pod, PodSpec, Protocol, RecursiveReadOnly,
    RestartPolicy, VolumeMount, Word as _,
};

/// The most restart rules, and the most exit codes of one.
const RULES: usize = 20;
const EXIT_CODES: usize = 255;

/// Validates all containers, which share one namespace of names.
pub(super) fn containers(pod: &Pod, path: &FieldPath, errors: &mut FieldErrors) {
    let spec = &pod.spec;
    let mut seen = UniqueNames::default();
    if spec.containers.is_empty() {
        errors.required(path.child("containers"), "");
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let path = path.child("containers").index(index);
        seen.check(errors, path.child("name"), &container.name);
        one(pod, ContainerKind::Normal, container, &path, errors);
    }
    for (index, container) in spec.init_containers.iter().enumerate() {
        let path = path.child("initContainers").index(index);
        seen.check(errors, path.child("name"), &container.name);
        one(pod, ContainerKind::Init, container, &path, errors);
    }
    for (index, ephemeral) in spec.ephemeral_containers.iter().enumerate() {
        let path = path.child("ephemeralContainers").index(index);
        seen.check(errors, path.child("name"), &ephemeral.container.name);
        one(pod, ContainerKind::Ephemeral, &ephemeral.container, &path, errors);
        only_ephemeral(spec, ephemeral, &path, errors);
    }
    host_ports(spec, path, errors);
}

fn one(pod: &Pod, kind: ContainerKind, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    needed(errors, path.child("name"), &container.name, label);
    if container.image.is_empty() {
        errors.required(path.child("image"), "");
    } else if container.image.trim() != container.image {
        errors.invalid(path.child("image"), &container.image, "must not have leading or trailing whitespace");
    }
    ports(pod, container, &path.child("ports"), errors);
    variables::variables(pod, container, path, errors);
    mounts(&pod.spec, container, &path.child("volumeMounts"), errors);
    resources::resources(&container.resources, &path.child("resources"), errors);
    security::container(container, path, errors);
    probes::probes(kind, container, path, errors);
    restart(kind, container, path, errors);
    if container.stdin_once && !container.stdin {
        errors.invalid_plain(path.child("stdinOnce"), true, "may only be set when stdin is true");
    }
}

fn ports(pod: &Pod, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = UniqueNames::default();
    for (index, each) in container.ports.iter().enumerate() {
        let path = path.index(index);
        if let Some(name) = each.name.as_ref().filter(|name| !name.is_empty()) {
            report(errors, &path.child("name"), name, port_name(name));
            seen.check(errors, path.child("name"), name);
        }
        if each.container_port == 0 {
            errors.required(path.child("containerPort"), "");
        } else if let Some(detail) = port(each.container_port).pop() {
            errors.invalid_plain(path.child("containerPort"), each.container_port, detail);
        }
        if let Some(host_port) = each.host_port.filter(|port| *port != 0) {
            if let Some(detail) = port(host_port).pop() {
                errors.invalid_plain(path.child("hostPort"), host_port, detail);
            } else if pod.spec.host_network && host_port != each.container_port {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid_plain(path.child("hostPort"), host_port, detail);
            }
        }
        if let Some(ip) = each.host_ip.as_ref().filter(|ip| !ip.is_empty()) {
            report(errors, &path.child("hostIP"), ip, super::names::ip(ip));
        }
    }
}

/// Validates that each host port is used once.
fn host_ports(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let normal = spec.containers.iter().enumerate().map(|(index, c)| (ContainerKind::Normal, index, c));
    // Sidecars run at the same time as the normal containers; other init containers have ended before those start.
    let sidecars = spec.init_containers.iter().enumerate().filter(|(_, c)| c.is_sidecar());
    let sidecars = sidecars.map(|(index, c)| (ContainerKind::Init, index, c));
    let mut taken: BTreeSet<(Protocol, &str, i32)> = BTreeSet::new();
    for (kind, at, container) in normal.chain(sidecars) {
        for (index, each) in container.ports.iter().enumerate() {
            let Some(port) = each.host_port.filter(|port| *port != 0) else { continue };
            let (protocol, ip) = (Protocol::of_port(each), each.host_ip.as_deref().unwrap_or_default());
            if !taken.insert((protocol, ip, port)) {
                let path = path.child(kind.field()).index(at).child("ports").index(index).child("hostPort");
                errors.duplicate(path, format!("{protocol}/{ip}/{port}"));
            }
        }
    }
}

fn mounts(spec: &PodSpec, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let mut places = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let path = path.index(index);
        if mount.name.is_empty() {
            errors.required(path.child("name"), "");
        } else if !spec.volumes.iter().any(|volume| volume.name == mount.name) {
            errors.not_found(path.child("name"), &mount.name);
        }
        if mount.mount_path.is_empty() {
            errors.required(path.child("mountPath"), "");
        } else {
            if mount.mount_path.contains(':') {
                errors.invalid(path.child("mountPath"), &mount.mount_path, "must not contain ':'");
            }
            if !places.insert(mount.mount_path.as_str()) {
                errors.invalid(path.child("mountPath"), &mount.mount_path, "must be unique");
            }
        }
        how(container, mount, &path, errors);
    }
}

fn how(container: &Container, mount: &VolumeMount, path: &FieldPath, errors: &mut FieldErrors) {
    let sub_path = mount.sub_path.as_deref().unwrap_or_default();
    let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
    report(errors, &path.child("subPath"), sub_path, relative_path(sub_path));
    report(errors, &path.child("subPathExpr"), expression, relative_path(expression));
    if !sub_path.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(path.child("subPathExpr"), expression, detail);
    }
    let privileged = container.security_context.as_ref().is_some_and(|rights| rights.privileged == Some(true));
    let propagation = MountPropagation::of(mount.mount_propagation.as_deref());
    if propagation == Some(MountPropagation::Bidirectional) && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(path.child("mountPropagation"), detail);
    }
    let recursive = RecursiveReadOnly::of(mount.recursive_read_only.as_deref());
    if recursive.is_some_and(|recursive| recursive != RecursiveReadOnly::Disabled) {
        let path = path.child("recursiveReadOnly");
        if mount.read_only != Some(true) {
            errors.forbidden(path.clone(), "may only be specified when readOnly is true");
        }
        if propagation.is_some_and(|passes| passes != MountPropagation::None) {
            errors.forbidden(path, "may only be specified when mountPropagation is None or not specified");
        }
    }
}

fn restart(kind: ContainerKind, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let rules = &container.restart_policy_rules;
    let rules_path = path.child("restartPolicyRules");
    if kind == ContainerKind::Ephemeral {
        if container.restart_policy.is_some() {
            errors.forbidden(path.child("restartPolicy"), "cannot be set for an Ephemeral Container");
        }
        if !rules.is_empty() {
            errors.forbidden(rules_path, "cannot be set for an Ephemeral Container");
        }
        return;
    }
    if !rules.is_empty() && container.restart_policy.is_none() {
        errors.required(path.child("restartPolicy"), "must specify restartPolicy when restart rules are used");
    }
    if !rules.is_empty() && kind == ContainerKind::Init && container.restart_policy == Some(RestartPolicy::Always) {
        let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
        errors.forbidden(rules_path.clone(), detail);
    }
    if rules.len() > RULES {
        errors.invalid_plain(rules_path.clone(), rules.len(), format!("must have at most {RULES} items"));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = rules_path.index(index);
        if rule.action.is_empty() {
            errors.required(path.child("action"), "");
        }
        let (codes, given) = (path.child("exitCodes"), rule.exit_codes.clone().unwrap_or_default());
        let values = given.values.unwrap_or_default();
        if given.operator.is_empty() {
            errors.required(codes.child("operator"), "");
        }
        if values.is_empty() {
            errors.invalid_plain(codes.child("values"), "an empty list", "at least one value must be specified");
        } else if values.len() > EXIT_CODES {
            let detail = format!("must have at most {EXIT_CODES} items");
            errors.invalid_plain(codes.child("values"), values.len(), detail);
        }
        let mut seen = BTreeSet::new();
        for (index, code) in values.iter().enumerate() {
            if !seen.insert(code) {
                errors.duplicate(codes.child("values").index(index), code.to_string());
            }
        }
    }
}

/// Checks fields that an ephemeral container cannot have, and the container that it targets.
fn only_ephemeral(spec: &PodSpec, ephemeral: &EphemeralContainer, path: &FieldPath, errors: &mut FieldErrors) {
    let container = &ephemeral.container;
    let resources = &container.resources;
    let set = [
        ("ports", !container.ports.is_empty()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle != Default::default()),
        ("resources", !resources.limits.is_empty() || !resources.requests.is_empty()),
    ];
    for (field, _) in set.into_iter().filter(|(_, set)| *set) {
        errors.forbidden(path.child(field), "cannot be set for an Ephemeral Container");
    }
    let target = &ephemeral.target_container_name;
    let mut others = spec.containers.iter().chain(&spec.init_containers);
    if !target.is_empty() && !others.any(|other| other.name == *target) {
        errors.not_found(path.child("targetContainerName"), target);
    }
}
