//! [`StateFile`]: what the node followed last, on disk, so that an agent that restarts while the API server is away keeps its pins and
//! continues. Replaced as a whole. A file that cannot be read is renamed and reported. Called by [`super::daemon`].

use std::io;
use std::path::PathBuf;

use base::{blocking, write_private};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::followed::{FollowedSet, NodeFacts};
use super::held::HeldImages;

/// Version of the file's form.
const VERSION: u32 = 1;

/// State that a node followed last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedState {
    pub(super) version: u32,
    pub(super) node: Option<NodeFacts>,
    pub(super) sets: Vec<FollowedSet>,
    pub(super) held: HeldImages,
    /// Number of nodes of the cluster.
    pub(super) nodes: u32,
    /// Condition `Ready` of the last report.
    pub(super) condition: Option<Condition>,
}

impl SavedState {
    pub(super) fn new(node: Option<NodeFacts>, sets: Vec<FollowedSet>, held: HeldImages, nodes: u32) -> Self {
        Self { version: VERSION, node, sets, held, nodes, condition: None }
    }
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct StateFile(PathBuf);

impl StateFile {
    pub(super) fn new(directory: &std::path::Path) -> Self {
        Self(directory.join("node.json"))
    }

    /// Reads the state; an empty one if there is no file, or if it cannot be read.
    pub(super) async fn read(&self) -> SavedState {
        let path = self.0.clone();
        let read = blocking(move || match std::fs::read(&path) {
            Ok(text) => match serde_json::from_slice::<SavedState>(&text) {
                Ok(state) if state.version == VERSION => Ok(state),
                _ => {
                    let aside = path.with_extension("json.unreadable");
                    std::fs::rename(&path, &aside)?;
                    tracing::warn!(path = %aside.display(), "the state of image sets cannot be read, and was renamed");
                    Ok(SavedState::default())
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SavedState::default()),
            Err(error) => Err(error),
        });
        match read.await {
            Some(Ok(state)) => state,
            Some(Err(error)) => {
                tracing::warn!(path = %self.0.display(), %error, "cannot read the state of image sets");
                SavedState::default()
            }
            None => SavedState::default(),
        }
    }

    /// Replaces the file. Returns false after a failure, which is logged.
    pub(super) async fn write(&self, state: &SavedState) -> bool {
        let path = self.0.clone();
        let text = match serde_json::to_vec(state) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, "cannot serialize the state of image sets");
                return false;
            }
        };
        match blocking(move || write_private(&path, &text)).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::warn!(path = %self.0.display(), %error, "cannot write the state of image sets");
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unreadable_state_is_renamed_and_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = StateFile::new(directory.path());
        assert_eq!(file.read().await, SavedState::default());
        let node = NodeFacts { name: "edge".to_owned(), uid: "u".to_owned(), ..NodeFacts::default() };
        let state = SavedState::new(Some(node), Vec::new(), HeldImages::default(), 7);
        assert!(file.write(&state).await);
        assert_eq!(file.read().await, state);
        for text in ["{", "{\"version\":2,\"sets\":[],\"held\":[],\"nodes\":0}"] {
            std::fs::write(directory.path().join("node.json"), text).expect("written");
            assert_eq!(file.read().await, SavedState::default(), "{text}");
            let aside = std::fs::read_to_string(directory.path().join("node.json.unreadable"));
            assert_eq!(aside.expect("kept"), text);
        }
    }
}
