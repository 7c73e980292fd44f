//! [`set_defaults`]: what Kubernetes fills in where a manifest says nothing. It changes no value that is there, and doing
//! it twice changes nothing. Called by [`crate::admit`] before validation.

use image_manager::PullPolicy;
use oci::Quantity;

use crate::pod::{
    Container, DnsPolicy, EnvSource, FieldRef, Handler, PRIORITY_CLASSES, Pod, Probe, ProjectedSource,
    ResourceFieldRef, RestartPolicy, Scheme, TerminationMessagePolicy, VolumeSource,
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
        let class = PRIORITY_CLASSES.iter().find(|(name, _)| *name == spec.priority_class_name);
        // Validation reports an unknown class.
        spec.priority = class.map(|(_, priority)| *priority).or(spec.priority_class_name.is_empty().then_some(0));
    }
    for volume in &mut spec.volumes {
        source(&mut volume.source);
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
    for port in container.ports.iter_mut().filter(|port| host_network && port.host_port == 0) {
        // With the node's network a port of the container is one of the node.
        port.host_port = port.container_port;
    }
    // What a container may use it also needs, unless it says how much less.
    let resources = &mut container.resources;
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
    for variable in &mut container.env {
        match &mut variable.source {
            EnvSource::Field(field) => field_ref(field),
            EnvSource::Resource(resource) => divisor(resource),
            _ => {}
        }
    }
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for each in probes.into_iter().flatten() {
        probe(each);
    }
    for hook in [&mut container.lifecycle.post_start, &mut container.lifecycle.pre_stop].into_iter().flatten() {
        handler(hook);
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
        if *number == 0 {
            *number = default;
        }
    }
    handler(&mut probe.handler);
}

fn handler(handler: &mut Handler) {
    if let Some(http) = &mut handler.http_get {
        if http.path.is_empty() {
            "/".clone_into(&mut http.path);
        }
        http.scheme.get_or_insert(Scheme::Http);
    }
}

fn field_ref(field: &mut FieldRef) {
    if field.api_version.is_empty() {
        "v1".clone_into(&mut field.api_version);
    }
}

fn divisor(resource: &mut ResourceFieldRef) {
    if resource.divisor.is_zero() {
        resource.divisor = Quantity::milli(1000);
    }
}

fn source(source: &mut VolumeSource) {
    let items = |items: &mut Vec<crate::pod::DownwardItem>| {
        for item in items {
            item.field_ref.iter_mut().for_each(field_ref);
            item.resource_field_ref.iter_mut().for_each(divisor);
        }
    };
    match source {
        VolumeSource::HostPath(_) | VolumeSource::EmptyDir(_) => {}
        VolumeSource::ConfigMap(document) | VolumeSource::Secret(document) => {
            document.default_mode.get_or_insert(FILE_MODE);
        }
        VolumeSource::DownwardApi(downward) => {
            downward.default_mode.get_or_insert(FILE_MODE);
            items(&mut downward.items);
        }
        VolumeSource::Projected(projected) => {
            projected.default_mode.get_or_insert(FILE_MODE);
            for part in &mut projected.sources {
                match part {
                    ProjectedSource::DownwardApi(list) => items(list),
                    ProjectedSource::ServiceAccountToken(token) => {
                        token.expiration_seconds.get_or_insert(3600);
                    }
                    ProjectedSource::ConfigMap(_) | ProjectedSource::Secret(_) | ProjectedSource::Unclear(_) => {}
                }
            }
        }
        VolumeSource::Image(image) => {
            if !image.reference.is_empty() {
                image.pull_policy.get_or_insert_with(|| PullPolicy::default_for(&image.reference));
            }
        }
    }
}
