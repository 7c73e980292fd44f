//! The mounts of one container: its volumes, its hosts file, the file of its last message. Blocks. Called by
//! [`super::Volumes::mounts`].

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use cri_api::{ImageSpec, Mount, MountPropagation};

use super::place::{CONTAINERS, OpenDirectory, PRIVATE, VOLUMES, plugin_directory, text};
use super::sub_path::{self, SubPathMount};
use crate::environment::Environment;
use crate::pod::{self, Container, Pod, RecursiveReadOnly, Volume, VolumeMount, VolumeSource, Word as _};

/// The file in which containers find host names.
const ETC_HOSTS: &str = "/etc/hosts";
const HOSTS_FILE: &str = "etc-hosts";
/// Last messages of so many runs are kept: a status shows two.
const KEPT_MESSAGES: u32 = 8;

/// Input from which the mounts of one container are made.
#[derive(Clone, Debug)]
pub(crate) struct MountInput {
    pub pod: Pod,
    pub container: Container,
    /// Number of earlier runs: each run has its own file for the termination message.
    pub restart_count: u32,
    /// Variables of the container, for paths below volumes.
    pub environment: Environment,
    /// Text of the hosts file; `None`: the runtime's own is left alone.
    pub hosts: Option<String>,
    /// The image refs of the pod's image volumes, by the names of volumes.
    pub image_refs: BTreeMap<String, String>,
    /// True if the runtime handler can make mounts read-only with all that is mounted below them.
    pub recursive_read_only: bool,
}

/// Returns all mounts, in order.
pub(super) fn mounts(input: &MountInput, pod: &OpenDirectory, relabel: bool) -> Result<Vec<Mount>, String> {
    let container = &input.container;
    let mut mounts = Vec::new();
    for (number, mount) in container.volume_mounts.iter().enumerate() {
        mounts.push(one(input, pod, number, mount, relabel)?);
    }
    let has_hosts = mounts.iter().any(|mount| mount.container_path.trim_end_matches('/') == ETC_HOSTS);
    if let Some(hosts) = input.hosts.as_ref().filter(|_| !has_hosts) {
        let path = hosts_file(pod, hosts).map_err(|error| format!("failed to write its hosts file: {error}"))?;
        mounts.push(file(ETC_HOSTS, path, relabel));
    }
    if !container.termination_message_path.is_empty() {
        let path = message_file(pod, &container.name, input.restart_count)
            .map_err(|error| format!("failed to make the file of its last message: {error}"))?;
        mounts.push(file(&container.termination_message_path, path, relabel));
    }
    Ok(mounts)
}

fn file(container_path: &str, host_path: String, relabel: bool) -> Mount {
    Mount { container_path: container_path.to_owned(), host_path, selinux_relabel: relabel, ..Mount::default() }
}

fn one(
    input: &MountInput,
    pod: &OpenDirectory,
    number: usize,
    mount: &VolumeMount,
    relabel: bool,
) -> Result<Mount, String> {
    let name = mount.name.as_str();
    let volume = input.pod.spec.volumes.iter().find(|volume| volume.name == name);
    let volume = volume.ok_or_else(|| format!("the pod has no volume {name:?}"))?;
    let sub_path = match mount.sub_path_expr.as_deref().unwrap_or_default() {
        "" => mount.sub_path.clone().unwrap_or_default(),
        expression => input.environment.path(expression).map_err(|error| error.to_string())?,
    };
    let source = VolumeSource::of(volume);
    let of_documents =
        !matches!(source, VolumeSource::HostPath(_) | VolumeSource::EmptyDir(_) | VolumeSource::Image(_));
    let mut made = Mount {
        container_path: absolute(&mount.mount_path),
        readonly: mount.read_only.unwrap_or_default() || of_documents,
        recursive_read_only: recursive_read_only(mount, input.recursive_read_only)?,
        propagation: match propagation(mount) {
            None | Some(pod::MountPropagation::None) => MountPropagation::Private,
            Some(pod::MountPropagation::HostToContainer) => MountPropagation::HostToContainer,
            Some(pod::MountPropagation::Bidirectional) => MountPropagation::Bidirectional,
        },
        ..Mount::default()
    };
    if let VolumeSource::Image(image) = source {
        let image_ref = input.image_refs.get(name);
        let image_ref = image_ref.ok_or_else(|| format!("the image of volume {name:?} is not there"))?;
        made.readonly = true;
        made.image = Some(ImageSpec {
            user_specified_image: image.reference.clone().unwrap_or_default(),
            runtime_handler: input.pod.spec.runtime_class_name.clone(),
            annotations: input.pod.metadata.annotations.clone(),
            ..ImageSpec::new(image_ref.clone())
        });
        made.image_sub_path = sub_path;
        return Ok(made);
    }
    // What is the node's own keeps the labels that the node gave it.
    made.selinux_relabel = relabel && !matches!(source, VolumeSource::HostPath(_));
    made.host_path = if sub_path.is_empty() {
        match source {
            VolumeSource::HostPath(host) => host.path.clone(),
            _ => text(own_directory(pod, volume)?.path()).map_err(|error| error.to_string())?,
        }
    } else {
        let both_ways = made.propagation == MountPropagation::Bidirectional;
        let stand = SubPathMount { pod, volume: name, container: &input.container.name, number, both_ways };
        part(pod, volume, &sub_path, &stand).map_err(|reason| {
            let container = &input.container.name;
            format!("failed to prepare subPath for volumeMount {name:?} of container {container:?}: {reason}")
        })?
    };
    Ok(made)
}

/// Opens the directory of a volume that has one on the node.
fn own_directory(pod: &OpenDirectory, volume: &Volume) -> Result<OpenDirectory, String> {
    let plugin = plugin_directory(VolumeSource::of(volume)).unwrap_or_default();
    let found = pod.child(VOLUMES).and_then(|volumes| volumes.child(plugin)?.child(&volume.name));
    found.map_err(|error| format!("volume {:?} is not there: {error}", volume.name))
}

fn part(pod: &OpenDirectory, volume: &Volume, sub_path: &str, stand: &SubPathMount<'_>) -> Result<String, String> {
    let source = match VolumeSource::of(volume) {
        VolumeSource::HostPath(host) => {
            let path = &host.path;
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            let root = rustix::fs::open(path.as_str(), flags, rustix::fs::Mode::empty())
                .map_err(|error| format!("{path}: {}", std::io::Error::from(error)))?;
            sub_path::open(root.as_fd(), sub_path)?
        }
        _ => sub_path::open(own_directory(pod, volume)?.as_fd(), sub_path)?,
    };
    let path = stand.mount(source.as_fd())?;
    text(&path).map_err(|error| error.to_string())
}

fn propagation(mount: &VolumeMount) -> Option<pod::MountPropagation> {
    pod::MountPropagation::of(mount.mount_propagation.as_deref())
}

fn absolute(path: &str) -> String {
    if Path::new(path).is_absolute() { path.to_owned() } else { format!("/{path}") }
}

/// Decides about recursive read-only mounts like the kubelet, with its messages.
fn recursive_read_only(mount: &VolumeMount, runtime_can: bool) -> Result<bool, String> {
    let asked = match RecursiveReadOnly::of(mount.recursive_read_only.as_deref()) {
        None | Some(RecursiveReadOnly::Disabled) => return Ok(false),
        Some(asked) => asked,
    };
    let name = &mount.name;
    if mount.read_only != Some(true) {
        return Err(format!("volume {name:?} requested recursive read-only mode, but it is not read-only"));
    }
    if let Some(propagation) = propagation(mount).filter(|p| *p != pod::MountPropagation::None) {
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with propagation {:?}",
            propagation.as_str()
        ));
    }
    match (asked, runtime_can) {
        (RecursiveReadOnly::Enabled, false) => {
            Err(format!("volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"))
        }
        (_, can) => Ok(can),
    }
}

/// Writes the hosts file of the pod in place, since running containers have this very file mounted.
fn hosts_file(pod: &OpenDirectory, hosts: &str) -> std::io::Result<String> {
    let mut file = pod.file(HOSTS_FILE, 0o644)?;
    let mut found = String::new();
    let readable = (&file).take(1 << 20).read_to_string(&mut found).is_ok();
    if !readable || found != hosts {
        file.rewind()?;
        file.write_all(hosts.as_bytes())?;
        file.set_len(u64::try_from(hosts.len()).unwrap_or(u64::MAX))?;
    }
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o644))?;
    text(&pod.path().join(HOSTS_FILE))
}

/// Makes an empty file that every user in the container can write to.
fn message_file(pod: &OpenDirectory, container: &str, restart_count: u32) -> std::io::Result<String> {
    let directory = pod.made(CONTAINERS, PRIVATE)?.made(container, PRIVATE)?;
    for name in directory.names()? {
        let number = name.strip_suffix(".message").and_then(|number| number.parse::<u32>().ok());
        if number.is_some_and(|number| number < restart_count.saturating_sub(KEPT_MESSAGES)) {
            directory.unlink(&name)?;
        }
    }
    let name = format!("{restart_count}.message");
    // A file of this name belongs to a container that was not created in the end.
    directory.unlink(&name)?;
    directory.new_file(&name, 0o666)?;
    text(&directory.path().join(name))
}
