//! A name with a digest stands for the content with that digest, no matter which client gives the name.

use std::path::Path;

use cri_api::engine::ImportOptions;
use cri_api::{ImageService as _, Kind};
use oci::{Digest, Reference};
use registry::testing::{BuiltImage, BuiltIndex, ImageBuilder, LayerBuilder};
use serde_json::json;
use store::LayerFormat;

use crate::support::{Node, image, layer};

const REPOSITORY: &str = "r.example/team/app";

async fn in_both_shapes() -> [Node; 2] {
    let node = |format| Node::with(move |options| options.store.layer_format = format);
    [node(LayerFormat::Dir).await, node(LayerFormat::Erofs).await]
}

fn built(seed: u64) -> BuiltImage {
    image().layer(layer("a/x", seed, 5000)).build()
}

fn named(name: &str) -> ImportOptions {
    ImportOptions { name: Some(Reference::parse(name).expect("a reference")), ..ImportOptions::default() }
}

/// A docker archive of an image, with this tag in it.
fn docker_archive(path: &Path, image: &BuiltImage, tag: &str) {
    let layers: Vec<String> = (0..image.layers.len()).map(|number| format!("{number}.tar")).collect();
    let manifest = json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": layers }]);
    let mut tar = LayerBuilder::new().file("config.json", image.config.to_vec());
    for (name, layer) in layers.iter().zip(&image.layers) {
        tar = tar.file(name, layer.tar.to_vec());
    }
    std::fs::write(path, tar.file("manifest.json", manifest.to_string()).plain().build().tar).expect("writes");
}

async fn is_refused(node: &Node, path: &Path, options: ImportOptions, words: &[String], case: &str) {
    let error = node.engine.import(path, options).await.expect_err(case);
    assert_eq!(error.kind(), Kind::InvalidArgument, "{case}: {error}");
    for word in words {
        assert!(error.message().contains(word), "{case}: no {word} in {error}");
    }
    assert!(node.engine.list_images(None).await.expect("lists").is_empty(), "{case}");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_under_a_foreign_digest_is_refused() {
    let out = tempfile::tempdir().expect("a directory");
    let (own, other) = (built(1), built(2));
    let foreign = format!("{REPOSITORY}@{}", other.digest());
    let with_tag = format!("{REPOSITORY}:v1@{}", other.digest());
    let both = [own.digest().to_string(), other.digest().to_string()];
    for node in in_both_shapes().await {
        for (case, name) in [("digest", &foreign), ("tag-and-digest", &with_tag)] {
            let path = out.path().join(case);
            // `org.opencontainers.image.ref.name` …
            own.write_layout(&path, name).expect("writes");
            is_refused(&node, &path, ImportOptions::default(), &both, case).await;
            // … containerd's annotation …
            let text = std::fs::read_to_string(path.join("index.json")).expect("readable");
            let text = text.replace("org.opencontainers.image.ref.name", "io.containerd.image.name");
            std::fs::write(path.join("index.json"), text).expect("writes");
            is_refused(&node, &path, ImportOptions::default(), &both, case).await;
            // … and the caller's name.
            own.write_layout(&path, "v1").expect("writes");
            is_refused(&node, &path, named(name), &both, case).await;
        }
        // One lie spoils the archive: nothing of it is stored.
        let path = out.path().join("two");
        own.write_layout(&path, "r.example/team/good:v1").expect("writes");
        let text = std::fs::read(path.join("index.json")).expect("readable");
        let mut index: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let mut lie = index["manifests"][0].clone();
        lie["annotations"] = json!({ "io.containerd.image.name": foreign });
        index["manifests"].as_array_mut().expect("a list").push(lie);
        std::fs::write(path.join("index.json"), index.to_string()).expect("writes");
        is_refused(&node, &path, ImportOptions::default(), &both, "two names").await;
        // An index: neither its digest nor that of the platform's manifest, but that of another platform's.
        let arm = ImageBuilder::new().platform("linux/arm64".parse().expect("a platform")).build();
        let index = BuiltIndex::new(vec![own.clone(), arm.clone()]);
        let path = out.path().join("index");
        index.write_layout(&path, &format!("{REPOSITORY}@{}", arm.digest())).expect("writes");
        let digests = [arm.digest(), own.digest(), index.digest()].map(Digest::to_string);
        is_refused(&node, &path, ImportOptions::default(), &digests, "another platform").await;
        // The digest of the config is no digest of the image's manifest.
        is_refused(&node, &path, named(&format!("{REPOSITORY}@{}", own.id())), &digests[1..], "its config").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_without_a_manifest_gets_no_digest() {
    let out = tempfile::tempdir().expect("a directory");
    let (own, path) = (built(1), out.path().join("docker.tar"));
    let name = format!("{REPOSITORY}@{}", own.digest());
    for node in in_both_shapes().await {
        let words = [own.digest().to_string(), "docker archive".to_owned(), "by a tag".to_owned()];
        docker_archive(&path, &own, &name);
        is_refused(&node, &path, ImportOptions::default(), &words, "RepoTags").await;
        docker_archive(&path, &own, &format!("{REPOSITORY}:v1@{}", own.digest()));
        is_refused(&node, &path, ImportOptions::default(), &words, "RepoTags with a tag").await;
        docker_archive(&path, &own, "app:v1");
        is_refused(&node, &path, named(&name), &words, "the caller's name").await;
        let imported = node.engine.import(&path, ImportOptions::default()).await.expect("imports").images;
        let status = node.engine.image_status(&imported[0].names[0].as_str().into(), false).await.expect("a status");
        assert_eq!(status.image.expect("is there").repo_digests, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_true_digest_is_taken() {
    let out = tempfile::tempdir().expect("a directory");
    let path = out.path().join("layout");
    let own = built(1);
    let arm = ImageBuilder::new().platform("linux/arm64".parse().expect("a platform")).build();
    let index = BuiltIndex::new(vec![arm, own.clone()]);
    for node in in_both_shapes().await {
        let by_tag = format!("{REPOSITORY}:v1@{}", index.digest());
        let by_sha512 = format!("{REPOSITORY}@{}", oci::Algorithm::Sha512.digest(&own.manifest));
        for name in [&format!("{REPOSITORY}@{}", own.digest()), &by_tag, &by_sha512] {
            index.write_layout(&path, name).expect("writes");
            let imported = node.engine.import(&path, ImportOptions::default()).await.expect(name).images;
            assert_eq!(imported[0].id, own.id().to_string());
            let status = node.engine.image_status(&name.as_str().into(), false).await.expect("a status");
            assert_eq!(status.image.expect(name).id, own.id().to_string(), "{name}");
        }
        // Names that are true of an earlier manifest of the same image stay so.
        let again = image().layer(layer("a/x", 1, 5000)).annotation("pushed", "again").build();
        assert!(again.id() == own.id() && again.digest() != own.digest());
        node.registry.push("app", "v2", &again);
        node.pull("app:v2").await.expect("pulls");
        for digest in [own.digest(), index.digest()] {
            let name = format!("{REPOSITORY}@{digest}");
            let status = node.engine.image_status(&name.as_str().into(), false).await.expect("a status");
            assert!(status.image.is_some(), "{name}");
        }
    }
}
