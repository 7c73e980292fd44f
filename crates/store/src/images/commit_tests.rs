//! The step that cannot be made to fail from outside: the transaction.

use std::sync::atomic::Ordering;

use oci::Reference;

use super::*;
use crate::options::OpenOptions;
use crate::store::Store;
use crate::tar::build::Tar;

fn sources(store: &Store, lease: &Lease, tars: &[Tar]) -> (Vec<u8>, Vec<LayerSource>) {
    let layers: Vec<LayerSource> = tars
        .iter()
        .map(|tar| {
            let mut bytes = tar.bytes.clone();
            bytes.resize(bytes.len() + 1024, 0);
            let layer = store.new_layer(lease).expect("creates").unpack(&mut bytes.as_slice(), &|| false);
            LayerSource::New { layer: Arc::new(layer.expect("unpacks")), diff_id: Digest::sha256(&bytes) }
        })
        .collect();
    let diff_ids: Vec<&Digest> = layers.iter().map(LayerSource::diff_id).collect();
    let config = serde_json::json!({ "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": diff_ids } });
    (config.to_string().into_bytes(), layers)
}

fn count(store: &Store, directory: &str) -> usize {
    std::fs::read_dir(store.root().join(directory)).expect("readable").count()
}

#[test]
fn a_transaction_that_fails_leaves_the_store_as_before() {
    let top = tempfile::tempdir().expect("tempdir");
    let options = OpenOptions { reserve_bytes: 1 << 20, ..OpenOptions::default() };
    let store = Store::open(&top.path().join("store"), options).expect("opens");
    let fail = |on| store.catalog.db.reserve().fail.store(on, Ordering::Relaxed);
    let lease = store.lease();
    let lower = Tar::new().dir("d/").file("d/a", "aaa");
    let (config, layers) = sources(&store, &lease, std::slice::from_ref(&lower));
    let tag = Some(Reference::parse("docker.io/library/a:1").expect("a name"));
    let commit = ImageCommit { config, layers, tag: tag.clone(), ..ImageCommit::default() };
    let first = store.commit_image(&lease, commit).expect("commits");
    let totals = store.totals().expect("readable");

    // The upper layer depends on the lower one: its directories have been changed by the time of the failure.
    let (config, layers) = sources(&store, &lease, &[lower, Tar::new().file("d/b", "bbb")]);
    let commit = ImageCommit { config, layers, tag, ..ImageCommit::default() };
    fail(true);
    let error = store.commit_image(&lease, commit.clone()).expect_err("the database cannot write");
    assert!(matches!(error, CommitError::Store(StoreError::Database(_))), "{error:?}");
    fail(false);
    assert_eq!(store.images().expect("readable"), std::slice::from_ref(&first));
    assert_eq!(store.totals().expect("readable"), totals);
    assert_eq!((count(&store, "layers"), count(&store, "ingest")), (1, 2));

    let second = store.commit_image(&lease, commit).expect("commits, with the very same layers");
    assert_eq!(second.layers.len(), 2);
    assert_eq!(second.tags, first.tags);
    assert!(store.image_is_whole(&second));

    fail(true);
    store.remove_image(&second.id).expect_err("the database cannot write");
    fail(false);
    assert!(store.image_is_whole(&second), "what could not be unrecorded has its files");
    drop(lease);
    store.remove_image(&second.id).expect("removes");
    store.remove_image(&first.id).expect("removes");
    assert_eq!((count(&store, "layers"), count(&store, "ingest")), (0, 0));
}
