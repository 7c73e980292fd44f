//! [`set_defaults`]: the defaults of Kubernetes for fields that a manifest does not set. Set values are kept, and a second
//! call changes nothing. Called by [`crate::admit`] before validation.

use image_manager::PullPolicy;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use manifest::priority_of_class;

use crate::pod::{
    Container, DnsPolicy, DownwardAPIVolumeFile, HTTPGetAction, ObjectFieldSelector, Pod, Probe, Protocol,
    ResourceFieldSelector, RestartPolicy, Scheme, TOKEN_LIFETIME, TerminationMessagePolicy, Volume, divisor,
};

/// Mode of files in volumes.
const FILE_MODE: i32 = 0o644;

/// Fills in what is missing.
pub(crate) fn set_defaults(pod: &mut Pod) {
    let spec = &mut pod.spec;
    if pod.metadata.namespace.is_empty() {
        "default".clone_into(&mut pod.metadata.namespace);
    }
    spec.restart_policy.get_or_insert(RestartPolicy::Always);
    spec.dns_policy.get_or_insert(DnsPolicy::ClusterFirst);
    spec.termination_grace_period_seconds.get_or_insert(30);
    if spec.service_account_name.is_empty() {
        "default".clone_into(&mut spec.service_account_name);
    }
    if spec.priority.is_none() {
        // Validation reports an unknown class.
        let none = spec.priority_class_name.is_empty().then_some(0);
        spec.priority = priority_of_class(&spec.priority_class_name).or(none);
    }
    for volume in &mut spec.volumes {
        source(volume);
    }
    let host_network = spec.host_network;
    let ephemeral = spec.ephemeral_containers.iter_mut().map(|ephemeral| &mut ephemeral.container);
    for each in spec.init_containers.iter_mut().chain(&mut spec.containers).chain(ephemeral) {
        container(each, host_network);
    }
}

fn container(container: &mut Container, host_network: bool) {
    if container.image_pull_policy.is_none() && !container.image.is_empty() {
        container.image_pull_policy = Some(PullPolicy::default_for(&container.image));
    }
    if container.termination_message_path.is_empty() {
        "/dev/termination-log".clone_into(&mut container.termination_message_path);
    }
    container.termination_message_policy.get_or_insert(TerminationMessagePolicy::File);
    for port in &mut container.ports {
        port.protocol.get_or_insert_with(|| Protocol::Tcp.as_str().to_owned());
        if host_network && port.host_port.unwrap_or_default() == 0 {
            // With the node's network a port of the container is one of the node.
            port.host_port = Some(port.container_port);
        }
    }
    // A limit is also the request, unless the container sets a request.
    let resources = &mut container.resources;
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
    for from in container.env.iter_mut().filter_map(|variable| variable.value_from.as_mut()) {
        from.field_ref.iter_mut().for_each(field_ref);
        from.resource_field_ref.iter_mut().for_each(amount);
    }
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for each in probes.into_iter().flatten() {
        probe(each);
    }
    for hook in [&mut container.lifecycle.post_start, &mut container.lifecycle.pre_stop].into_iter().flatten() {
        hook.http_get.iter_mut().for_each(http);
    }
}

fn probe(probe: &mut Probe) {
    let numbers = [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ];
    for (number, default) in numbers {
        set_if(number, |number| *number == 0, default);
    }
    probe.http_get.iter_mut().for_each(http);
}

fn http(http: &mut HTTPGetAction) {
    set_if(&mut http.path, String::is_empty, "/".to_owned());
    set_if(&mut http.scheme, String::is_empty, Scheme::Http.as_str().to_owned());
}

fn field_ref(field: &mut ObjectFieldSelector) {
    set_if(&mut field.api_version, String::is_empty, "v1".to_owned());
}

fn amount(amount: &mut ResourceFieldSelector) {
    let is_readable = amount.divisor.as_ref().is_none_or(|divisor| divisor.0.parse::<oci::Quantity>().is_ok());
    if is_readable {
        amount.divisor = Some(Quantity(divisor(amount).to_string()));
    }
}

/// Sets a field that is absent or has an empty value.
fn set_if<T>(field: &mut Option<T>, is_empty: impl Fn(&T) -> bool, default: T) {
    if field.as_ref().is_none_or(is_empty) {
        *field = Some(default);
    }
}

fn source(volume: &mut Volume) {
    let items = |items: &mut Option<Vec<DownwardAPIVolumeFile>>| {
        for item in items.iter_mut().flatten() {
            item.field_ref.iter_mut().for_each(field_ref);
            item.resource_field_ref.iter_mut().for_each(amount);
        }
    };
    if let Some(document) = &mut volume.config_map {
        document.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(document) = &mut volume.secret {
        document.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        items(&mut downward.items);
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(FILE_MODE);
        for part in projected.sources.iter_mut().flatten() {
            part.downward_api.iter_mut().for_each(|downward| items(&mut downward.items));
            if let Some(token) = &mut part.service_account_token {
                token.expiration_seconds.get_or_insert(TOKEN_LIFETIME);
            }
        }
    }
    if let Some(image) = &mut volume.image
        && let Some(reference) = image.reference.as_ref().filter(|reference| !reference.is_empty())
    {
        let default = PullPolicy::default_for(reference).as_str().to_owned();
        set_if(&mut image.pull_policy, String::is_empty, default);
    }
}
