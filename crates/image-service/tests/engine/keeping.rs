//! Kept blobs: what was pulled goes out as it came, damaged layers come back with nothing fetched, and nothing of it
//! outlives its images or becomes visible before it was verified.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cri_api::engine::{
    CheckRequest, CheckSink, Compress, ExportOptions, Format, ImageEngine as _, ImportOptions, ProblemKind,
};
use cri_api::{ImageService as _, ImageSpec};
use image_service::Engine;
use oci::Digest;
use registry::testing::{BuiltImage, Fault};

use crate::support::{Node, blob, image, layer, noise, options};

async fn node() -> Node {
    Node::with(|options| options.keep_blobs = true).await
}

fn sample() -> BuiltImage {
    image()
        .layer(layer("a/x", 1, 200_000))
        .layer(layer("b/y", 2, 100_000).zstd())
        .layer(layer("c/z", 3, 50_000).plain())
        .annotation("org.example.note", "as it came")
        .build()
}

/// The files under `blobs/`, and how many bytes they take.
fn kept(node: &Node) -> (usize, u64) {
    let Ok(entries) = std::fs::read_dir(node.directory.path().join("store/blobs")) else { return (0, 0) };
    let sizes: Vec<u64> = entries.map(|e| e.expect("an entry").metadata().expect("there").blocks() * 512).collect();
    (sizes.len(), sizes.iter().sum())
}

fn kept_file(node: &Node, digest: &Digest) -> PathBuf {
    let (_, size) = node.engine.store().open_blob(digest).expect("readable").expect("kept");
    let entries = std::fs::read_dir(node.directory.path().join("store/blobs")).expect("there");
    let found = entries.map(|e| e.expect("an entry").path()).find(|path| {
        std::fs::read(path).is_ok_and(|bytes| bytes.len() as u64 == size && Digest::sha256(&bytes) == *digest)
    });
    found.expect("the file of the blob")
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).expect("readable");
    bytes[100] ^= 1;
    std::fs::write(path, bytes).expect("writes");
}

/// Changes one bit of a file in the image's lowest layer, and has it found.
async fn damage_lowest(node: &Node, id: &str) {
    node.damage(id, 0, "a/x");
    let report = repair(&node.engine).await;
    assert_eq!(report.incomplete_images, [id.to_owned()]);
}

async fn repair(engine: &Engine) -> cri_api::engine::CheckReport {
    let request = CheckRequest { repair: true, deep: false, since_unclean_only: false };
    engine.check_images(&request, &CheckSink::default()).await.expect("ends")
}

fn layout_bytes(layout: &Path, digest: &Digest) -> Vec<u8> {
    std::fs::read(layout.join("blobs/sha256").join(digest.hex())).expect("a blob of the layout")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_what_was_pulled() {
    let node = node().await;
    let image = sample();
    node.registry.push("app", "v1", &image);
    let id = node.pull("app:v1").await.expect("pulls");
    // A plain layer can always be built again.
    let (files, bytes) = kept(&node);
    assert_eq!(files, 2);
    let totals = node.engine.store().totals().expect("totals");
    let record = node.engine.store().resolve(&id.as_str().into()).expect("resolves").expect("there");
    assert_eq!((totals.blobs, record.blobs.len(), totals.bytes), (2, 2, record.size));
    assert!(bytes > 290_000 && record.size > bytes + 350_000, "{bytes} of {}", record.size);

    let out = tempfile::tempdir().expect("a directory");
    let layout = out.path().join("layout");
    node.engine.export(std::slice::from_ref(&id), &layout, Format::OciLayout).await.expect("exports");
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(layout.join("index.json")).expect("read")).expect("JSON");
    assert_eq!(index["manifests"][0]["digest"], image.digest().to_string());
    assert_eq!(layout_bytes(&layout, image.digest()), image.manifest);
    for (digest, bytes) in image.blobs() {
        assert_eq!(layout_bytes(&layout, &digest), bytes, "{digest}");
    }
    let archive = out.path().join("oci.tar");
    node.engine.export(std::slice::from_ref(&id), &archive, Format::OciArchive).await.expect("exports");
    let plain = out.path().join("plain");
    let options = ExportOptions { compress: Compress::No, ..Format::OciLayout.into() };
    node.engine.export(std::slice::from_ref(&id), &plain, options).await.expect("exports");
    assert_eq!(layout_bytes(&plain, &image.layers[0].diff_id), image.layers[0].tar);

    // What is imported is kept as well, and is the same image by digest.
    let to = self::node().await;
    for path in [&layout, &archive] {
        let imported = to.engine.import(path, ImportOptions::default()).await.expect("imports").images;
        assert_eq!(imported[0].id, id);
        let record = to.engine.store().resolve(&id.as_str().into()).expect("resolves").expect("there");
        assert_eq!((record.manifest_digest, record.blobs.len()), (image.digest().clone(), 2));
    }
    node.engine.remove_image(&ImageSpec::new(id)).await.expect("removes");
    assert_eq!(kept(&node), (0, 0));
    assert_eq!(node.engine.store().totals().expect("totals"), store::Totals::default());
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layer_is_restored_from_its_blob() {
    let node = node().await;
    let image = sample();
    node.registry.push("app", "v1", &image);
    let id = node.pull("app:v1").await.expect("pulls");
    damage_lowest(&node, &id).await;
    node.registry.clear_requests();
    assert_eq!(node.pull("app:v1").await.expect("heals"), id);
    assert!(node.registry.requests_for("/blobs/").is_empty(), "{:?}", node.registry.requests());
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 200_000)));
    assert_eq!(kept(&node).0, 2);

    // A blob that is damaged as well is fetched and kept again.
    damage_lowest(&node, &id).await;
    damage(&kept_file(&node, &blob(&image, 0)));
    node.registry.clear_requests();
    assert_eq!(node.pull("app:v1").await.expect("heals"), id);
    assert_eq!(node.registry.requests_for("/blobs/").len(), 1, "{:?}", node.registry.requests());
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 200_000)));
    kept_file(&node, &blob(&image, 0));
    assert_eq!(repair(&node.engine).await.problems, []);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_blob_harms_no_image() {
    let node = node().await;
    let image = sample();
    node.registry.push("app", "v1", &image);
    let id = node.pull("app:v1").await.expect("pulls");
    damage(&kept_file(&node, &blob(&image, 0)));
    let report = repair(&node.engine).await;
    let [problem] = report.problems.as_slice() else { panic!("{report:?}") };
    assert_eq!((problem.kind, problem.repaired, &problem.images), (ProblemKind::DamagedBlob, true, &vec![id.clone()]));
    assert!(report.incomplete_images.is_empty() && node.status("app:v1").await.is_some());
    assert_eq!(repair(&node.engine).await.problems, [], "sizes and sums were put right");
    assert_eq!(kept(&node).0, 1);

    // The rest of what was kept is no whole image any more: its layers are built again.
    let out = tempfile::tempdir().expect("a directory");
    let layout = out.path().join("one");
    node.engine.export(std::slice::from_ref(&id), &layout, Format::OciLayout).await.expect("exports");
    assert_eq!(layout_bytes(&layout, &image.layers[0].diff_id), image.layers[0].tar);
    // A blob that is damaged, which is not detected before the export.
    node.engine.remove_image(&ImageSpec::new(id.clone())).await.expect("removes");
    node.pull("app:v1").await.expect("pulls");
    damage(&kept_file(&node, &blob(&image, 1)));
    let layout = out.path().join("two");
    node.engine.export(std::slice::from_ref(&id), &layout, Format::OciLayout).await.expect("exports");
    assert_eq!(layout_bytes(&layout, &image.layers[1].diff_id), image.layers[1].tar);
    assert_eq!(std::fs::read_dir(layout.join("blobs/sha256")).expect("there").count(), 5, "no member too many");
    assert_eq!(node.engine.store().totals().expect("totals").blobs, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_verified_is_not_kept() {
    let node = node().await;
    let image = sample();
    node.registry.push("app", "v1", &image);
    node.registry.faults().always(&blob(&image, 1).to_string(), Fault::Corrupt);
    node.pull("app:v1").await.expect_err("the digest is another one");
    node.check_clean().await;
    assert_eq!(kept(&node), (0, 0));
    assert!(node.engine.store().open_blob(&blob(&image, 1)).expect("readable").is_none());
    node.registry.faults().clear();
    node.pull("app:v1").await.expect("pulls");
    assert_eq!(kept(&node).0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_come_at_once_share_their_blobs() {
    let node = node().await;
    let base = layer("a/x", 1, 300_000).build();
    let images: Vec<BuiltImage> =
        (2..5).map(|own| image().layer(base.clone()).layer(layer("b/y", own, 50_000)).build()).collect();
    for (number, image) in images.iter().enumerate() {
        node.registry.push("app", &format!("v{number}"), image);
    }
    let pulls: Vec<_> = (0..3).map(|number| node.start_pull(&format!("app:v{number}")).0).collect();
    let mut ids = Vec::new();
    for pull in pulls {
        ids.push(pull.await.expect("no panic").expect("pulls"));
    }
    assert_eq!(kept(&node).0, 4);
    for id in ids {
        assert!(node.engine.store().open_blob(&blob(&images[0], 0)).expect("readable").is_some());
        node.engine.remove_image(&ImageSpec::new(id)).await.expect("removes");
    }
    assert_eq!(kept(&node), (0, 0));
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_on_and_off() {
    let node = Node::start().await;
    let image = sample();
    node.registry.push("app", "v1", &image);
    node.registry.push("app", "v2", &image);
    node.pull("app:v1").await.expect("pulls");
    assert_eq!(kept(&node), (0, 0));
    // Later on: what is here is not fetched for its blobs' sake.
    let Node { engine, registry, directory } = node;
    engine.shutdown().await;
    drop(engine);
    let open = async |keep_blobs| {
        Engine::open(image_service::EngineOptions { keep_blobs, ..options(directory.path()) }).await.expect("opens")
    };
    let engine = open(true).await;
    let pull = async |engine: &Engine, name: &str| {
        let name = format!("{}/{name}", registry.host());
        engine.pull_image(cri_api::PullImageRequest::new(name)).await.expect("pulls")
    };
    registry.clear_requests();
    let id = pull(&engine, "app:v2").await;
    assert!(registry.requests_for("/blobs/").is_empty(), "{:?}", registry.requests());
    assert_eq!(engine.store().totals().expect("totals").blobs, 0);
    engine.remove_image(&ImageSpec::new(id)).await.expect("removes");
    pull(&engine, "app:v1").await;
    assert_eq!(engine.store().totals().expect("totals").blobs, 2);
    // Off again: what there is stays, and another image that names it has it too.
    engine.shutdown().await;
    drop(engine);
    let engine = open(false).await;
    let other = crate::support::image().layer(image.layers[0].clone()).layer(layer("o/o", 9, 1000)).build();
    registry.push("other", "v1", &other);
    let other = pull(&engine, "other:v1").await;
    assert_eq!(engine.store().resolve(&other.as_str().into()).expect("resolves").expect("there").blobs.len(), 1);
    assert_eq!(engine.store().totals().expect("totals").blobs, 2);
}
