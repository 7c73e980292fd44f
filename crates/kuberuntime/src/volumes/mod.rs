//! [`Volumes`]: the directories of pods on the node's disk: their volumes, hosts files, files for last messages. Makes them
//! before containers are, keeps those up to date that are made of documents, and takes them away with everything mounted in
//! them. Never follows a link out of a pod's directory. Its work is on blocking threads.

mod container;
mod empty_dir;
mod files;
mod host_path;
pub(crate) mod place;
pub(crate) mod remove;
mod setup;
mod sub_path;
mod tear_down;
mod walk;

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use cri_api::Mount;

use crate::documents::Documents;
use crate::environment::PodContext;
use crate::pod::{Pod, Volume, VolumeSource};
pub(crate) use container::MountInput;
use place::{OpenDirectory, PRIVATE, one_name};

/// Exists where SELinux is in force.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// Failure to set up a pod's directories, with the kubelet's message if it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct VolumeSetupError(String);

/// The directories of pods.
pub struct Volumes(Arc<PodRoot>);

struct PodRoot {
    root: PathBuf,
    /// True if new files are relabelled for containers.
    relabel: bool,
    /// Held while a pod's directory is changed: work that no caller waits for any more must not overlap with the work
    /// that follows.
    busy: Mutex<BTreeMap<String, Weak<Mutex<()>>>>,
}

impl Volumes {
    /// Below `root`, one directory for each uid. It is made when the first pod needs it.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        let root = std::path::absolute(&root).unwrap_or(root);
        let relabel = std::path::Path::new(SELINUX).exists();
        Self(Arc::new(PodRoot { root, relabel, busy: Mutex::default() }))
    }

    /// Makes the volumes of a pod that its containers mount, or what of them is not there yet. Done again, it changes only
    /// what documents changed.
    ///
    /// # Errors
    /// The first volume that cannot be made, and why.
    pub(crate) async fn set_up(
        &self,
        pod: &Pod,
        documents: &Documents,
        context: &PodContext,
    ) -> Result<(), VolumeSetupError> {
        let (pod, documents, context) = (pod.clone(), setup::needed(pod, documents), context.clone());
        self.work(&pod.metadata.uid.clone(), move |shared| {
            let directory = shared.make(&pod.metadata.uid);
            let failed = |error| format!("error making pod data directories: make a directory: {error}");
            setup::volumes(&pod, &directory.map_err(failed)?, &documents, &context)
        })
        .await
    }

    /// Returns the mounts of a container, in order. Their sources exist when this returns.
    ///
    /// # Errors
    /// A path below a volume that is not there or leads out of it.
    pub(crate) async fn mounts(&self, input: MountInput) -> Result<Vec<Mount>, VolumeSetupError> {
        self.work(&input.pod.metadata.uid.clone(), move |shared| {
            let directory = shared.make(&input.pod.metadata.uid);
            let failed = |error| format!("make a directory: {error}");
            container::mounts(&input, &directory.map_err(failed)?, shared.relabel)
        })
        .await
    }

    /// Removes the volumes and the directory of a pod, which must not be in use any more. Idempotent.
    ///
    /// # Errors
    /// Something is still mounted, or cannot be removed.
    pub(crate) async fn tear_down(&self, uid: &str) -> Result<(), VolumeSetupError> {
        let name = uid.to_owned();
        let removed = self.work(uid, move |shared| {
            one_name(&name).map_err(|error| error.to_string())?;
            match OpenDirectory::open(&shared.root) {
                Ok(root) => tear_down::tear_down(&root, &name),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(format!("open {}: {error}", shared.root.display())),
            }
        });
        removed.await.map_err(|VolumeSetupError(reason)| {
            VolumeSetupError(format!("cannot take the directory of pod {uid:?} away: {reason}"))
        })
    }

    /// Returns the uids of all pods that have a directory, whatever program made it.
    ///
    /// # Errors
    /// The root cannot be read.
    pub(crate) async fn uids(&self) -> io::Result<Vec<String>> {
        let shared = Arc::clone(&self.0);
        base::blocking(move || {
            let root = match OpenDirectory::open(&shared.root) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                opened => opened?,
            };
            let names = root.names()?.into_iter();
            Ok(names.filter(|name| root.child(name).is_ok()).collect())
        })
        .await
        .unwrap_or_else(|| Err(io::Error::other("the program ends")))
    }

    /// Opens the directory of a pod's volume; `None` for volumes that have none on the node. No link below the root is followed. Blocks.
    pub(crate) fn open_directory(&self, uid: &str, volume: &Volume) -> Option<io::Result<OpenDirectory>> {
        let plugin = place::plugin_directory(VolumeSource::of(volume))?;
        let pod = OpenDirectory::open(&self.0.root).and_then(|root| root.child(uid));
        Some(pod.and_then(|pod| pod.child(place::VOLUMES)?.child(plugin)?.child(&volume.name)))
    }

    /// Does something to a pod's directory, alone, where it may block.
    async fn work<T: Send + 'static>(
        &self,
        uid: &str,
        work: impl FnOnce(&PodRoot) -> Result<T, String> + Send + 'static,
    ) -> Result<T, VolumeSetupError> {
        let shared = Arc::clone(&self.0);
        let turn = shared.turn(uid);
        let done = base::blocking(move || {
            let _alone = turn.lock();
            work(&shared)
        });
        done.await.unwrap_or_else(|| Err("the program ends".to_owned())).map_err(VolumeSetupError)
    }
}

impl PodRoot {
    /// Creates the directory of a pod.
    fn make(&self, uid: &str) -> io::Result<OpenDirectory> {
        let root = match OpenDirectory::open(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                use std::os::unix::fs::DirBuilderExt as _;
                std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.root)?;
                OpenDirectory::open(&self.root)?
            }
            opened => opened?,
        };
        root.made(one_name(uid)?, PRIVATE)
    }

    fn turn(&self, uid: &str) -> Arc<Mutex<()>> {
        let mut busy = self.busy.lock();
        busy.retain(|_, turn| turn.strong_count() > 0);
        let turn = busy.get(uid).and_then(Weak::upgrade).unwrap_or_default();
        busy.insert(uid.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
