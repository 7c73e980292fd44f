//! Rights of pods and containers. Called by [`super::validate`] and [`super::containers`].

use manifest::{FieldErrors, FieldPath};

use super::names::UniqueNames;
use super::names::{relative_path, report};
use crate::pod::{Container, PodSpec, ProcMount, ProfileKind, Sysctl, Word as _};

/// Parameters of the kernel that belong to a namespace: these begin with one, or are one.
const OF_A_NAMESPACE: &[(&str, SysctlNamespace)] = &[
    ("kernel.shm", SysctlNamespace::Ipc),
    ("kernel.msg", SysctlNamespace::Ipc),
    ("kernel.sem", SysctlNamespace::Ipc),
    ("fs.mqueue.", SysctlNamespace::Ipc),
    ("net.", SysctlNamespace::Network),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SysctlNamespace {
    Ipc,
    Network,
}

/// Validates the security context of the pod.
pub(super) fn pod(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let rights = &spec.security_context;
    let ids = [("runAsUser", rights.run_as_user), ("runAsGroup", rights.run_as_group), ("fsGroup", rights.fs_group)];
    for (field, value) in ids {
        id(value, &path.child(field), errors);
    }
    for (index, group) in rights.supplemental_groups.iter().flatten().enumerate() {
        id(Some(*group), &path.child("supplementalGroups").index(index), errors);
    }
    if let Some(seccomp) = &rights.seccomp_profile {
        let name = seccomp.localhost_profile.as_deref();
        profile(&seccomp.type_, name, "seccomp", &path.child("seccompProfile"), errors);
    }
    if let Some(app_armor) = &rights.app_armor_profile {
        let name = app_armor.localhost_profile.as_deref();
        profile(&app_armor.type_, name, "AppArmor", &path.child("appArmorProfile"), errors);
    }
    let mut seen = UniqueNames::default();
    for (index, each) in rights.sysctls.iter().flatten().enumerate() {
        let path = path.child("sysctls").index(index).child("name");
        seen.check(errors, path.clone(), &each.name);
        sysctl(spec, each, path, errors);
    }
}

fn sysctl(spec: &PodSpec, Sysctl { name, .. }: &Sysctl, path: FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if name.len() > 253 || !name.split(['.', '/']).all(part) {
        let detail = "must have at most 253 characters and match regex \
                      ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
        errors.invalid(path, name, detail);
        return;
    }
    let dotted = name.replace('/', ".");
    match OF_A_NAMESPACE.iter().find(|(prefix, _)| dotted.starts_with(prefix)).map(|(_, space)| *space) {
        None => errors.not_supported(path, format!("{name} is of the whole node, not of a pod's namespaces")),
        Some(SysctlNamespace::Network) if spec.host_network => {
            errors.invalid(path, name, "may not be set when the pod has the network of the node");
        }
        Some(SysctlNamespace::Ipc) if spec.host_ipc => {
            errors.invalid(path, name, "may not be set when the pod has the IPC namespace of the node");
        }
        Some(_) => {}
    }
}

/// Validates the security context of a container.
pub(super) fn container(container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(rights) = &container.security_context else { return };
    let path = path.child("securityContext");
    id(rights.run_as_user, &path.child("runAsUser"), errors);
    id(rights.run_as_group, &path.child("runAsGroup"), errors);
    if let Some(seccomp) = &rights.seccomp_profile {
        let name = seccomp.localhost_profile.as_deref();
        profile(&seccomp.type_, name, "seccomp", &path.child("seccompProfile"), errors);
    }
    if let Some(app_armor) = &rights.app_armor_profile {
        let name = app_armor.localhost_profile.as_deref();
        profile(&app_armor.type_, name, "AppArmor", &path.child("appArmorProfile"), errors);
    }
    if ProcMount::of(rights.proc_mount.as_deref()) == Some(ProcMount::Unmasked) {
        errors.not_supported(path.child("procMount"), "it needs a user namespace, which is not made on this node");
    }
    let gains = |capability: &str| {
        let added = rights.capabilities.iter().flat_map(|capabilities| &capabilities.add).flatten();
        added.into_iter().any(|name| name.trim_start_matches("CAP_") == capability)
    };
    if rights.allow_privilege_escalation == Some(false) {
        let path = path.child("allowPrivilegeEscalation");
        if rights.privileged == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid_plain(path.clone(), false, detail);
        }
        if gains("SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid_plain(path, false, detail);
        }
    }
}

fn id(value: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(value) = value.filter(|value| !(0..=i64::from(i32::MAX)).contains(value)) {
        errors.invalid_plain(path.clone(), value, format!("must be between 0 and {}, inclusive", i32::MAX));
    }
}

fn profile(kind: &str, name: Option<&str>, what: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let local = path.child("localhostProfile");
    match (ProfileKind::of(Some(kind)), name) {
        (None, _) => errors.required(path.child("type"), ""),
        (Some(ProfileKind::Localhost), None | Some("")) => {
            errors.required(local, format!("must be set when {what} type is Localhost"));
        }
        (Some(ProfileKind::Localhost), Some(name)) => {
            report(errors, &local, name, relative_path(name));
        }
        (Some(_), Some(name)) => {
            errors.invalid(local, name, format!("can only be set when {what} type is Localhost"));
        }
        (Some(_), None) => {}
    }
}
