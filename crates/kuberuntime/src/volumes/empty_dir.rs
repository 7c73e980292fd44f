//! emptyDir volumes, on disk and in memory. A volume exists once it is complete, and is then left to the pod: a
//! container may change owner and mode of its root, and the next setup must not change them back.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd as _;

use oci::Quantity;
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::place::{OpenDirectory, PRIVATE};
use super::remove::remove_tree;
use super::walk::{by_descriptor, mount_id};
use crate::environment::PodContext;
use crate::pod::{Container, Pod};

/// Mode of an empty directory: who may do what in it is the pod's affair.
const MODE: u32 = 0o777;
/// Mode of a directory in memory, as of `/tmp`.
const MODE_IN_MEMORY: u32 = 0o1777;
/// Bits of the mode that a volume with a group gains.
const OF_GROUP: u32 = 0o2770;

/// Creates a directory on disk.
pub(super) fn on_disk(parent: &OpenDirectory, name: &str, group: Option<Gid>) -> Result<(), String> {
    match parent.child(name) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("open the directory: {error}")),
    }
    make(parent, name, group).map_err(|error| format!("make the directory: {error}"))
}

/// Makes the directory, which gets its name when it is complete.
fn make(parent: &OpenDirectory, name: &str, group: Option<Gid>) -> io::Result<()> {
    let unfinished = format!("..{name}");
    remove_tree(parent.as_fd(), &unfinished)?;
    let made = parent.made(&unfinished, PRIVATE)?;
    if group.is_some() {
        rustix::fs::fchown(&made, None, group)?;
    }
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode(MODE, group)))?;
    parent.rename_new(&unfinished, name)
}

fn mode(mode: u32, group: Option<Gid>) -> u32 {
    if group.is_some() { mode | OF_GROUP } else { mode }
}

/// Creates a directory in memory. An existing mount is kept, even across a restart of this program.
pub(super) fn in_memory(
    parent: &OpenDirectory,
    name: &str,
    group: Option<Gid>,
    size: Option<u64>,
) -> Result<OpenDirectory, String> {
    memory(parent, name, mode(MODE_IN_MEMORY, group), group, size)
}

/// Mounts a file system in memory with a root of this mode.
pub(super) fn memory(
    parent: &OpenDirectory,
    name: &str,
    mode: u32,
    group: Option<Gid>,
    size: Option<u64>,
) -> Result<OpenDirectory, String> {
    let place = parent.made(name, PRIVATE).map_err(|error| format!("make the directory: {error}"))?;
    if is_mounted(parent, &place)? {
        return Ok(place);
    }
    let mut options = format!("mode={mode:o}");
    if let Some(group) = group {
        options.push_str(&format!(",gid={}", group.as_raw()));
    }
    if let Some(size) = size {
        options.push_str(&format!(",size={size}"));
    }
    // What is in memory stays there, where the kernel can promise it.
    let mounted = match mount(&place, &format!("{options},noswap")) {
        Err(Errno::INVAL) => mount(&place, &options),
        done => done,
    };
    mounted.map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => "it lies in memory, and only root may mount that".to_owned(),
        error => format!("mount tmpfs: {}", io::Error::from(error)),
    })?;
    let place = parent.child(name).map_err(|error| format!("open the directory: {error}"))?;
    if is_mounted(parent, &place)? { Ok(place) } else { Err("what was mounted on it is not to be seen".to_owned()) }
}

fn mount(place: &OpenDirectory, options: &str) -> rustix::io::Result<()> {
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", by_descriptor(place.as_fd()), "tmpfs", flags, options.as_c_str())
}

fn is_mounted(parent: &OpenDirectory, place: &OpenDirectory) -> Result<bool, String> {
    let number =
        |directory: &OpenDirectory| mount_id(directory.as_fd()).map_err(|error| format!("find its mount: {error}"));
    Ok(number(parent)? != number(place)?)
}

/// Returns the size of a directory in memory: its limit, but at most the memory limit of the pod's containers
/// together, and that of all pods.
pub(super) fn memory_size(pod: &Pod, limit: Option<Quantity>, context: &PodContext) -> Option<u64> {
    let amount = |quantity: Quantity| u64::try_from(quantity.value()).ok().filter(|amount| *amount > 0);
    [limit.and_then(amount), amount(context.allocatable_memory), pod_memory_limit(pod)].into_iter().flatten().min()
}

/// Memory that the containers of a pod may use together, in bytes; `None` if one of them has no limit.
fn pod_memory_limit(pod: &Pod) -> Option<u64> {
    let limit = |container: &Container| {
        let limit = container.resources.limits.get("memory")?.value();
        u64::try_from(limit).ok().filter(|limit| *limit > 0)
    };
    let (mut sidecars, mut most) = (0_u64, 0_u64);
    for container in &pod.spec.init_containers {
        let own = limit(container)?;
        most = most.max(sidecars.saturating_add(own));
        if container.is_sidecar() {
            sidecars = sidecars.saturating_add(own);
        }
    }
    let mut together = sidecars;
    for container in &pod.spec.containers {
        together = together.saturating_add(limit(container)?);
    }
    Some(most.max(together))
}
