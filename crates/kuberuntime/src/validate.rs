//! [`validate`]: everything that is wrong with a pod, with its path and in Kubernetes' words, not only the first thing. It
//! takes a pod whose defaults are filled in, changes nothing, and knows no node: whether a port or a path is free there is
//! not asked. Called by [`crate::admit`].

mod containers;
mod names;
mod probes;
mod resources;
mod security;
mod variables;
mod volumes;

use manifest::{FieldErrors, FieldPath};

use crate::pod::{DnsPolicy, Metadata, Pod, PodDNSConfig, PodSpec};
pub(crate) use names::{config_key, subdomain};
use names::{label, label_value, needed, qualified_name, report};
pub(crate) use resources::page_size;

/// The most bytes that the annotations of an object may have together.
const ANNOTATIONS: usize = 256 * 1024;

/// Validates a pod.
///
/// # Errors
/// When anything is.
pub(crate) fn validate(pod: &Pod) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    metadata(&pod.metadata, &mut errors);
    spec(pod, &mut errors);
    errors.into_result()
}

fn metadata(metadata: &Metadata, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata");
    if metadata.name.is_empty() {
        let detail = match metadata.generate_name.is_empty() {
            true => "name or generateName is required",
            false => "names are not generated on this node",
        };
        errors.required(path.child("name"), detail);
    } else {
        report(errors, &path.child("name"), &metadata.name, subdomain(&metadata.name));
    }
    needed(errors, path.child("namespace"), &metadata.namespace, label);
    // It is part of the names of directories.
    let uid = &metadata.uid;
    if !uid.is_empty() && (uid.len() > 128 || !uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')) {
        errors.invalid(path.child("uid"), uid, "must consist of at most 128 alphanumeric characters and '-'");
    }
    for (key, value) in &metadata.labels {
        report(errors, &path.child("labels"), key, qualified_name(key));
        report(errors, &path.child("labels").key(key), value, label_value(value));
    }
    for key in metadata.annotations.keys() {
        report(errors, &path.child("annotations"), key, qualified_name(&key.to_lowercase()));
    }
    let bytes: usize = metadata.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATIONS {
        errors.push(path.child("annotations"), manifest::FieldProblem::TooLong { max: ANNOTATIONS });
    }
}

fn spec(pod: &Pod, errors: &mut FieldErrors) {
    let (spec, path) = (&pod.spec, FieldPath::new("spec"));
    volumes::volumes(spec, &path.child("volumes"), errors);
    containers::containers(pod, &path, errors);
    security::pod(spec, &path.child("securityContext"), errors);
    if let Some(value) = spec.active_deadline_seconds.filter(|v| !(1..=i64::from(i32::MAX)).contains(v)) {
        let detail = format!("must be between 1 and {}, inclusive", i32::MAX);
        errors.invalid_plain(path.child("activeDeadlineSeconds"), value, detail);
    }
    if let Some(value) = spec.termination_grace_period_seconds.filter(|value| *value < 0) {
        let path = path.child("terminationGracePeriodSeconds");
        errors.invalid_plain(path, value, "must be greater than or equal to 0");
    }
    if !spec.priority_class_name.is_empty() && spec.priority.is_none() {
        let name = &spec.priority_class_name;
        let reason = format!("the class {name:?} is not known without an API server; set spec.priority to its number");
        errors.not_supported(path.child("priorityClassName"), reason);
    }
    report_name(errors, &path.child("serviceAccountName"), &spec.service_account_name, subdomain);
    report_name(errors, &path.child("runtimeClassName"), &spec.runtime_class_name, subdomain);
    for (index, name) in spec.image_pull_secrets.iter().enumerate() {
        needed(errors, path.child("imagePullSecrets").index(index).child("name"), name, subdomain);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid_plain(path.child("shareProcessNamespace"), true, detail);
    }
    network(spec, &path, errors);
}

/// Host names, and the configuration of name servers.
fn network(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    report_name(errors, &path.child("hostname"), &spec.hostname, label);
    report_name(errors, &path.child("subdomain"), &spec.subdomain, label);
    if let Some(name) = &spec.hostname_override {
        let path = path.child("hostnameOverride");
        needed(errors, path.clone(), name, subdomain);
        if name.len() > 64 {
            errors.invalid(path.clone(), name, names::too_long(64));
        }
        if spec.host_network {
            errors.forbidden(path.clone(), "may not be set when hostNetwork is true");
        }
        if spec.set_hostname_as_fqdn == Some(true) {
            errors.forbidden(path, "may not be set when setHostnameAsFQDN is true");
        }
    }
    for (index, alias) in spec.host_aliases.iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        needed(errors, path.child("ip"), &alias.ip, names::ip);
        for (index, name) in alias.hostnames.iter().flatten().enumerate() {
            needed(errors, path.child("hostnames").index(index), name, subdomain);
        }
    }
    let path = path.child("dnsConfig");
    if let Some(config) = &spec.dns_config {
        dns(config, &path, errors);
    }
    let servers = spec.dns_config.iter().flat_map(|config| &config.nameservers).flatten().count();
    if spec.dns_policy == Some(DnsPolicy::None) && servers == 0 {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.required(if spec.dns_config.is_some() { path.child("nameservers") } else { path }, detail);
    }
}

fn dns(config: &PodDNSConfig, path: &FieldPath, errors: &mut FieldErrors) {
    const SERVERS: usize = 3;
    const SEARCHES: usize = 32;
    const SEARCH_BYTES: usize = 2048;
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let (nameservers, searches) = (list(&config.nameservers), list(&config.searches));
    if nameservers.len() > SERVERS {
        let detail = format!("must not have more than {SERVERS} nameservers");
        errors.invalid_plain(path.child("nameservers"), nameservers.len(), detail);
    }
    for (index, server) in nameservers.iter().enumerate() {
        needed(errors, path.child("nameservers").index(index), server, names::ip);
    }
    if searches.len() > SEARCHES {
        let detail = format!("must not have more than {SEARCHES} search paths");
        errors.invalid_plain(path.child("searches"), searches.len(), detail);
    }
    if searches.join(" ").len() > SEARCH_BYTES {
        let detail = format!("must not have more than {SEARCH_BYTES} characters (including spaces) in the search list");
        errors.invalid_plain(path.child("searches"), "a list", detail);
    }
    for (index, search) in searches.iter().enumerate() {
        let name = search.strip_suffix('.').unwrap_or(search);
        // The root alone stands for "no domain".
        if search != "." {
            needed(errors, path.child("searches").index(index), name, subdomain);
        }
    }
    for (index, option) in config.options.iter().flatten().enumerate() {
        let name = option.name.as_deref().unwrap_or_default();
        needed(errors, path.child("options").index(index).child("name"), name, |_| Vec::new());
    }
}

/// Checks a name that may be missing.
fn report_name(errors: &mut FieldErrors, path: &FieldPath, name: &str, look: impl Fn(&str) -> Vec<String>) {
    if !name.is_empty() {
        report(errors, path, name, look(name));
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
