//! Sets up the volumes of a pod, each by its source. Blocks. Called by [`super::Volumes::set_up`].

use rustix::fs::Gid;

use super::place::{OpenDirectory, PRIVATE};
use super::place::{VOLUMES, plugin_directory};
use super::{empty_dir, files, host_path};
use crate::documents::{DocumentKind, Documents};
use crate::environment::PodContext;
use crate::pod::{HostPathType, Pod, Volume, VolumeSource, Word as _, is_in_memory, size_limit};
use crate::volume_files::volume_files;

/// Returns the documents that volumes of the pod need: the others need not be copied.
pub(super) fn needed(pod: &Pod, documents: &Documents) -> Documents {
    let mut needed =
        Documents { unknown: documents.unknown.clone(), tokens: documents.tokens.clone(), ..Documents::default() };
    for (kind, name) in pod.spec.volumes.iter().flat_map(|volume| VolumeSource::of(volume).documents()) {
        if let Some(document) = documents.get(kind, name) {
            needed.insert(kind, name, document.clone());
        }
    }
    needed
}

/// Makes every volume that a container mounts, or what of it is not as it must be. One that cannot be made keeps no other
/// one from following its documents.
pub(super) fn volumes(
    pod: &Pod,
    directory: &OpenDirectory,
    documents: &Documents,
    context: &PodContext,
) -> Result<(), String> {
    let used = |name: &str| {
        pod.all_containers().any(|(_, container)| container.volume_mounts.iter().any(|mount| mount.name == name))
    };
    let mut first = Ok(());
    for volume in pod.spec.volumes.iter().filter(|volume| used(&volume.name)) {
        let made = make(pod, volume, directory, documents, context);
        first = first
            .and(made.map_err(|reason| format!("MountVolume.SetUp failed for volume {:?} : {reason}", volume.name)));
    }
    first
}

fn make(
    pod: &Pod,
    volume: &Volume,
    directory: &OpenDirectory,
    documents: &Documents,
    context: &PodContext,
) -> Result<(), String> {
    let source = VolumeSource::of(volume);
    if let VolumeSource::HostPath(host) = source {
        return host_path::check(&host.path, HostPathType::of(host.type_.as_deref()));
    }
    let Some(sort) = plugin_directory(source) else { return Ok(()) };
    let name = volume.name.as_str();
    // A missing document is reported before anything is made. Files that were made outlive their document, as in the
    // kubelet: containers that run have them, and one that is started again gets them.
    let wanted = match volume_files(pod, name, documents, context).transpose() {
        Ok(wanted) => wanted,
        Err(error) if files::stands(directory, sort, name) => {
            tracing::warn!(pod = pod.title(), %error, "document is missing, its files are kept");
            return Ok(());
        }
        Err(error) => return Err(error.reason),
    };
    let parent = directory.made(VOLUMES, PRIVATE).and_then(|volumes| volumes.made(sort, PRIVATE));
    let parent = parent.map_err(|error| format!("make the directory: {error}"))?;
    let group = group(pod)?;
    match (source, wanted) {
        (VolumeSource::EmptyDir(empty), _) if is_in_memory(empty) => {
            let size = empty_dir::memory_size(pod, size_limit(empty), context);
            empty_dir::in_memory(&parent, name, group, size).map(drop)
        }
        (VolumeSource::EmptyDir(_), _) => empty_dir::on_disk(&parent, name, group),
        (source, Some(wanted)) => {
            let mode = files::root_mode(group);
            // A Secret or a token must not get onto a disk.
            let is_secret = source.documents().any(|(kind, _)| kind == DocumentKind::Secret);
            let directory = if is_secret || source.tokens().next().is_some() {
                empty_dir::memory(&parent, name, mode, group, None)?
            } else {
                made_for_files(&parent, name, mode, group).map_err(|error| format!("make the directory: {error}"))?
            };
            files::write(&directory, &wanted, group).map(drop)
        }
        (_, None) => Err("it is of a sort that is not made".to_owned()),
    }
}

fn made_for_files(parent: &OpenDirectory, name: &str, mode: u32, group: Option<Gid>) -> std::io::Result<OpenDirectory> {
    let directory = parent.made(name, mode)?;
    if group.is_some() {
        rustix::fs::fchown(&directory, None, group)?;
        rustix::fs::fchmod(&directory, rustix::fs::Mode::from_raw_mode(mode))?;
    }
    Ok(directory)
}

/// Returns the group of the pod's volumes.
fn group(pod: &Pod) -> Result<Option<Gid>, String> {
    let Some(group) = pod.spec.security_context.fs_group else { return Ok(None) };
    let group = u32::try_from(group).map_err(|_| format!("fsGroup {group} is no group of Linux"))?;
    Ok(Some(Gid::from_raw(group)))
}
