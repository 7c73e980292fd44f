//! [`refuse`]: fields that Kubernetes knows and this node cannot honour, each with the reason, and words that do not exist.
//! Decides nothing about a node. Called by [`super::Pod`] for every pod that is read.

use k8s_openapi::api::core::v1 as api;
use manifest::{FieldErrors, FieldPath, FieldProblem};

use super::ephemeral::of_ephemeral;
use super::values::{quantity, refuse_other_words};
use super::words::{
    ExitCodeOperator, HostPathType, MountPropagation, ProcMount, ProfileKind, Protocol, RecursiveReadOnly,
    RestartAction, Scheme, SupplementalGroupsPolicy,
};

const CLAIMS: &str = "claims are bound to volumes by an API server";
const DEVICES: &str = "devices are not allocated dynamically on this node";
const CLOUD: &str = "disks of a cloud are not attached";
const NETWORK: &str = "network storage is not mounted; mount it on the node and use hostPath";
const GATES: &str = "only clients of an API server could open them";
const WORKLOAD: &str = "pods of this node belong to no workload";
const LINUX: &str = "this node runs Linux";

/// Fields without a meaning on one node: the placement of the pod and its cost there are decided already, volumes are made for
/// each pod, and pods are not resized in place. Observations of other components do not concern this node.
const IGNORED: [&str; 20] = [
    "apiVersion",
    "kind",
    "status",
    "metadata.clusterName",
    "metadata.creationTimestamp",
    "metadata.finalizers",
    "metadata.managedFields",
    "metadata.ownerReferences",
    "metadata.resourceVersion",
    "metadata.selfLink",
    "spec.affinity",
    "spec.enableServiceLinks",
    "spec.nodeSelector",
    "spec.overhead",
    "spec.preemptionPolicy",
    "spec.schedulerName",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.securityContext.fsGroupChangePolicy",
    "spec.securityContext.seLinuxChangePolicy",
];

/// Drops the errors of fields that are ignored, and names the reason of a field that the API no longer has.
pub(super) fn sort_read_errors(found: FieldErrors, errors: &mut FieldErrors) {
    for error in found.iter() {
        let field = error.field.as_str();
        let is_ignored = IGNORED.iter().any(|ignored| FieldPath::new(ignored).holds(&error.field))
            || (field.starts_with("spec.") && field.contains("].resizePolicy"));
        match &error.problem {
            _ if is_ignored => {}
            FieldProblem::Unknown { .. } if field == "spec.workloadRef" => {
                errors.not_supported(error.field.clone(), WORKLOAD);
            }
            problem => errors.push(error.field.clone(), problem.clone()),
        }
    }
}

/// Refuses everything in a specification that this node cannot honour.
pub(super) fn refuse(spec: &api::PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let unsupported = [
        (
            "automountServiceAccountToken",
            spec.automount_service_account_token == Some(true),
            "tokens of service accounts come from an API server",
        ),
        ("readinessGates", is_filled(&spec.readiness_gates), GATES),
        ("resourceClaims", is_filled(&spec.resource_claims), DEVICES),
        (
            "resources",
            spec.resources.is_some(),
            "resources of a pod as a whole are not limited; set them on its containers",
        ),
        ("schedulingGates", is_filled(&spec.scheduling_gates), GATES),
        ("schedulingGroup", spec.scheduling_group.is_some(), WORKLOAD),
        ("hostUsers", spec.host_users == Some(false), "user namespaces are not made on this node"),
    ];
    not_supported(&unsupported, path, errors);
    if let Some(os) = &spec.os {
        let path = path.child("os").child("name");
        match os.name.as_str() {
            "linux" => {}
            "" => errors.required(path, ""),
            "windows" => errors.not_supported(path, LINUX),
            other => errors.unsupported(path, other, &["linux", "windows"]),
        }
    }
    if let Some(rights) = &spec.security_context {
        let path = path.child("securityContext");
        not_supported(&[("windowsOptions", rights.windows_options.is_some(), LINUX)], &path, errors);
        let policy = rights.supplemental_groups_policy.as_deref();
        refuse_other_words::<SupplementalGroupsPolicy>(policy, &path.child("supplementalGroupsPolicy"), errors);
        profiles(rights.seccomp_profile.as_ref(), rights.app_armor_profile.as_ref(), &path, errors);
    }
    for (index, each) in spec.volumes.iter().flatten().enumerate() {
        volume(each, &path.child("volumes").index(index), errors);
    }
    let lists = [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&spec.containers[..]))];
    for (list, containers) in lists {
        for (index, each) in containers.into_iter().flatten().enumerate() {
            container(each, &path.child(list).index(index), errors);
        }
    }
    for (index, ephemeral) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let (each, _) = of_ephemeral(ephemeral.clone());
        container(&each, &path.child("ephemeralContainers").index(index), errors);
    }
}

fn is_filled<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(|list| !list.is_empty())
}

fn not_supported(fields: &[(&str, bool, &str)], path: &FieldPath, errors: &mut FieldErrors) {
    for (field, _, reason) in fields.iter().filter(|(_, is_set, _)| *is_set) {
        errors.not_supported(path.child(field), *reason);
    }
}

fn profiles(
    seccomp: Option<&api::SeccompProfile>,
    app_armor: Option<&api::AppArmorProfile>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let kinds = [
        ("seccompProfile", seccomp.map(|profile| &profile.type_)),
        ("appArmorProfile", app_armor.map(|profile| &profile.type_)),
    ];
    for (field, kind) in kinds {
        refuse_other_words::<ProfileKind>(kind.map(String::as_str), &path.child(field).child("type"), errors);
    }
}

fn container(container: &api::Container, path: &FieldPath, errors: &mut FieldErrors) {
    let block = "block devices come from persistent volumes, which this node does not have";
    not_supported(&[("volumeDevices", is_filled(&container.volume_devices), block)], path, errors);
    if let Some(resources) = &container.resources {
        not_supported(&[("claims", is_filled(&resources.claims), DEVICES)], &path.child("resources"), errors);
    }
    if let Some(rights) = &container.security_context {
        let path = path.child("securityContext");
        not_supported(&[("windowsOptions", rights.windows_options.is_some(), LINUX)], &path, errors);
        refuse_other_words::<ProcMount>(rights.proc_mount.as_deref(), &path.child("procMount"), errors);
        profiles(rights.seccomp_profile.as_ref(), rights.app_armor_profile.as_ref(), &path, errors);
    }
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = path.child("ports").index(index).child("protocol");
        refuse_other_words::<Protocol>(port.protocol.as_deref(), &path, errors);
    }
    for (index, rule) in container.restart_policy_rules.iter().flatten().enumerate() {
        let path = path.child("restartPolicyRules").index(index);
        refuse_other_words::<RestartAction>(Some(&rule.action), &path.child("action"), errors);
        let operator = rule.exit_codes.as_ref().map(|codes| codes.operator.as_str());
        refuse_other_words::<ExitCodeOperator>(operator, &path.child("exitCodes").child("operator"), errors);
    }
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = path.child("volumeMounts").index(index);
        let propagation = mount.mount_propagation.as_deref();
        refuse_other_words::<MountPropagation>(propagation, &path.child("mountPropagation"), errors);
        let recursive = mount.recursive_read_only.as_deref();
        refuse_other_words::<RecursiveReadOnly>(recursive, &path.child("recursiveReadOnly"), errors);
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let Some(from) = &variable.value_from else { continue };
        let path = path.child("env").index(index).child("valueFrom");
        let files = "variables are not read from files of volumes";
        not_supported(&[("fileKeyRef", from.file_key_ref.is_some(), files)], &path, errors);
        amount(from.resource_field_ref.as_ref(), &path, errors);
    }
    let lifecycle = container.lifecycle.as_ref();
    let hooks = [
        ("postStart", lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref())),
        ("preStop", lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref())),
    ];
    for (field, hook) in hooks {
        scheme(hook.and_then(|hook| hook.http_get.as_ref()), &path.child("lifecycle").child(field), errors);
    }
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (field, probe) in probes {
        scheme(probe.as_ref().and_then(|probe| probe.http_get.as_ref()), &path.child(field), errors);
    }
}

fn scheme(http: Option<&api::HTTPGetAction>, path: &FieldPath, errors: &mut FieldErrors) {
    let scheme = http.and_then(|http| http.scheme.as_deref());
    refuse_other_words::<Scheme>(scheme, &path.child("httpGet").child("scheme"), errors);
}

/// Reports the divisor of an amount at `path` if it is no quantity.
fn amount(amount: Option<&api::ResourceFieldSelector>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(divisor) = amount.and_then(|amount| amount.divisor.as_ref()) {
        quantity(divisor, &path.child("resourceFieldRef").child("divisor"), errors);
    }
}

/// Refuses sources of volumes that need something which a node on its own does not have.
fn volume(volume: &api::Volume, path: &FieldPath, errors: &mut FieldErrors) {
    let unsupported = [
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some(), CLAIMS),
        ("ephemeral", volume.ephemeral.is_some(), CLAIMS),
        ("csi", volume.csi.is_some(), "there are no CSI drivers on this node"),
        ("flexVolume", volume.flex_volume.is_some(), "there are no volume plugins on this node"),
        ("gitRepo", volume.git_repo.is_some(), "repositories are not cloned; use an init container"),
        ("nfs", volume.nfs.is_some(), NETWORK),
        ("iscsi", volume.iscsi.is_some(), NETWORK),
        ("fc", volume.fc.is_some(), NETWORK),
        ("glusterfs", volume.glusterfs.is_some(), NETWORK),
        ("cephfs", volume.cephfs.is_some(), NETWORK),
        ("rbd", volume.rbd.is_some(), NETWORK),
        ("quobyte", volume.quobyte.is_some(), NETWORK),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some(), CLOUD),
        ("azureDisk", volume.azure_disk.is_some(), CLOUD),
        ("azureFile", volume.azure_file.is_some(), CLOUD),
        ("cinder", volume.cinder.is_some(), CLOUD),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some(), CLOUD),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some(), CLOUD),
        ("portworxVolume", volume.portworx_volume.is_some(), CLOUD),
        ("scaleIO", volume.scale_io.is_some(), CLOUD),
        ("storageos", volume.storageos.is_some(), CLOUD),
        ("vsphereVolume", volume.vsphere_volume.is_some(), CLOUD),
        ("flocker", volume.flocker.is_some(), CLOUD),
    ];
    not_supported(&unsupported, path, errors);
    if let Some(host) = &volume.host_path {
        refuse_other_words::<HostPathType>(host.type_.as_deref(), &path.child("hostPath").child("type"), errors);
    }
    if let Some(directory) = &volume.empty_dir {
        let path = path.child("emptyDir");
        match directory.medium.as_deref().unwrap_or_default() {
            "" | "Memory" => {}
            huge if huge == "HugePages" || huge.starts_with("HugePages-") => {
                errors.not_supported(path.child("medium"), "volumes of huge pages are not made");
            }
            other => errors.unsupported(path.child("medium"), other, &["", "Memory"]),
        }
        if let Some(limit) = &directory.size_limit {
            quantity(limit, &path.child("sizeLimit"), errors);
        }
    }
    if let Some(image) = &volume.image {
        let path = path.child("image").child("pullPolicy");
        refuse_other_words::<image_manager::PullPolicy>(image.pull_policy.as_deref(), &path, errors);
    }
    let files = |files: &Option<Vec<api::DownwardAPIVolumeFile>>, path: &FieldPath, errors: &mut FieldErrors| {
        for (index, file) in files.iter().flatten().enumerate() {
            amount(file.resource_field_ref.as_ref(), &path.child("downwardAPI").child("items").index(index), errors);
        }
    };
    if let Some(downward) = &volume.downward_api {
        files(&downward.items, path, errors);
    }
    for (index, part) in volume.projected.iter().flat_map(|projected| &projected.sources).flatten().enumerate() {
        let path = path.child("projected").child("sources").index(index);
        let unsupported = [
            ("clusterTrustBundle", part.cluster_trust_bundle.is_some(), "trust bundles come from an API server"),
            ("podCertificate", part.pod_certificate.is_some(), "certificates of pods come from an API server"),
        ];
        not_supported(&unsupported, &path, errors);
        if let Some(downward) = &part.downward_api {
            files(&downward.items, &path, errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use manifest::fields;

    use super::*;

    /// Fails if a later version of the API has a new field: it must be implemented, refused or ignored before the number is
    /// changed here.
    #[test]
    fn no_field_of_the_api_is_passed_over() {
        let counts = [
            ("metadata", fields::<ObjectMeta>().len(), 15),
            ("spec", fields::<api::PodSpec>().len(), 42),
            ("container", fields::<api::Container>().len(), 25),
            ("ephemeral container", fields::<api::EphemeralContainer>().len(), 26),
            ("rights of a pod", fields::<api::PodSecurityContext>().len(), 13),
            ("rights of a container", fields::<api::SecurityContext>().len(), 12),
            ("resources", fields::<api::ResourceRequirements>().len(), 3),
            ("port", fields::<api::ContainerPort>().len(), 5),
            ("restart rule", fields::<api::ContainerRestartRule>().len(), 2),
            ("mount", fields::<api::VolumeMount>().len(), 7),
            ("variable", fields::<api::EnvVar>().len(), 3),
            ("source of a variable", fields::<api::EnvVarSource>().len(), 5),
            ("source of variables", fields::<api::EnvFromSource>().len(), 3),
            ("probe", fields::<api::Probe>().len(), 10),
            ("lifecycle", fields::<api::Lifecycle>().len(), 3),
            ("hook", fields::<api::LifecycleHandler>().len(), 4),
            ("HTTP request", fields::<api::HTTPGetAction>().len(), 5),
            ("volume", fields::<api::Volume>().len(), 31),
            ("part of a volume", fields::<api::VolumeProjection>().len(), 6),
            ("empty directory", fields::<api::EmptyDirVolumeSource>().len(), 2),
            ("host path", fields::<api::HostPathVolumeSource>().len(), 2),
            ("image volume", fields::<api::ImageVolumeSource>().len(), 2),
            ("token", fields::<api::ServiceAccountTokenProjection>().len(), 3),
            ("name servers", fields::<api::PodDNSConfig>().len(), 3),
        ];
        for (name, found, handled) in counts {
            assert_eq!(found, handled, "{name}");
        }
    }
}
