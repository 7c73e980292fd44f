//! Indexes: which manifest is chosen, what is recorded, what is refused.

use cri_api::{ImageService as _, Kind, PullImageRequest, Reason};
use image_service::{Engine, EngineOptions};
use oci::{Descriptor, Digest, media_type};
use registry::testing::{BuiltImage, BuiltIndex, ImageBuilder, TestRegistry};
use serde_json::json;

use crate::support::{Node, layer, options};

fn of(platform: &str) -> BuiltImage {
    let image = ImageBuilder::new().platform(platform.parse().expect("a platform"));
    image.layer(layer("etc/platform", platform.len() as u64, 50)).label("platform", platform).build()
}

fn push_index(registry: &TestRegistry, tag: &str, manifests: &[Descriptor]) -> Descriptor {
    let bytes = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": manifests }).to_string();
    let descriptor = Descriptor::new(media_type::OCI_INDEX, Digest::sha256(bytes.as_bytes()), bytes.len() as u64);
    let digest = registry.push_manifest("app", media_type::OCI_INDEX, bytes);
    registry.tag("app", tag, &digest);
    descriptor
}

fn without_platform(image: &BuiltImage) -> Descriptor {
    Descriptor { platform: None, ..image.descriptor.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_platform_is_chosen_and_the_index_digest_recorded() {
    let node = Node::start().await;
    let images = ["linux/arm64", "linux/386", "linux/amd64", "windows/amd64"].map(of).to_vec();
    for (tag, index) in [("oci", BuiltIndex::new(images.clone())), ("docker", BuiltIndex::docker(images.clone()))] {
        let digest = node.registry.push_index("app", tag, &index);
        let id = node.pull(&format!("app:{tag}")).await.expect(tag);
        assert_eq!(id, images[2].id().to_string());
        let status = node.status(&format!("app:{tag}")).await.expect("is there");
        assert!(status.repo_digests.contains(&node.name(&format!("app@{digest}"))), "{status:?}");
        assert!(!status.repo_digests.contains(&node.name(&format!("app@{}", images[2].digest()))), "{status:?}");
    }
    // By the manifest's own digest it is the same image, and what was known of its index is kept.
    let id = node.pull(&format!("app@{}", images[2].digest())).await.expect("pulls");
    let record = node.engine.store().resolve(&id.as_str().into()).expect("resolves").expect("is there");
    assert_eq!(record.repo_digests.len(), 3, "{:?}", record.repo_digests);
    assert!(record.index.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn second_best_is_better_than_nothing() {
    let node = Node::start().await;
    let images = ["linux/arm64", "linux/386"].map(of).to_vec();
    node.registry.push_index("app", "v1", &BuiltIndex::new(images.clone()));
    assert_eq!(node.pull("app:v1").await.expect("pulls"), images[1].id().to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_without_platform_is_judged_by_its_config() {
    let node = Node::start().await;
    let (arm, amd) = (of("linux/arm64"), of("linux/amd64"));
    for image in [&arm, &amd] {
        node.registry.push_untagged("app", image);
    }
    push_index(&node.registry, "both", &[without_platform(&arm), without_platform(&amd)]);
    assert_eq!(node.pull("app:both").await.expect("pulls"), amd.id().to_string());
    push_index(&node.registry, "arm", &[without_platform(&arm)]);
    let error = node.pull("app:arm").await.expect_err("nothing fits");
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.message().contains("nothing for linux/amd64; it is for linux/arm64"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_matching_platform_lists_what_there_is() {
    let node = Node::start().await;
    let mut images = ["linux/arm64", "linux/s390x"].map(of).to_vec();
    images.push(of("unknown/unknown"));
    node.registry.push_index("app", "v1", &BuiltIndex::new(images));
    node.registry.push("single", "v1", &of("linux/arm64"));
    for (name, want) in [("app:v1", "it is for linux/arm64, linux/s390x"), ("single:v1", "it is for linux/arm64")] {
        let error = node.pull(name).await.expect_err("nothing fits");
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.message().contains("no matching platform") && error.message().ends_with(want), "{error}");
    }
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_within_indexes_to_a_depth() {
    let node = Node::start().await;
    let image = of("linux/amd64");
    node.registry.push_untagged("app", &image);
    let mut inner = image.descriptor.clone();
    for depth in 1..=4 {
        inner = push_index(&node.registry, &format!("deep-{depth}"), &[inner]);
    }
    assert_eq!(node.pull("app:deep-3").await.expect("pulls"), image.id().to_string());
    let error = node.pull("app:deep-4").await.expect_err("too deep");
    assert_eq!(error.kind(), Kind::InvalidArgument, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_too_many_manifests_is_refused() {
    let node = Node::start().await;
    let image = of("linux/arm64");
    node.registry.push_untagged("app", &image);
    // Of none it says what it is for, so that each would have to be fetched.
    push_index(&node.registry, "many", &vec![without_platform(&image); 1000]);
    let error = node.pull("app:many").await.expect_err("refused");
    assert_eq!(error.kind(), Kind::InvalidArgument, "{error}");
    assert!(error.message().contains("more than 200 manifests"), "{error}");
    let platform = |n: usize| Some(oci::Platform::new("linux", &format!("made-up\n{n}"), ""));
    let strange = (0..500).map(|n| Descriptor { platform: platform(n), ..image.descriptor.clone() });
    push_index(&node.registry, "strange", &strange.collect::<Vec<_>>());
    let error = node.pull("app:strange").await.expect_err("refused");
    assert!(error.message().len() < 3000 && !error.message().contains('\n'), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_entry_that_is_something_else_is_refused() {
    let node = Node::start().await;
    let image = of("linux/amd64");
    node.registry.push_untagged("app", &image);
    let inner = push_index(&node.registry, "inner", std::slice::from_ref(&image.descriptor));
    let lying = Descriptor { media_type: media_type::OCI_MANIFEST.into(), ..inner };
    push_index(&node.registry, "lying", &[lying]);
    let error = node.pull("app:lying").await.expect_err("refused");
    assert!(matches!(error.kind(), Kind::InvalidArgument | Kind::DataLoss), "{error}");
    assert!(error.message().contains("ambiguous") || error.message().contains("its mediaType is"), "{error}");
}

/// A config without `os` or `architecture` runs on every platform, as in containerd and skopeo; what it states has to fit.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_a_config_lacks_matches_any_platform() {
    let node = Node::start().await;
    for (platform, left_out, runs) in [
        ("linux/amd64", &["os"][..], true),
        ("linux/amd64", &["architecture"], true),
        ("linux/arm64", &["architecture"], true),
        ("linux/arm/v6", &["architecture"], true),
        ("linux/arm64", &["os", "architecture"], true),
        ("windows/amd64", &["os"], true),
        ("linux/arm64", &["os"], false),
        ("windows/amd64", &["architecture"], false),
        ("linux/arm64", &[], false),
    ] {
        let builder = ImageBuilder::new().platform(platform.parse().expect("a platform")).layer(layer("a/x", 1, 50));
        let image = left_out.iter().fold(builder, |image, field| image.without(field)).build();
        node.registry.push("app", "v1", &image);
        let case = format!("{platform} without {left_out:?}");
        match node.pull("app:v1").await {
            Ok(id) => assert!(runs && id == image.id().to_string(), "{case}"),
            Err(error) => assert!(!runs && error.reason() == Some(Reason::NoPlatform), "{case}: {error}"),
        }
        // The same below an index that does not state a platform.
        push_index(&node.registry, "index", &[without_platform(&image)]);
        assert_eq!(node.pull("app:index").await.is_ok(), runs, "{case}, by an index");
    }
}

/// An image of one platform that is present already is no answer to a pull for another platform.
#[tokio::test(flavor = "multi_thread")]
async fn a_present_image_of_another_platform_is_refused() {
    let Node { engine, registry, directory } = Node::start().await;
    let image = of("linux/amd64");
    let digest = registry.push("app", "v1", &image);
    let names = [format!("{}/app:v1", registry.host()), format!("{}/app@{digest}", registry.host())];
    for name in &names {
        engine.pull_image(PullImageRequest::new(name)).await.expect("pulls");
    }
    engine.shutdown().await;
    drop(engine);
    for trust_present_digests in [false, true] {
        for (platform, runs) in [("linux/arm64", false), ("linux/amd64", true)] {
            let platform = platform.parse().expect("a platform");
            let other = EngineOptions { platform, trust_present_digests, ..options(directory.path()) };
            let engine = Engine::open(other).await.expect("opens");
            for name in &names {
                match engine.pull_image(PullImageRequest::new(name)).await {
                    Ok(id) => assert!(runs && id == image.id().to_string(), "{name}"),
                    Err(error) => {
                        assert!(!runs && error.reason() == Some(Reason::NoPlatform), "{name}: {error}");
                        assert!(
                            error.message().contains("has nothing for linux/arm64; it is for linux/amd64"),
                            "{error}"
                        );
                    }
                }
            }
            let stays = engine.image_status(&names[0].as_str().into(), false).await.expect("a status");
            assert!(stays.image.is_some(), "a pull that fails removes nothing");
            engine.shutdown().await;
        }
    }
}
