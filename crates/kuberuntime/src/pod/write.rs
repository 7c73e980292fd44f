//! [`Pod::to_json`]: a pod in Kubernetes' shape, with the defaults that were filled in, so that tools which know Kubernetes can
//! read it. What was passed over when the manifest was read is not in it. Reading it again gives the same pod. Called by
//! whoever shows one; literal values of variables are in it, so only its owner may see it.

use serde_json::{Map, Value, json};

use super::{
    Container, ContainerKind, DnsConfig, DocumentRef, DocumentVolume, DownwardItem, EnvFromSource, EnvSource, EnvVar,
    FieldRef, HostAlias, KeyRef, Lifecycle, Metadata, Pod, PodSecurityContext, PodSpec, Probe, Profile,
    ProjectedSource, ResourceFieldRef, Resources, RestartRule, SeLinuxOptions, SecurityContext, Volume, VolumeMount,
    VolumeSource,
};

/// An object in the making.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    /// Sets a field, unless there is nothing to say.
    fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let empty = match &value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        if !empty {
            self.0.insert(name.to_owned(), value);
        }
        self
    }

    /// Sets a field that says something also when it is empty.
    fn keep<T: Into<Value>>(mut self, name: &str, value: Option<T>) -> Self {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
        self
    }

    /// A number, of which 0 says nothing.
    fn number(self, name: &str, value: i32) -> Self {
        if value == 0 { self } else { self.set(name, value) }
    }

    /// A switch, of which off says nothing.
    fn flag(self, name: &str, value: bool) -> Self {
        if value { self.set(name, true) } else { self }
    }

    fn word<W: serde::Serialize>(self, name: &str, word: Option<W>) -> Self {
        self.set(name, json!(word))
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.0)
    }
}

fn list<'a, T: 'a>(items: impl IntoIterator<Item = &'a T>, write: impl Fn(&'a T) -> Object) -> Value {
    items.into_iter().map(|item| Value::from(write(item))).collect()
}

impl Pod {
    /// The pod in Kubernetes' shape, without a status.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let object = Object::default().set("apiVersion", "v1").set("kind", "Pod");
        object.set("metadata", metadata(&self.metadata)).keep("spec", Some(spec(&self.spec))).into()
    }
}

fn metadata(metadata: &Metadata) -> Object {
    Object::default()
        .set("name", metadata.name.as_str())
        .set("generateName", metadata.generate_name.as_str())
        .set("namespace", metadata.namespace.as_str())
        .set("uid", metadata.uid.as_str())
        .set("labels", json!(metadata.labels))
        .set("annotations", json!(metadata.annotations))
        .set("deletionTimestamp", metadata.deletion_timestamp.map(|time| time.to_string()))
        .set("deletionGracePeriodSeconds", metadata.deletion_grace_period_seconds)
}

fn spec(spec: &PodSpec) -> Object {
    let ephemeral = spec.ephemeral_containers.iter().map(|ephemeral| {
        let written = container(&ephemeral.container);
        Value::from(written.set("targetContainerName", ephemeral.target_container_name.as_str()))
    });
    let secrets = spec.image_pull_secrets.iter().map(|name| json!({"name": name}));
    Object::default()
        .set("volumes", list(&spec.volumes, volume))
        .set(ContainerKind::Init.field(), list(&spec.init_containers, container))
        .keep(ContainerKind::Normal.field(), Some(list(&spec.containers, container)))
        .set(ContainerKind::Ephemeral.field(), ephemeral.collect::<Value>())
        .word("restartPolicy", spec.restart_policy)
        .set("terminationGracePeriodSeconds", spec.termination_grace_period_seconds)
        .set("activeDeadlineSeconds", spec.active_deadline_seconds)
        .word("dnsPolicy", spec.dns_policy)
        .keep("dnsConfig", spec.dns_config.as_ref().map(dns_config))
        .set("serviceAccountName", spec.service_account_name.as_str())
        .set("nodeName", spec.node_name.as_str())
        .flag("hostNetwork", spec.host_network)
        .flag("hostPID", spec.host_pid)
        .flag("hostIPC", spec.host_ipc)
        .set("shareProcessNamespace", spec.share_process_namespace)
        .set("securityContext", pod_rights(&spec.security_context))
        .set("imagePullSecrets", secrets.collect::<Value>())
        .set("hostname", spec.hostname.as_str())
        .set("subdomain", spec.subdomain.as_str())
        .keep("hostnameOverride", spec.hostname_override.clone())
        .set("setHostnameAsFQDN", spec.set_hostname_as_fqdn)
        .set("hostAliases", list(&spec.host_aliases, host_alias))
        .set("priorityClassName", spec.priority_class_name.as_str())
        .set("priority", spec.priority)
        .set("runtimeClassName", spec.runtime_class_name.as_str())
}

fn dns_config(dns: &DnsConfig) -> Object {
    let options = list(&dns.options, |option| {
        Object::default().set("name", option.name.as_str()).keep("value", option.value.clone())
    });
    let object = Object::default().set("nameservers", json!(dns.nameservers));
    object.set("searches", json!(dns.searches)).set("options", options)
}

fn host_alias(alias: &HostAlias) -> Object {
    Object::default().set("ip", alias.ip.as_str()).set("hostnames", json!(alias.hostnames))
}

fn container(container: &Container) -> Object {
    Object::default()
        .set("name", container.name.as_str())
        .set("image", container.image.as_str())
        .set("imagePullPolicy", container.image_pull_policy.map(|policy| policy.as_str()))
        .set("command", json!(container.command))
        .set("args", json!(container.args))
        .set("workingDir", container.working_dir.as_str())
        .set("ports", json!(container.ports))
        .set("envFrom", list(&container.env_from, env_from))
        .set("env", list(&container.env, env))
        .set("resources", resources(&container.resources))
        .word("restartPolicy", container.restart_policy)
        .set("restartPolicyRules", list(&container.restart_policy_rules, restart_rule))
        .set("volumeMounts", list(&container.volume_mounts, volume_mount))
        .keep("livenessProbe", container.liveness_probe.as_ref().map(probe))
        .keep("readinessProbe", container.readiness_probe.as_ref().map(probe))
        .keep("startupProbe", container.startup_probe.as_ref().map(probe))
        .set("lifecycle", lifecycle(&container.lifecycle))
        .set("terminationMessagePath", container.termination_message_path.as_str())
        .word("terminationMessagePolicy", container.termination_message_policy)
        .keep("securityContext", container.security_context.as_ref().map(rights))
        .flag("stdin", container.stdin)
        .flag("stdinOnce", container.stdin_once)
        .flag("tty", container.tty)
}

fn env_from(source: &EnvFromSource) -> Object {
    let document = |document: &DocumentRef| {
        Object::default().set("name", document.name.as_str()).flag("optional", document.optional)
    };
    Object::default()
        .set("prefix", source.prefix.as_str())
        .keep("configMapRef", source.config_map.as_ref().map(document))
        .keep("secretRef", source.secret.as_ref().map(document))
}

fn env(variable: &EnvVar) -> Object {
    let object = Object::default().set("name", variable.name.as_str());
    let from = |name: &str, source: Object| Some(Object::default().keep(name, Some(source)));
    let from = match &variable.source {
        EnvSource::Literal(value) => return object.set("value", value.as_str()),
        EnvSource::Field(field) => from("fieldRef", field_ref(field)),
        EnvSource::Resource(resource) => from("resourceFieldRef", resource_ref(resource)),
        EnvSource::ConfigMapKey(key) => from("configMapKeyRef", key_ref(key)),
        EnvSource::SecretKey(key) => from("secretKeyRef", key_ref(key)),
        // It did not pass validation.
        EnvSource::Unclear(_) => None,
    };
    object.keep("valueFrom", from)
}

fn field_ref(field: &FieldRef) -> Object {
    Object::default().set("apiVersion", field.api_version.as_str()).set("fieldPath", field.field_path.as_str())
}

fn resource_ref(resource: &ResourceFieldRef) -> Object {
    let divisor = (!resource.divisor.is_zero()).then(|| resource.divisor.to_string());
    Object::default()
        .set("containerName", resource.container_name.as_str())
        .set("resource", resource.resource.as_str())
        .set("divisor", divisor)
}

fn key_ref(key: &KeyRef) -> Object {
    Object::default().set("name", key.name.as_str()).set("key", key.key.as_str()).flag("optional", key.optional)
}

fn resources(resources: &Resources) -> Object {
    let amounts = |map: &std::collections::BTreeMap<String, oci::Quantity>| -> Value {
        map.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
    };
    Object::default().set("limits", amounts(&resources.limits)).set("requests", amounts(&resources.requests))
}

fn restart_rule(rule: &RestartRule) -> Object {
    let codes = Object::default().word("operator", rule.operator).set("values", json!(rule.values));
    Object::default().word("action", rule.action).set("exitCodes", codes)
}

fn volume_mount(mount: &VolumeMount) -> Object {
    Object::default()
        .set("name", mount.name.as_str())
        .set("mountPath", mount.mount_path.as_str())
        .flag("readOnly", mount.read_only)
        .word("recursiveReadOnly", mount.recursive_read_only)
        .set("subPath", mount.sub_path.as_str())
        .set("subPathExpr", mount.sub_path_expr.as_str())
        .word("mountPropagation", mount.mount_propagation)
}

fn probe(probe: &Probe) -> Object {
    let handler = match json!(probe.handler) {
        Value::Object(map) => Object(map),
        _ => Object::default(),
    };
    handler
        .number("initialDelaySeconds", probe.initial_delay_seconds)
        .number("timeoutSeconds", probe.timeout_seconds)
        .number("periodSeconds", probe.period_seconds)
        .number("successThreshold", probe.success_threshold)
        .number("failureThreshold", probe.failure_threshold)
        .set("terminationGracePeriodSeconds", probe.termination_grace_period_seconds)
}

fn lifecycle(lifecycle: &Lifecycle) -> Object {
    Object::default()
        .word("postStart", lifecycle.post_start.as_ref())
        .word("preStop", lifecycle.pre_stop.as_ref())
        .set("stopSignal", lifecycle.stop_signal.as_str())
}

fn profile(profile: &Profile) -> Object {
    Object::default().word("type", profile.kind).keep("localhostProfile", profile.localhost_profile.clone())
}

fn se_linux(options: &SeLinuxOptions) -> Object {
    Object::default()
        .set("user", options.user.as_str())
        .set("role", options.role.as_str())
        .set("type", options.kind.as_str())
        .set("level", options.level.as_str())
}

fn pod_rights(rights: &PodSecurityContext) -> Object {
    let sysctl = |sysctl: &super::Sysctl| {
        Object::default().set("name", sysctl.name.as_str()).set("value", sysctl.value.as_str())
    };
    Object::default()
        .keep("seLinuxOptions", rights.se_linux_options.as_ref().map(se_linux))
        .set("runAsUser", rights.run_as_user)
        .set("runAsGroup", rights.run_as_group)
        .set("runAsNonRoot", rights.run_as_non_root)
        .set("supplementalGroups", json!(rights.supplemental_groups))
        .word("supplementalGroupsPolicy", rights.supplemental_groups_policy)
        .set("fsGroup", rights.fs_group)
        .set("sysctls", list(&rights.sysctls, sysctl))
        .keep("seccompProfile", rights.seccomp_profile.as_ref().map(profile))
        .keep("appArmorProfile", rights.app_armor_profile.as_ref().map(profile))
}

fn rights(rights: &SecurityContext) -> Object {
    let capabilities = rights.capabilities.as_ref().map(|capabilities| {
        Object::default().set("add", json!(capabilities.add)).set("drop", json!(capabilities.drop))
    });
    Object::default()
        .keep("capabilities", capabilities)
        .set("privileged", rights.privileged)
        .keep("seLinuxOptions", rights.se_linux_options.as_ref().map(se_linux))
        .set("runAsUser", rights.run_as_user)
        .set("runAsGroup", rights.run_as_group)
        .set("runAsNonRoot", rights.run_as_non_root)
        .set("readOnlyRootFilesystem", rights.read_only_root_filesystem)
        .set("allowPrivilegeEscalation", rights.allow_privilege_escalation)
        .word("procMount", rights.proc_mount)
        .keep("seccompProfile", rights.seccomp_profile.as_ref().map(profile))
        .keep("appArmorProfile", rights.app_armor_profile.as_ref().map(profile))
}

fn volume(volume: &Volume) -> Object {
    let (name, source) = match &volume.source {
        VolumeSource::HostPath { path, kind } => {
            ("hostPath", Object::default().set("path", path.as_str()).word("type", *kind))
        }
        VolumeSource::EmptyDir { medium, size_limit } => {
            let size = size_limit.map(|size| size.to_string());
            ("emptyDir", Object::default().word("medium", *medium).set("sizeLimit", size))
        }
        VolumeSource::ConfigMap(map) => ("configMap", document(map, "name")),
        VolumeSource::Secret(secret) => ("secret", document(secret, "secretName")),
        VolumeSource::DownwardApi { items, default_mode } => (
            "downwardAPI",
            Object::default().set("items", list(items, downward_item)).set("defaultMode", *default_mode),
        ),
        VolumeSource::Projected { sources, default_mode } => {
            ("projected", Object::default().set("sources", list(sources, projected)).set("defaultMode", *default_mode))
        }
        VolumeSource::Image { reference, pull_policy } => {
            let policy = pull_policy.map(|policy| policy.as_str());
            ("image", Object::default().set("reference", reference.as_str()).set("pullPolicy", policy))
        }
    };
    Object::default().set("name", volume.name.as_str()).keep(name, Some(source))
}

fn document(document: &DocumentVolume, name: &str) -> Object {
    let item = |item: &super::KeyToPath| {
        Object::default().set("key", item.key.as_str()).set("path", item.path.as_str()).set("mode", item.mode)
    };
    Object::default()
        .set(name, document.name.as_str())
        .set("items", list(&document.items, item))
        .set("defaultMode", document.default_mode)
        .flag("optional", document.optional)
}

fn downward_item(item: &DownwardItem) -> Object {
    Object::default()
        .set("path", item.path.as_str())
        .keep("fieldRef", item.field_ref.as_ref().map(field_ref))
        .keep("resourceFieldRef", item.resource_field_ref.as_ref().map(resource_ref))
        .set("mode", item.mode)
}

fn projected(source: &ProjectedSource) -> Object {
    let object = Object::default();
    match source {
        ProjectedSource::ConfigMap(map) => object.keep("configMap", Some(document(map, "name"))),
        ProjectedSource::Secret(secret) => object.keep("secret", Some(document(secret, "name"))),
        ProjectedSource::DownwardApi(items) => {
            object.keep("downwardAPI", Some(Object::default().set("items", list(items, downward_item))))
        }
        // It did not pass validation.
        ProjectedSource::Unclear(_) => object,
    }
}
