//! [`MountInput`]: everything from which the mounts of one container are made.

use std::collections::BTreeMap;

use crate::environment::Environment;
use crate::pod::{Container, ContainerKind, Pod};

/// Input from which the mounts of one container are made.
#[derive(Clone, Copy, Debug)]
pub struct MountInput<'a> {
    pub pod: &'a Pod,
    pub kind: ContainerKind,
    pub container: &'a Container,
    /// How many were before it: the file of its last message is its own.
    pub restart_count: u32,
    /// Variables of the container, for paths below volumes.
    pub environment: &'a Environment,
    /// Text of the hosts file; `None`: the runtime's own is left alone.
    pub hosts: Option<&'a str>,
    /// The image refs of the pod's image volumes, by the names of volumes.
    pub image_refs: &'a BTreeMap<String, String>,
    pub runtime_handler: &'a str,
    /// True if the handler can make mounts read-only with all that is mounted below them.
    pub recursive_read_only: bool,
}
