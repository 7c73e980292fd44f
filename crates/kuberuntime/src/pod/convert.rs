//! Conversion between the API's types and those of the pod runner, both ways. Reading reports words and quantities that do not
//! exist. Fills in no default. Called by [`super::Pod`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use manifest::{FieldErrors, FieldPath};
use oci::Quantity;

use super::ephemeral::{of_ephemeral, to_ephemeral};
use super::spec::{Container, EphemeralContainer, PodSpec, Resources};
use super::values::{quantity, refuse_other_words};
use super::words::Word;
use super::{Metadata, Pod};

impl Metadata {
    pub(super) fn of_api(metadata: ObjectMeta) -> Self {
        Self {
            name: metadata.name.unwrap_or_default(),
            generate_name: metadata.generate_name.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            deletion_timestamp: metadata.deletion_timestamp.map(|Time(time)| time),
            deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            generation: metadata.generation,
        }
    }

    fn to_api(&self) -> ObjectMeta {
        ObjectMeta {
            name: set(&self.name),
            generate_name: set(&self.generate_name),
            namespace: set(&self.namespace),
            uid: set(&self.uid),
            labels: some(&self.labels, BTreeMap::is_empty),
            annotations: some(&self.annotations, BTreeMap::is_empty),
            deletion_timestamp: self.deletion_timestamp.map(Time),
            deletion_grace_period_seconds: self.deletion_grace_period_seconds,
            generation: self.generation,
            ..ObjectMeta::default()
        }
    }
}

impl PodSpec {
    pub(super) fn of_api(spec: api::PodSpec, path: &FieldPath, errors: &mut FieldErrors) -> Self {
        let mut containers = |list: &str, containers: Vec<api::Container>| {
            let path = path.child(list);
            let each = containers.into_iter().enumerate();
            each.map(|(index, container)| Container::of_api(container, &path.index(index), errors)).collect()
        };
        let init_containers = containers("initContainers", spec.init_containers.unwrap_or_default());
        let normal = containers("containers", spec.containers);
        let debug = spec.ephemeral_containers.unwrap_or_default().into_iter().enumerate().map(|(index, ephemeral)| {
            let (container, target) = of_ephemeral(ephemeral);
            let container = Container::of_api(container, &path.child("ephemeralContainers").index(index), errors);
            EphemeralContainer { container, target_container_name: target.unwrap_or_default() }
        });
        let ephemeral_containers = debug.collect();
        // The older of the two fields counts where the other one is not set.
        let accounts = [spec.service_account_name, spec.service_account].into_iter().flatten();
        Self {
            volumes: spec.volumes.unwrap_or_default(),
            init_containers,
            containers: normal,
            ephemeral_containers,
            restart_policy: word(spec.restart_policy, &path.child("restartPolicy"), errors),
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            active_deadline_seconds: spec.active_deadline_seconds,
            dns_policy: word(spec.dns_policy, &path.child("dnsPolicy"), errors),
            dns_config: spec.dns_config,
            service_account_name: accounts.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            node_name: spec.node_name.unwrap_or_default(),
            host_network: spec.host_network.unwrap_or_default(),
            host_pid: spec.host_pid.unwrap_or_default(),
            host_ipc: spec.host_ipc.unwrap_or_default(),
            share_process_namespace: spec.share_process_namespace,
            // How ownership is changed does not matter, because volumes are made for each pod.
            security_context: api::PodSecurityContext {
                fs_group_change_policy: None,
                se_linux_change_policy: None,
                ..spec.security_context.unwrap_or_default()
            },
            image_pull_secrets: spec.image_pull_secrets.into_iter().flatten().map(|secret| secret.name).collect(),
            hostname: spec.hostname.unwrap_or_default(),
            subdomain: spec.subdomain.unwrap_or_default(),
            hostname_override: spec.hostname_override,
            set_hostname_as_fqdn: spec.set_hostname_as_fqdn,
            host_aliases: spec.host_aliases.unwrap_or_default(),
            priority_class_name: spec.priority_class_name.unwrap_or_default(),
            priority: spec.priority,
            runtime_class_name: spec.runtime_class_name.unwrap_or_default(),
        }
    }

    pub(super) fn to_api(&self) -> api::PodSpec {
        let containers = |list: &[Container]| list.iter().map(Container::to_api).collect::<Vec<_>>();
        let debug = self
            .ephemeral_containers
            .iter()
            .map(|debug| to_ephemeral(debug.container.to_api(), set(&debug.target_container_name)))
            .collect();
        let secrets = self.image_pull_secrets.iter().map(|name| api::LocalObjectReference { name: name.clone() });
        api::PodSpec {
            volumes: some(&self.volumes, Vec::is_empty),
            init_containers: some(&containers(&self.init_containers), Vec::is_empty),
            containers: containers(&self.containers),
            ephemeral_containers: some(&debug, Vec::is_empty),
            restart_policy: self.restart_policy.map(|policy| policy.as_str().to_owned()),
            termination_grace_period_seconds: self.termination_grace_period_seconds,
            active_deadline_seconds: self.active_deadline_seconds,
            dns_policy: self.dns_policy.map(|policy| policy.as_str().to_owned()),
            dns_config: self.dns_config.clone(),
            service_account_name: set(&self.service_account_name),
            node_name: set(&self.node_name),
            host_network: self.host_network.then_some(true),
            host_pid: self.host_pid.then_some(true),
            host_ipc: self.host_ipc.then_some(true),
            share_process_namespace: self.share_process_namespace,
            security_context: some(&self.security_context, |rights| *rights == api::PodSecurityContext::default()),
            image_pull_secrets: some(&secrets.collect(), Vec::is_empty),
            hostname: set(&self.hostname),
            subdomain: set(&self.subdomain),
            hostname_override: self.hostname_override.clone(),
            set_hostname_as_fqdn: self.set_hostname_as_fqdn,
            host_aliases: some(&self.host_aliases, Vec::is_empty),
            priority_class_name: set(&self.priority_class_name),
            priority: self.priority,
            runtime_class_name: set(&self.runtime_class_name),
            ..api::PodSpec::default()
        }
    }
}

impl Container {
    fn of_api(container: api::Container, path: &FieldPath, errors: &mut FieldErrors) -> Self {
        let resources = container.resources.unwrap_or_default();
        let of_resources = path.child("resources");
        Self {
            name: container.name,
            image: container.image.unwrap_or_default(),
            image_pull_policy: word(container.image_pull_policy, &path.child("imagePullPolicy"), errors),
            command: container.command.unwrap_or_default(),
            args: container.args.unwrap_or_default(),
            working_dir: container.working_dir.unwrap_or_default(),
            ports: container.ports.unwrap_or_default(),
            env_from: container.env_from.unwrap_or_default(),
            env: container.env.unwrap_or_default(),
            resources: Resources {
                limits: quantities(resources.limits, &of_resources.child("limits"), errors),
                requests: quantities(resources.requests, &of_resources.child("requests"), errors),
            },
            restart_policy: word(container.restart_policy, &path.child("restartPolicy"), errors),
            restart_policy_rules: container.restart_policy_rules.unwrap_or_default(),
            volume_mounts: container.volume_mounts.unwrap_or_default(),
            liveness_probe: container.liveness_probe,
            readiness_probe: container.readiness_probe,
            startup_probe: container.startup_probe,
            lifecycle: container.lifecycle.unwrap_or_default(),
            termination_message_path: container.termination_message_path.unwrap_or_default(),
            termination_message_policy: word(
                container.termination_message_policy,
                &path.child("terminationMessagePolicy"),
                errors,
            ),
            security_context: container.security_context,
            stdin: container.stdin.unwrap_or_default(),
            stdin_once: container.stdin_once.unwrap_or_default(),
            tty: container.tty.unwrap_or_default(),
        }
    }

    fn to_api(&self) -> api::Container {
        let amounts = |amounts: &BTreeMap<String, Quantity>| {
            let written = amounts.iter().map(|(name, amount)| (name.clone(), ApiQuantity(amount.to_string())));
            some(&written.collect(), BTreeMap::is_empty)
        };
        let (limits, requests) = (amounts(&self.resources.limits), amounts(&self.resources.requests));
        let resources = api::ResourceRequirements { limits, requests, claims: None };
        api::Container {
            name: self.name.clone(),
            image: set(&self.image),
            image_pull_policy: self.image_pull_policy.map(|policy| policy.as_str().to_owned()),
            command: some(&self.command, Vec::is_empty),
            args: some(&self.args, Vec::is_empty),
            working_dir: set(&self.working_dir),
            ports: some(&self.ports, Vec::is_empty),
            env_from: some(&self.env_from, Vec::is_empty),
            env: some(&self.env, Vec::is_empty),
            resources: some(&resources, |resources| *resources == api::ResourceRequirements::default()),
            restart_policy: self.restart_policy.map(|policy| policy.as_str().to_owned()),
            restart_policy_rules: some(&self.restart_policy_rules, Vec::is_empty),
            volume_mounts: some(&self.volume_mounts, Vec::is_empty),
            liveness_probe: self.liveness_probe.clone(),
            readiness_probe: self.readiness_probe.clone(),
            startup_probe: self.startup_probe.clone(),
            lifecycle: some(&self.lifecycle, |lifecycle| *lifecycle == api::Lifecycle::default()),
            termination_message_path: set(&self.termination_message_path),
            termination_message_policy: self.termination_message_policy.map(|policy| policy.as_str().to_owned()),
            security_context: self.security_context.clone(),
            stdin: self.stdin.then_some(true),
            stdin_once: self.stdin_once.then_some(true),
            tty: self.tty.then_some(true),
            ..api::Container::default()
        }
    }
}

impl Pod {
    pub(super) fn to_api(&self) -> api::Pod {
        api::Pod { metadata: self.metadata.to_api(), spec: Some(self.spec.to_api()), status: None }
    }
}

/// Returns the text, if it is not empty.
fn set(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn some<T: Clone>(value: &T, is_nothing: impl Fn(&T) -> bool) -> Option<T> {
    (!is_nothing(value)).then(|| value.clone())
}

fn word<T: Word>(text: Option<String>, path: &FieldPath, errors: &mut FieldErrors) -> Option<T> {
    refuse_other_words::<T>(text.as_deref(), path, errors);
    T::of(text.as_deref())
}

fn quantities(
    amounts: Option<BTreeMap<String, ApiQuantity>>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> BTreeMap<String, Quantity> {
    let mut read = BTreeMap::new();
    for (name, amount) in amounts.into_iter().flatten() {
        if let Some(amount) = quantity(&amount, &path.key(&name), errors) {
            read.insert(name, amount);
        }
    }
    read
}
