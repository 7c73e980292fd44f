//! [`VolumeSetupError`]: why a pod's directories cannot be had.

/// Why a pod's directories cannot be had. The words are the kubelet's where it has some; of the first one the event is
/// `FailedMount`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeSetupError {
    /// A volume cannot be made.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {reason}")]
    SetUp {
        volume: String,
        /// Why.
        reason: String,
    },
    /// A container cannot get its mounts.
    #[error("{reason}")]
    Mount {
        container: String,
        /// Why.
        reason: String,
    },
    /// The pod's own directory cannot be made.
    #[error("error making pod data directories: {reason}")]
    Directory {
        /// Why.
        reason: String,
    },
    /// Something of the pod stays on the node.
    #[error("cannot take the directory of pod {uid:?} away: {reason}")]
    TearDown {
        uid: String,
        /// Why.
        reason: String,
    },
}
