//! Which snapshotters a containerd has.

use std::path::PathBuf;

use crate::client::answer;
use crate::{Client, Result, pb};

/// Capability of snapshotters that take the parent of a snapshot at its commit: containerd 2.2 and later.
const REBASE: &str = "rebase";
/// Type of the plugins that are snapshotters.
const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1";

/// A snapshotter of a containerd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshotter {
    /// Name, as calls have it: `overlayfs`.
    pub name: String,
    /// Directory of its files; `None`: containerd does not say.
    pub root: Option<PathBuf>,
    /// True if a snapshot can get its parent at its commit, so that it is prepared before its parent is committed.
    pub rebases: bool,
    /// Reason for which the snapshotter cannot be used; `None` if it can.
    pub error: Option<String>,
}

impl Client {
    /// Returns the snapshotters of this containerd, including those that it could not start.
    ///
    /// # Errors
    /// The call failed.
    pub async fn snapshotters(&self) -> Result<Vec<Snapshotter>> {
        let request = pb::introspection::PluginsRequest { filters: vec![format!("type=={SNAPSHOTTER}")] };
        let found = answer("Plugins", SNAPSHOTTER, self.introspection().plugins(request)).await?;
        let of = |plugin: pb::introspection::Plugin| Snapshotter {
            root: plugin.exports.get("root").map(PathBuf::from),
            rebases: plugin.capabilities.iter().any(|capability| capability == REBASE),
            error: plugin.init_err.map(|status| status.message),
            name: plugin.id,
        };
        Ok(found.plugins.into_iter().filter(|plugin| plugin.r#type == SNAPSHOTTER).map(of).collect())
    }
}
