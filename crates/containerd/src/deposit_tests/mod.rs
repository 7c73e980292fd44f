//! Snapshots that are prepared before their parents, with a stand-in for the containerd that has them.

mod stand_in;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri_api::engine::runtime_store::{Deposit as _, Destination, LayerFacts, OpenSlot, Slot, StackedLayer};
use oci::Digest;

use crate::{ContainerdDeposit, Labels, layout_of};
use stand_in::{Containerd, Version};

/// Three layers, as diff ID and chain ID.
struct Layers([(Digest, Digest); 3]);

impl Layers {
    fn new() -> Self {
        let diff_ids = ["one", "two", "three"].map(|text| Digest::sha256(text.as_bytes()));
        let second = oci::chain_id(Some(&diff_ids[0]), &diff_ids[1]);
        let third = oci::chain_id(Some(&second), &diff_ids[2]);
        let chains = [diff_ids[0].clone(), second, third];
        let mut pairs = diff_ids.into_iter().zip(chains);
        Self(std::array::from_fn(|_| pairs.next().expect("three layers")))
    }

    fn stacked(&self) -> Vec<StackedLayer<'_>> {
        let parent = |place: usize| place.checked_sub(1).map(|below| &self.0[below].1);
        let layers = self.0.iter().enumerate();
        layers.map(|(place, (diff_id, chain_id))| StackedLayer { diff_id, chain_id, parent: parent(place) }).collect()
    }
}

/// A deposit into a stand-in of this version.
async fn begin(directory: &Path, version: Version) -> (Arc<Containerd>, ContainerdDeposit) {
    let containerd = Containerd::start(directory, version);
    let client = containerd.client();
    let snapshotters = client.snapshotters().await.expect("introspection");
    let overlayfs = snapshotters.into_iter().next().expect("overlayfs");
    assert_eq!(overlayfs.rebases, version != Version::Old);
    let lease = client.create_lease("one", "2100-01-01T00:00:00Z", Labels::new()).await.expect("created");
    (containerd, ContainerdDeposit::new(lease, overlayfs, layout_of("overlayfs", false).expect("a layout")))
}

/// Makes an unpacked layer with one file.
fn unpacked(directory: &Path, number: usize) -> PathBuf {
    let files = directory.join("imagelet").join(number.to_string());
    std::fs::create_dir_all(&files).expect("created");
    std::fs::write(files.join(number.to_string()), "content").expect("written");
    files
}

fn to_fill(slot: Slot) -> (OpenSlot, PathBuf) {
    match slot {
        Slot::Open(slot) => match slot.destination.clone() {
            Destination::Directory(tree) => (slot, tree),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Puts all layers, and returns their trees.
async fn put_all(deposit: &ContainerdDeposit, layers: &[StackedLayer<'_>], directory: &Path) -> Vec<PathBuf> {
    let mut trees = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let (slot, tree) = to_fill(deposit.open(*layer).await.expect("a slot"));
        deposit.place(&unpacked(directory, number), &slot).expect("moved");
        deposit.commit(&slot, *layer, &LayerFacts::default()).await.expect("committed");
        trees.push(tree);
    }
    trees
}

#[tokio::test]
async fn snapshots_are_prepared_early_and_get_their_parents_at_the_commit() {
    let directory = tempfile::tempdir().expect("a directory");
    let (containerd, deposit) = begin(directory.path(), Version::Rebases).await;
    let all = Layers::new();
    let layers = all.stacked();
    deposit.open_early(&layers).await.expect("prepared");
    let mut prepared = containerd.calls();
    prepared.sort();
    let mut wanted: Vec<String> = layers.iter().map(|layer| format!("prepare {} on \"\"", layer.chain_id)).collect();
    wanted.sort();
    assert_eq!(prepared, wanted, "each once, before any layer is there");

    let trees = put_all(&deposit, &layers, directory.path()).await;
    let commit = |layer: &StackedLayer<'_>| {
        let parent = layer.parent.map(ToString::to_string).unwrap_or_default();
        format!("commit {} on {parent:?}", layer.chain_id)
    };
    assert_eq!(containerd.calls(), layers.iter().map(commit).collect::<Vec<_>>(), "in order, and nothing else");
    for (number, (layer, tree)) in layers.iter().zip(trees).enumerate() {
        let parent = layer.parent.map(ToString::to_string).unwrap_or_default();
        assert_eq!(containerd.parent(&layer.chain_id.to_string()), Some(parent));
        assert!(tree.join(number.to_string()).exists(), "{} has its own files", tree.display());
    }
    assert_eq!(deposit.open(layers[2]).await.expect("a slot"), Slot::Present);
}

#[tokio::test]
async fn layer_is_opened_although_its_early_slot_is_not_ready() {
    let directory = tempfile::tempdir().expect("a directory");
    let (containerd, deposit) = begin(directory.path(), Version::Rebases).await;
    let all = Layers::new();
    let layers = all.stacked();
    let (early, trees) = tokio::join!(deposit.open_early(&layers), put_all(&deposit, &layers, directory.path()));
    early.expect("prepared");
    assert_eq!(trees.len(), 3);
    assert_eq!(containerd.active(), Vec::<String>::new(), "each was prepared once");
    for layer in layers {
        let parent = layer.parent.map(ToString::to_string).unwrap_or_default();
        assert_eq!(containerd.parent(&layer.chain_id.to_string()), Some(parent));
    }
}

#[tokio::test]
async fn containerd_before_rebase_gets_one_snapshot_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let (containerd, deposit) = begin(directory.path(), Version::Old).await;
    let all = Layers::new();
    let layers = all.stacked();
    deposit.open_early(&layers).await.expect("nothing to do");
    assert_eq!(containerd.calls(), Vec::<String>::new());
    put_all(&deposit, &layers, directory.path()).await;
    let calls = |layer: &StackedLayer<'_>| {
        let (chain, parent) = (layer.chain_id, layer.parent.map(ToString::to_string).unwrap_or_default());
        [format!("prepare {chain} on {parent:?}"), format!("commit {chain} on \"\"")]
    };
    assert_eq!(containerd.calls(), layers.iter().flat_map(calls).collect::<Vec<_>>());
    assert_eq!(containerd.parent(&layers[2].chain_id.to_string()), Some(layers[1].chain_id.to_string()));
}

#[tokio::test]
async fn snapshot_that_lost_its_parent_is_removed_and_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (containerd, deposit) = begin(directory.path(), Version::LosesParents).await;
    let all = Layers::new();
    let layers = all.stacked();
    deposit.open_early(&layers).await.expect("prepared");
    put_all(&deposit, &layers[..1], directory.path()).await;
    let (slot, _) = to_fill(deposit.open(layers[1]).await.expect("a slot"));
    let error = deposit.commit(&slot, layers[1], &LayerFacts::default()).await.expect_err("its parent is lost");
    let (chain, parent) = (layers[1].chain_id.to_string(), layers[0].chain_id.to_string());
    assert_eq!(
        error.message(),
        format!(
            "containerd: Snapshots.Commit {chain}: the snapshot was committed without its parent {parent}, and was removed"
        )
    );
    assert_eq!(containerd.parent(&chain), None);
    assert!(containerd.parent(&parent).is_some(), "the layer below is whole");
}

#[tokio::test]
async fn layer_that_another_client_commits_meanwhile_is_present() {
    let directory = tempfile::tempdir().expect("a directory");
    let (containerd, deposit) = begin(directory.path(), Version::Rebases).await;
    let all = Layers::new();
    let layers = all.stacked();
    deposit.open_early(&layers[..1]).await.expect("prepared");
    assert_eq!(containerd.active().len(), 1);
    containerd.commit(&layers[0].chain_id.to_string(), "");
    assert_eq!(deposit.open(layers[0]).await.expect("a slot"), Slot::Present);
    assert_eq!(containerd.active(), Vec::<String>::new(), "the own snapshot was removed");
}

#[tokio::test]
async fn early_slot_that_failed_is_opened_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (containerd, deposit) = begin(directory.path(), Version::Rebases).await;
    let all = Layers::new();
    let layers = all.stacked();
    containerd.fail(1);
    let error = deposit.open_early(&layers[..1]).await.expect_err("refused");
    assert!(error.message().ends_with(": no"), "{error}");
    put_all(&deposit, &layers, directory.path()).await;
    assert_eq!(containerd.parent(&layers[2].chain_id.to_string()), Some(layers[1].chain_id.to_string()));
}
