//! The rules that select the engine before a runtime: neither an image nor an error hands a pull to the runtime, and a
//! signature policy holds for images that the runtime has, no matter which client pulled them.

use std::fs;

use cri_api::engine::runtime_store::NamedImage;
use cri_api::{Error, ImageService as _, ImageSpec, Kind, PodSandboxConfig, PullImageRequest, Reason, Result};
use image_service::{PullEngine, UnsupportedImages};
use oci::{Descriptor, Digest, media_type};
use registry::testing::{BuiltImage, TestRegistry};
use serde_json::json;
use signature::testing::{TestKey, manifest, tag};

use crate::filling::{Detection, Filled, Record, Wrong};
use crate::support::{image, layer};

const ACCEPT: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
const REJECT: &str = r#"{"default": [{"type": "reject"}]}"#;

/// Every class of error but the one that a runtime without the call has.
const FAILURES: [Kind; 9] = [
    Kind::Unknown,
    Kind::Internal,
    Kind::ResourceExhausted,
    Kind::Unavailable,
    Kind::DeadlineExceeded,
    Kind::InvalidArgument,
    Kind::NotFound,
    Kind::PermissionDenied,
    Kind::Cancelled,
];

/// The error of a pull that nothing came of, and that the runtime was not asked for.
async fn refused(node: &Filled, request: PullImageRequest) -> Error {
    let pulled = node.images.pull_image(request).await;
    let state = node.fake.state.lock();
    assert_eq!(state.pulled, Vec::<String>::new(), "the runtime must not pull");
    pulled.expect_err("refused")
}

fn request(node: &Filled, name: &str) -> PullImageRequest {
    PullImageRequest::new(format!("{}/{name}", node.registry.host()))
}

async fn is_present(node: &Filled, name: &str) -> Result<bool> {
    let spec =
        ImageSpec::new(if name.starts_with("sha256:") { name.to_owned() } else { node_name(&node.registry, name) });
    Ok(node.images.image_status(&spec, false).await?.image.is_some())
}

fn node_name(registry: &TestRegistry, name: &str) -> String {
    format!("{}/{name}", registry.host())
}

/// The runtime pulls the image itself, before imagelet or past it.
fn bring_by_the_runtime(node: &Filled, name: &str, image: &BuiltImage) {
    let id = image.id().to_string();
    let named = NamedImage { target: image.digest().clone(), evidence: None };
    let record = Record { id: id.clone(), named };
    node.fake.state.lock().records.extend([(node_name(&node.registry, name), record.clone()), (id, record)]);
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn an_error_of_detection_is_no_answer() {
    for policy in [None, Some(REJECT), Some(ACCEPT)] {
        for rule in [PullEngine::Auto, PullEngine::Embedded] {
            let node = match policy {
                Some(policy) => Filled::under(rule, policy).await,
                None => Filled::start(rule).await,
            };
            bring_by_the_runtime(&node, "app:here", &node.app);
            for kind in FAILURES {
                for detection in [Detection::NoFsInfo(kind), Detection::NoStore(kind)] {
                    node.fake.state.lock().detection = detection;
                    let error = refused(&node, request(&node, "app:1")).await;
                    assert_eq!(error.kind(), kind, "{error}");
                    assert!(error.message().contains("no answer about"), "{error}");
                    assert_eq!(is_present(&node, "app:here").await.expect_err("not known").kind(), kind);
                    assert!(node.images.choice().await.is_err());
                }
            }
            // Nothing of that was kept.
            node.fake.state.lock().detection = Detection::Fillable;
            assert!(node.images.choice().await.expect("an answer").is_embedded);
            match policy {
                Some(REJECT) => {
                    let error = refused(&node, request(&node, "app:1")).await;
                    assert_eq!(error.reason(), Some(Reason::SignatureInvalid), "{error}");
                }
                _ => assert_eq!(node.pull("app:1").await.expect("pulls"), node.app.id().to_string()),
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_runtime_with_another_store_pulls_unless_a_policy_is_set() {
    for detection in [Detection::Unsuited, Detection::NoFsInfo(Kind::Unimplemented)] {
        let node = Filled::start(PullEngine::Auto).await;
        node.fake.state.lock().detection = detection;
        assert_eq!(node.pull("app:1").await.expect("the runtime pulls"), "by the runtime");
        for rule in [PullEngine::Auto, PullEngine::Runtime, PullEngine::Embedded] {
            let node = Filled::under(rule, ACCEPT).await;
            node.fake.state.lock().detection = detection;
            let error = refused(&node, request(&node, "app:1")).await;
            assert_eq!(error.reason(), Some(Reason::SignatureInvalid), "{error}");
        }
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn an_image_that_the_runtime_does_not_show_is_not_handed_to_it() {
    let node = Filled::start(PullEngine::Auto).await;
    node.set(&[Wrong::Record]);
    let error = refused(&node, request(&node, "app:1")).await;
    assert!(error.message().contains("the runtime does not show the image"), "{error}");
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_runtime_handler_counts_by_its_store() {
    let of_handler = |node: &Filled, handler: &str, of_sandbox: bool| {
        let mut request = request(node, "app:1");
        if of_sandbox {
            let mut sandbox = PodSandboxConfig::default();
            sandbox.annotations.insert("io.containerd.cri.runtime-handler".to_owned(), handler.to_owned());
            request.sandbox = Some(sandbox);
        } else {
            request.image.runtime_handler = handler.to_owned();
        }
        request
    };
    for of_sandbox in [false, true] {
        for policy in [None, Some(ACCEPT)] {
            let start = async || match policy {
                Some(policy) => Filled::under(PullEngine::Auto, policy).await,
                None => Filled::start(PullEngine::Auto).await,
            };
            let node = start().await;
            let pulled = node.images.pull_image(of_handler(&node, "runc", of_sandbox)).await;
            assert_eq!(pulled.expect("our engine pulls"), node.app.id().to_string());
            assert!(node.fake.state.lock().pulled.is_empty());

            let node = start().await;
            let error = refused(&node, of_handler(&node, "none", of_sandbox)).await;
            assert_eq!((error.kind(), error.message()), (Kind::InvalidArgument, "unknown runtime handler \"none\""));

            if policy.is_some() {
                let error = refused(&node, of_handler(&node, "kata", of_sandbox)).await;
                assert_eq!(error.reason(), Some(Reason::SignatureInvalid), "{error}");
            } else {
                let pulled = node.images.pull_image(of_handler(&node, "kata", of_sandbox)).await;
                assert_eq!(pulled.expect("the runtime pulls"), "by the runtime");
                assert!(node.fake.state.lock().records.is_empty());
            }
        }
    }
}

/// An image whose upper layer has another type, or URLs.
fn changed(seed: u64, change: impl FnOnce(&mut Descriptor)) -> BuiltImage {
    image().layer(layer("a", 1, 9000)).layer(layer("x", seed, 9000)).build().with_layer(1, change)
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn layers_of_others_are_ordinary_layers_of_their_registry() {
    for setting in [UnsupportedImages::Refuse, UnsupportedImages::Runtime] {
        let node = Filled::with(PullEngine::Auto, |options| options.unsupported_images = setting).await;
        let elsewhere = TestRegistry::open().await;
        for kind in [
            media_type::OCI_LAYER_GZIP,
            "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
            "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        ] {
            let image = changed(7, |layer| {
                kind.clone_into(&mut layer.media_type);
                layer.urls = vec![format!("http://{}/v2/x/blobs/{}", elsewhere.host(), layer.digest)];
            });
            node.registry.push("urls", "1", &image);
            assert_eq!(node.pull("urls:1").await.expect("it is in the registry"), image.id().to_string(), "{kind}");
        }
        // The registry has it not: nothing else is asked.
        let lost = changed(8, |layer| layer.urls = vec![format!("http://{}/layer", elsewhere.host())]);
        let pushed = node.registry.push_manifest("urls", media_type::OCI_MANIFEST, lost.manifest.clone());
        node.registry.tag("urls", "2", &pushed);
        node.registry.push_blob("urls", lost.config.clone());
        refused(&node, request(&node, "urls:2")).await;
        assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn what_cannot_be_unpacked_is_refused_unless_the_node_says_otherwise() {
    const ENCRYPTED: &str = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
    for kind in [ENCRYPTED, "application/vnd.example.unknown"] {
        let plain = changed(7, |layer| kind.clone_into(&mut layer.media_type));
        let with_urls = changed(7, |layer| {
            kind.clone_into(&mut layer.media_type);
            layer.urls = vec!["http://127.0.0.1:1/x".to_owned()];
        });
        let push = |node: &Filled| {
            node.registry.push("strange", "plain", &plain);
            node.registry.push("strange", "urls", &with_urls);
        };
        let node = Filled::start(PullEngine::Auto).await;
        push(&node);
        for name in ["strange:plain", "strange:urls"] {
            let error = refused(&node, request(&node, name)).await;
            assert_eq!(error.kind(), Kind::InvalidArgument, "{error}");
            assert!(
                error.message().contains(kind) && error.message().contains("unsupportedImages: runtime"),
                "{error}"
            );
        }

        let runtime = |options: &mut image_service::EngineOptions| {
            options.unsupported_images = UnsupportedImages::Runtime;
        };
        let node = Filled::with(PullEngine::Auto, runtime).await;
        push(&node);
        let error = refused(&node, request(&node, "strange:urls")).await;
        assert!(error.message().contains(kind) && error.message().contains("an image with urls"), "{error}");
        assert_eq!(node.pull("strange:plain").await.expect("the runtime pulls"), "by the runtime");

        let node = Filled::with(PullEngine::Auto, |options| {
            runtime(options);
            let path = options.root.with_file_name("policy.json");
            fs::write(&path, ACCEPT).expect("written");
            options.signature_policy = Some(path);
        })
        .await;
        push(&node);
        let error = refused(&node, request(&node, "strange:plain")).await;
        assert!(error.message().contains(kind) && error.message().contains("signaturePolicy"), "{error}");
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_slot_that_only_the_runtime_fills_is_refused_under_a_policy() {
    let node = Filled::under(PullEngine::Auto, ACCEPT).await;
    node.set(&[Wrong::Slot]);
    let error = refused(&node, request(&node, "app:1")).await;
    assert_eq!(error.reason(), Some(Reason::SignatureInvalid), "{error}");
}

/// A node whose policy demands a signature by one key.
struct Signed {
    node: Filled,
    key: TestKey,
}

impl Signed {
    async fn start() -> Self {
        let this = Self { node: Filled::under(PullEngine::Auto, ACCEPT).await, key: TestKey::generate() };
        this.trust(&this.key);
        this
    }

    fn trust(&self, key: &TestKey) {
        let path = self.node.directory.path().join("k.pub");
        fs::write(&path, key.pem()).expect("written");
        let identity = json!({ "type": "matchRepository" });
        let demand = json!([{ "type": "sigstoreSigned", "keyPath": path, "signedIdentity": identity }]);
        self.policy(&json!({ "default": demand }).to_string());
    }

    fn policy(&self, text: &str) {
        fs::write(self.node.directory.path().join("policy.json"), text).expect("written");
    }

    fn sign(&self, repository: &str, digest: &Digest) {
        let signature = self.key.sign_image(&node_name(&self.node.registry, repository), digest);
        let (bytes, blobs) = manifest(&[signature], None);
        for blob in blobs {
            self.node.registry.push_blob(repository, blob);
        }
        let pushed = self.node.registry.push_manifest(repository, media_type::OCI_MANIFEST, bytes);
        self.node.registry.tag(repository, &tag(digest), &pushed);
    }

    async fn is_present(&self, name: &str) -> bool {
        is_present(&self.node, name).await.expect("an answer")
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_present_image_counts_only_if_the_policy_accepts_it_now() {
    let signed = Signed::start().await;
    let (node, id) = (&signed.node, signed.node.app.id().to_string());
    let names = ["app:1".to_owned(), format!("app@{}", node.app.digest()), id.clone()];
    // Pulled while everything was accepted.
    signed.policy(ACCEPT);
    node.pull("app:1").await.expect("pulls");
    for name in &names {
        assert!(signed.is_present(name).await, "{name}");
    }
    for policy in [REJECT, "{", ""] {
        signed.policy(policy);
        for name in &names {
            assert!(!is_present(node, name).await.is_ok_and(|present| present), "{policy:?} {name}");
        }
        assert_eq!(refused(node, request(node, "app:1")).await.reason(), Some(Reason::SignatureInvalid));
    }
    // By the policy of now it is not signed, then it is.
    signed.trust(&signed.key);
    for name in &names {
        assert!(!signed.is_present(name).await, "{name}");
    }
    refused(node, request(node, "app:1")).await;
    signed.sign("app", node.app.digest());
    let reads: Vec<usize> = (0..3).map(|layer| node.reads(layer)).collect();
    assert_eq!(node.pull("app:1").await.expect("it is signed"), id);
    assert_eq!((0..3).map(|layer| node.reads(layer)).collect::<Vec<_>>(), reads, "its layers are there");
    for name in &names {
        assert!(signed.is_present(name).await, "{name}");
    }
    // What is kept with the record saves the search.
    let before = node.registry.requests_for(&tag(node.app.digest())).len();
    node.pull("app:1").await.expect("it is signed");
    assert_eq!(node.registry.requests_for(&tag(node.app.digest())).len(), before);
    // Another key.
    signed.trust(&TestKey::generate());
    for name in &names {
        assert!(!signed.is_present(name).await, "{name}");
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn what_the_runtime_pulled_past_the_policy_is_absent() {
    let signed = Signed::start().await;
    let node = &signed.node;
    bring_by_the_runtime(node, "app:1", &node.app);
    let id = node.app.id().to_string();
    assert!(!signed.is_present("app:1").await && !signed.is_present(&id).await);
    signed.sign("app", node.app.digest());
    assert!(!signed.is_present("app:1").await, "nobody has verified it");
    assert_eq!(node.pull("app:1").await.expect("it is signed"), id);
    assert!(signed.is_present("app:1").await && signed.is_present(&id).await);

    // The runtime points the verified name to another image, and keeps what stands with the record.
    let other = image().layer(layer("z", 9, 9000)).build();
    {
        let mut state = node.fake.state.lock();
        let record = state.records.get_mut(&node_name(&node.registry, "app:1")).expect("a record");
        assert!(record.named.evidence.is_some());
        record.id = other.id().to_string();
        record.named.target = other.digest().clone();
    }
    assert!(!signed.is_present("app:1").await, "the evidence is of another image");
    // The signed image still has its name by digest.
    assert!(signed.is_present(&id).await);

    // Without the store there is no evidence.
    let unsuited = Filled::under(PullEngine::Auto, REJECT).await;
    unsuited.fake.state.lock().detection = Detection::Unsuited;
    bring_by_the_runtime(&unsuited, "app:1", &unsuited.app);
    assert!(!is_present(&unsuited, "app:1").await.expect("an answer"));
}
