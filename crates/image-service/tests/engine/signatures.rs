//! Signature policies: what is refused before any layer is asked for, what is accepted, and what holds for images that are
//! here already.

use std::fs;
use std::path::PathBuf;

use cri_api::engine::{ImageEngine as _, ImportOptions, MountRequest};
use cri_api::{BeforeVisible, ImageService as _, ImageSpec, Kind, PullImageRequest};
use image_service::{Engine, OpenError};
use oci::{Descriptor, Digest, Reference, media_type};
use registry::testing::{BuiltImage, BuiltIndex, Fault, ImageBuilder};
use serde_json::{Value, json};
use signature::Signature;
use signature::testing::{ARTIFACT_TYPE, TestKey, manifest, payload, tag};

use crate::support::{Node, image, layer, options};

/// A node whose policy demands a signature by one key of what is under `signed`, and rejects what is under `rejected`.
struct Signed {
    node: Node,
    key: TestKey,
}

impl Signed {
    async fn start() -> Self {
        Self::start_as(store::LayerFormat::default()).await
    }

    async fn start_as(format: store::LayerFormat) -> Self {
        let mut path = PathBuf::new();
        let node = Node::with(|options| {
            options.store.layer_format = format;
            path = options.root.with_file_name("policy.json");
            fs::write(&path, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).expect("writes");
            options.signature_policy = Some(path.clone());
        })
        .await;
        let this = Self { node, key: TestKey::generate() };
        this.trust(&this.key);
        this
    }

    /// The key that counts from now on.
    fn trust(&self, key: &TestKey) {
        let path = self.path("k.pub");
        fs::write(&path, key.pem()).expect("writes");
        let identity = json!({ "type": "matchRepository" });
        self.write_policy(&json!([{ "type": "sigstoreSigned", "keyPath": path, "signedIdentity": identity }]));
    }

    fn write_policy(&self, demand: &Value) {
        let host = self.node.registry.host();
        let policy = json!({
            "default": [{ "type": "insecureAcceptAnything" }],
            "transports": { "docker": {
                format!("{host}/signed"): demand,
                format!("{host}/rejected"): [{ "type": "reject" }],
            } },
        });
        fs::write(self.path("policy.json"), policy.to_string()).expect("writes");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.directory.path().join(name)
    }

    fn signature(&self, repository: &str, digest: &Digest) -> Signature {
        self.key.sign_image(&self.node.name(repository), digest)
    }

    /// Stores signatures as cosign does.
    fn push_signatures(&self, repository: &str, digest: &Digest, signatures: &[Signature]) {
        let pushed = self.push_manifest(repository, signatures, None);
        self.node.registry.tag(repository, &tag(digest), &pushed);
    }

    fn push_manifest(&self, repository: &str, signatures: &[Signature], subject: Option<&Descriptor>) -> Digest {
        let (bytes, blobs) = manifest(signatures, subject);
        for blob in blobs {
            self.node.registry.push_blob(repository, blob);
        }
        self.node.registry.push_manifest(repository, media_type::OCI_MANIFEST, bytes)
    }

    /// A pull that is refused with these words, and has asked for no layer and no config.
    async fn refused(&self, name: &str, image: &BuiltImage, words: &[&str]) {
        self.node.registry.clear_requests();
        let error = self.node.pull(name).await.expect_err(name);
        let message = error.message();
        assert_eq!(error.kind(), Kind::FailedPrecondition, "{message}");
        let begins = format!("SignatureValidationFailed: pull {}: signature policy ", self.node.name(name));
        assert!(message.starts_with(&begins), "{message}");
        for word in words {
            assert!(message.contains(word), "{message}\nhas no {word:?}");
        }
        assert!(!message.contains('\n') && message.len() < 1000, "{message}");
        self.nothing_of(image);
        assert!(self.node.status(name).await.is_none());
        self.node.check_clean().await;
        assert!(self.node.entries("layers").is_empty());
    }

    /// No blob of the image was asked for.
    fn nothing_of(&self, image: &BuiltImage) {
        for (digest, _) in image.blobs() {
            assert!(self.node.registry.requests_for(&digest.to_string()).is_empty(), "{digest} was asked for");
        }
    }
}

fn image_of(seed: u64) -> BuiltImage {
    image().layer(layer("c/z", seed, 20_000)).build()
}

fn sample() -> BuiltImage {
    image().layer(layer("a/x", 1, 20_000)).layer(layer("b/y", 2, 20_000)).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_signed_is_pulled() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    let digest = node.registry.push("signed/app", "v1", &image);
    let scope = format!("(scope \"{}/signed\")", node.registry.host());
    let key = signed.path("k.pub").display().to_string();
    let none = format!("no signature of {digest} was found");
    signed.refused("signed/app:v1", &image, &[&scope, "policy.json", &key, &none]).await;

    signed.push_signatures("signed/app", &digest, &[signed.signature("signed/app", &digest)]);
    let id = node.pull("signed/app:v1").await.expect("it is signed");
    assert_eq!(id, image.id().to_string());
    assert!(node.status("signed/app:v1").await.is_some());
    // By digest as well, and what is kept saves the requests.
    node.registry.clear_requests();
    node.pull(&format!("signed/app@{digest}")).await.expect("it is signed");
    assert!(node.registry.requests_for(&tag(&digest)).is_empty(), "{:?}", node.registry.requests());

    // What nothing is demanded of is not asked for signatures; what is rejected is not asked for at all.
    node.registry.push("free/app", "v1", &image);
    node.registry.push("rejected/app", "v1", &image);
    node.registry.clear_requests();
    node.pull("free/app:v1").await.expect("it is free");
    let documents = node.registry.requests_for("/manifests/");
    assert_eq!(documents.len(), 1, "the image's own, {documents:?}");
    node.registry.clear_requests();
    let error = node.pull("rejected/app:v1").await.expect_err("rejected");
    assert!(error.message().ends_with("/rejected\") rejects it"), "{error}");
    assert!(error.message().starts_with("SignatureValidationFailed: pull "), "{error}");
    assert_eq!((error.kind(), node.registry.requests().len()), (Kind::FailedPrecondition, 0));
    assert!(node.status("rejected/app:v1").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_that_do_not_count() {
    let signed = Signed::start().await;
    let registry = &signed.node.registry;
    let image = sample();
    let digest = registry.push("signed/app", "v1", &image);
    let (other, name) = (Digest::sha256(b"other"), signed.node.name("signed/app"));
    let good = signed.signature("signed/app", &digest);
    let tampered = Signature { payload: payload(&name, &digest), ..signed.signature("signed/app", &other) };
    let huge = signed.key.sign(&[payload(&name, &digest), vec![b' '; 20_000]].concat());
    let cases = [
        (TestKey::generate().sign_image(&name, &digest), "it was not made with the key"),
        (signed.signature("signed/app", &other), "is for another image"),
        (signed.signature("signed/other", &digest), "which matchRepository does not accept"),
        (tampered, "it was not made with the key"),
        (huge, "its payload is larger than is looked at"),
        (Signature { signature: "?".into(), ..good.clone() }, "it is not in base64"),
        (Signature { signature: "A".repeat(5000), ..good.clone() }, "it is longer than any signature"),
    ];
    for (bad, words) in &cases {
        signed.push_signatures("signed/app", &digest, std::slice::from_ref(bad));
        signed.refused("signed/app:v1", &image, &["the one signature that was found", words]).await;
    }
    let all: Vec<Signature> = cases.into_iter().map(|(bad, _)| bad).collect();
    signed.push_signatures("signed/app", &digest, &all);
    signed.refused("signed/app:v1", &image, &["none of 7 signatures", "; and more"]).await;

    // Manifests of signatures that are none.
    let index = registry.push_manifest("signed/app", media_type::OCI_INDEX, r#"{"schemaVersion":2,"manifests":[]}"#);
    for (bad, words) in [
        (index, ".sig is an index and not a manifest"),
        (registry.push_manifest("signed/app", media_type::OCI_MANIFEST, "{"), ".sig cannot be read"),
        (digest.clone(), "has no signature of cosign's in it"),
    ] {
        registry.tag("signed/app", &tag(&digest), &bad);
        signed.refused("signed/app:v1", &image, &[words]).await;
    }

    // A payload that is not there, and one that is damaged.
    signed.push_signatures("signed/app", &digest, std::slice::from_ref(&good));
    let blob = Digest::sha256(&good.payload);
    registry.faults().always(&format!("/blobs/{blob}"), Fault::Corrupt);
    signed.refused("signed/app:v1", &image, &["its payload is damaged"]).await;
    registry.faults().clear();
    registry.remove("signed/app", &blob);
    signed.refused("signed/app:v1", &image, &["its payload is not in the registry"]).await;

    signed.push_signatures("signed/app", &digest, &[good]);
    signed.node.pull("signed/app:v1").await.expect("now it is signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_are_fetched_from_any_host_that_has_them() {
    let signed = Signed::start().await;
    let (registry, mirror) = (&signed.node.registry, registry::testing::TestRegistry::open().await);
    signed.node.hosts_toml(&format!("server = \"{}\"\n[host.\"{}\"]\n", registry.url(), mirror.url()));
    let image = sample();
    let digest = registry.push("signed/app", "v1", &image);
    mirror.push("signed/app", "v1", &image);
    signed.refused("signed/app:v1", &image, &["no signature of"]).await;
    for (blob, _) in image.blobs() {
        assert!(mirror.requests_for(&blob.to_string()).is_empty(), "{blob} was asked for");
    }
    // A mirror that puts one of its own in front of the registry's gains nothing.
    signed.push_signatures("signed/app", &digest, &[signed.signature("signed/app", &digest)]);
    let (bytes, blobs) = manifest(&[TestKey::generate().sign_image(&signed.node.name("signed/app"), &digest)], None);
    blobs.into_iter().for_each(|blob| drop(mirror.push_blob("signed/app", blob)));
    let own = mirror.push_manifest("signed/app", media_type::OCI_MANIFEST, bytes);
    mirror.tag("signed/app", &tag(&digest), &own);
    signed.refused("signed/app:v1", &image, &["it was not made with the key"]).await;
    mirror.remove("signed/app", &own);
    signed.node.pull("signed/app:v1").await.expect("the registry has its signature");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_signatures_the_newest_are_looked_at() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    let digest = node.registry.push("signed/app", "v1", &image);
    let (stranger, name) = (TestKey::generate(), node.name("signed/app"));
    let good = signed.signature("signed/app", &digest);
    let mut many = vec![good.clone()];
    many.extend((0..64).map(|_| stranger.sign_image(&name, &digest)));
    signed.push_signatures("signed/app", &digest, &many);
    let words = ["none of 65 signatures", "not made with the key (64 times)", "more than are checked"];
    signed.refused("signed/app:v1", &image, &words).await;
    let payloads = node.registry.requests_for("/blobs/").len();
    assert_eq!(payloads, 1, "the same bytes come once");

    many.rotate_left(1);
    signed.push_signatures("signed/app", &digest, &many);
    node.pull("signed/app:v1").await.expect("the last one counts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_fails_is_no_registry_without_signatures() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    let digest = node.registry.push("signed/app", "v1", &image);
    let signature = signed.signature("signed/app", &digest);
    signed.push_signatures("signed/app", &digest, std::slice::from_ref(&signature));
    let payload = format!("/blobs/{}", Digest::sha256(&signature.payload));
    let faults = [
        (Fault::status(503), Kind::Unavailable, "RegistryUnavailable: pull "),
        (Fault::status(403), Kind::PermissionDenied, "pull "),
        (Fault::rate_limited("9999"), Kind::ResourceExhausted, "pull "),
        (Fault::Drop, Kind::Unavailable, "RegistryUnavailable: pull "),
    ];
    for pattern in [tag(&digest), payload] {
        for (fault, kind, begins) in &faults {
            node.registry.clear_requests();
            node.registry.faults().always(&pattern, fault.clone());
            let error = node.pull("signed/app:v1").await.expect_err(&pattern);
            assert_eq!(error.kind(), *kind, "{fault:?}: {error}");
            assert!(error.message().starts_with(begins), "{fault:?}: {error}");
            assert!(error.message().contains("look for signatures: "), "{fault:?}: {error}");
            signed.nothing_of(&image);
            node.registry.faults().clear();
        }
    }
    node.pull("signed/app:v1").await.expect("nothing stands in the way any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_or_its_manifest_may_be_signed() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let of = |platform: &str| {
        let image = ImageBuilder::new().platform(platform.parse().expect("a platform"));
        image.layer(layer("etc/platform", platform.len() as u64, 50)).build()
    };
    let index = BuiltIndex::new(vec![of("linux/arm64"), of("linux/amd64")]);
    let (arm, amd) = (&index.images[0], &index.images[1]);
    for (tag, by, is_signed) in
        [("other", arm.digest(), false), ("index", index.digest(), true), ("manifest", amd.digest(), true)]
    {
        let repository = format!("signed/{tag}");
        node.registry.push_index(&repository, "v1", &index);
        signed.push_signatures(&repository, by, &[signed.signature(&repository, by)]);
        let name = format!("{repository}:v1");
        if is_signed {
            node.pull(&name).await.expect(tag);
            assert!(node.status(&name).await.is_some(), "{tag}");
        } else {
            let both = format!("no signature of {} and of {} was found", index.digest(), amd.digest());
            signed.refused(&name, amd, &[&both]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_that_refer_to_their_image() {
    let signed = Signed::start().await;
    let registry = &signed.node.registry;
    let image = sample();
    for (repository, listed) in [("signed/listed", true), ("signed/tagged", false)] {
        let digest = registry.push(repository, "v1", &image);
        let signature = signed.signature(repository, &digest);
        let pushed = signed.push_manifest(repository, &[signature], Some(&image.descriptor));
        if !listed {
            // A registry that lists nothing: the list is a tag.
            registry.faults().always(&format!("{repository}/referrers/"), Fault::status(404));
            let name = format!("sha256-{}", digest.hex());
            signed.refused(&format!("{repository}:v1"), &image, &["no signature of "]).await;
            let entry = json!({
                "mediaType": media_type::OCI_MANIFEST, "digest": pushed, "artifactType": ARTIFACT_TYPE,
                "size": manifest_size(&signed, repository, &pushed).await,
            });
            let index = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": [entry] });
            let index = registry.push_manifest(repository, media_type::OCI_INDEX, index.to_string());
            registry.tag(repository, &name, &index);
        } else {
            signed.node.pull(&format!("{repository}:v1")).await.expect("it is signed");
            signed.node.engine.remove_image(&ImageSpec::new(image.id().to_string())).await.expect("removes");
            continue;
        }
        signed.node.pull(&format!("{repository}:v1")).await.expect("it is signed");
    }
}

async fn manifest_size(signed: &Signed, repository: &str, digest: &Digest) -> usize {
    let name = Reference::parse(&signed.node.name(&format!("{repository}@{digest}"))).expect("a reference");
    let client = registry::Client::new(registry::Options::default());
    client.repository(&name, None).expect("a session").resolve().await.expect("is there").bytes.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_named() {
    let signed = Signed::start().await;
    let registry = &signed.node.registry;
    let image = sample();
    registry.push("signed/app", "v1", &image);
    let bundle = json!({
        "schemaVersion": 2, "mediaType": media_type::OCI_MANIFEST,
        "artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "config": Descriptor::new("application/vnd.oci.empty.v1+json", Digest::sha256(b"{}"), 2),
        "layers": [], "subject": image.descriptor,
    });
    registry.push_manifest("signed/app", media_type::OCI_MANIFEST, bundle.to_string());
    signed.refused("signed/app:v1", &image, &["sigstore bundle", "--new-bundle-format=false"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_here_is_used_as_the_policy_says_now() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    let (name, id) = ("signed/app:v1", image.id().to_string());
    let digest = node.registry.push("signed/app", "v1", &image);
    // It was pulled before any signature was demanded.
    signed.write_policy(&json!([{ "type": "insecureAcceptAnything" }]));
    node.pull(name).await.expect("nothing is demanded");
    assert!(node.status(name).await.is_some());
    signed.trust(&signed.key);
    assert!(node.status(name).await.is_none(), "it may not be used by this name");
    for text in [id.as_str(), &id[7..], &id[7..20]] {
        assert!(!is_here(&signed, text).await, "nor by {text}");
        let looked_at = node.engine.inspect_image(&ImageSpec::new(text)).await.expect("a status");
        assert_eq!(looked_at.image.expect("what is here can be looked at").id, id);
        assert!(looked_at.info["info"].contains("imageSpec"));
    }
    assert_eq!(node.engine.list_images(None).await.expect("lists").len(), 1);
    for text in [node.name(name), id.clone()] {
        let target = node.directory.path().join("target");
        let request = MountRequest { image: ImageSpec::new(&text), target, writable: None };
        let error = node.engine.mount_image(&request).await.expect_err("not to be used");
        assert!(error.message().starts_with(&format!("SignatureValidationFailed: mount {text}: ")), "{error}");
        assert!(error.message().ends_with(" was found on this node"), "{error}");
    }
    node.registry.clear_requests();
    node.pull(name).await.expect_err("it is not signed");
    signed.nothing_of(&image);

    // Signed afterwards: nothing of it comes again but its documents.
    signed.push_signatures("signed/app", &digest, &[signed.signature("signed/app", &digest)]);
    node.registry.clear_requests();
    assert_eq!(node.pull(name).await.expect("it is signed"), id);
    signed.nothing_of(&image);
    assert!(node.status(name).await.is_some());

    // Without a network, by another process: what was found is kept with the image.
    node.registry.faults().always("/", Fault::Drop);
    let Signed { node: Node { engine, registry, directory }, key } = signed;
    engine.shutdown().await;
    drop(engine);
    let reopened = image_service::EngineOptions {
        signature_policy: Some(directory.path().join("policy.json")),
        trust_present_digests: true,
        ..options(directory.path())
    };
    let engine = Engine::open(reopened).await.expect("opens");
    let signed = Signed { node: Node { engine, registry, directory }, key };
    let node = &signed.node;
    let by_digest = format!("signed/app@{digest}");
    assert!(
        node.status(name).await.is_some() && node.status(&by_digest).await.is_some() && is_here(&signed, &id).await
    );
    node.pull(&by_digest).await.expect("its digest is trusted");

    // A key that is taken back counts no more, and one that is given again does.
    signed.trust(&TestKey::generate());
    assert!(node.status(name).await.is_none() && !is_here(&signed, &id).await);
    node.pull(&by_digest).await.expect_err("it is not signed with that key");
    signed.trust(&signed.key);
    assert!(node.status(name).await.is_some());
}

/// Returns true if an image may be used by this text, as ImageStatus says it.
async fn is_here(signed: &Signed, text: &str) -> bool {
    let status = signed.node.engine.image_status(&ImageSpec::new(text), false).await.expect("a status");
    let verbose = signed.node.engine.image_status(&ImageSpec::new(text), true).await.expect("a status");
    assert_eq!(status.image.is_some(), verbose.image.is_some(), "{text}");
    status.image.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_id_the_policy_is_asked_as_by_name() {
    for format in [store::LayerFormat::Dir, store::LayerFormat::Erofs] {
        let signed = Signed::start_as(format).await;
        let node = &signed.node;
        let image = sample();
        let id = image.id().to_string();
        let digest = node.registry.push("signed/app", "v1", &image);
        node.registry.push("free/app", "v1", &image);
        node.registry.push("rejected/app", "v1", &image);
        let accept = json!([{ "type": "insecureAcceptAnything" }]);
        signed.write_policy(&accept);
        node.pull("signed/app:v1").await.expect("nothing is demanded");
        assert!(is_here(&signed, &id).await);
        signed.write_policy(&json!([{ "type": "reject" }]));
        assert!(!is_here(&signed, &id).await, "its only name is rejected");
        signed.trust(&signed.key);
        assert!(!is_here(&signed, &id).await, "its only name is not signed");

        // One name by which it may be used is enough.
        node.pull("free/app:v1").await.expect("nothing is demanded");
        assert!(is_here(&signed, &id).await && node.status("signed/app:v1").await.is_none());
        let host = node.registry.host();
        let only = |demand: &Value| {
            let docker = json!({ "docker": { format!("{host}/signed"): demand } });
            let policy = json!({ "default": [{ "type": "reject" }], "transports": docker });
            fs::write(signed.path("policy.json"), policy.to_string()).expect("writes");
        };
        only(&json!([{ "type": "reject" }]));
        assert!(!is_here(&signed, &id).await, "none of its names is accepted");
        only(&accept);
        assert!(is_here(&signed, &id).await, "one is");

        // Without a name of its own the default decides; an image that no pod may use can be removed.
        node.registry.push("free/app", "v1", &image_of(9));
        node.registry.push("signed/app", "v1", &image_of(9));
        signed.write_policy(&accept);
        for name in ["free/app:v1", "signed/app:v1"] {
            node.pull(name).await.expect("nothing is demanded");
        }
        let store = node.engine.store();
        let record = store.resolve(&id.as_str().into()).expect("resolves").expect("is here");
        assert!(record.tags.is_empty() && record.repo_digests.iter().all(|name| name.ends_with(&digest.to_string())));
        assert!(is_here(&signed, &id).await);
        fs::write(signed.path("policy.json"), r#"{"default":[{"type":"reject"}]}"#).expect("writes");
        assert!(!is_here(&signed, &id).await);
        assert_eq!(node.engine.list_images(None).await.expect("lists").len(), 2);
        node.engine.remove_image(&ImageSpec::new(&id)).await.expect("removes");
        assert_eq!(node.engine.list_images(None).await.expect("lists").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_a_name_is_used_as_the_default_says() {
    let signed = Signed::start().await;
    let image = sample();
    let id = image.id().to_string();
    let accept = r#"{"default":[{"type":"insecureAcceptAnything"}]}"#;
    let reject = r#"{"default":[{"type":"reject"}]}"#;
    let demand = json!({ "default": [{ "type": "sigstoreSigned", "keyPath": signed.path("k.pub") }] }).to_string();
    let everything =
        r#"{"default":[{"type":"reject"}],"transports":{"docker":{"":[{"type":"insecureAcceptAnything"}]}}}"#;
    fs::write(signed.path("policy.json"), accept).expect("writes");
    let archive = signed.path("archive");
    image.write_layout(&archive, "v1").expect("writes");
    signed.node.engine.import(&archive, ImportOptions::default()).await.expect("imports");
    let record = signed.node.engine.store().resolve(&id.as_str().into()).expect("resolves").expect("is here");
    assert!(record.tags.is_empty() && record.repo_digests.is_empty(), "it has no name");
    for (policy, want) in [(accept, true), (reject, false), (&demand, false), (everything, true)] {
        fs::write(signed.path("policy.json"), policy).expect("writes");
        assert_eq!(is_here(&signed, &id).await, want, "{policy}");
    }
}

/// A change of policy or keys, and the error that it causes.
type Change = (fn(&Signed), &'static str);

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_withdrawn_while_a_pull_runs_counts_at_the_commit() {
    for format in [store::LayerFormat::Dir, store::LayerFormat::Erofs] {
        let signed = std::sync::Arc::new(Signed::start_as(format).await);
        let node = &signed.node;
        let image = sample();
        let digest = node.registry.push("signed/app", "v1", &image);
        signed.push_signatures("signed/app", &digest, &[signed.signature("signed/app", &digest)]);
        // Once the signatures are verified, and before anything is committed.
        let changes: [Change; 4] = [
            (|signed| signed.trust(&TestKey::generate()), "it was not made with the key"),
            (|signed| signed.write_policy(&json!([{ "type": "reject" }])), "rejects it"),
            (|signed| fs::write(signed.path("k.pub"), "no key").expect("writes"), "k.pub"),
            (|signed| fs::remove_file(signed.path("policy.json")).expect("removes"), "policy.json"),
        ];
        for (change, words) in changes {
            signed.trust(&signed.key);
            let during = pull_during(&signed, "signed/app:v1", change).await;
            let error = during.expect_err(words);
            assert_eq!(error.kind(), Kind::FailedPrecondition, "{error}");
            assert!(error.message().starts_with("SignatureValidationFailed: pull "), "{error}");
            assert!(error.message().contains(words), "{error}");
            signed.trust(&signed.key);
            assert!(node.status("signed/app:v1").await.is_none(), "{words}");
            assert_eq!(node.engine.list_images(None).await.expect("lists"), []);
            node.check_clean().await;
            assert!(node.entries("layers").is_empty());
        }
        // Nothing was demanded when it began.
        node.registry.push("signed/bare", "v1", &image);
        signed.write_policy(&json!([{ "type": "insecureAcceptAnything" }]));
        let error = pull_during(&signed, "signed/bare:v1", |signed| signed.trust(&signed.key)).await;
        assert!(error.expect_err("demanded meanwhile").message().contains("no signature of "));
        assert_eq!(node.engine.list_images(None).await.expect("lists"), []);
        // Nothing that counts has changed.
        signed.trust(&signed.key);
        pull_during(&signed, "signed/app:v1", |signed| signed.trust(&signed.key)).await.expect("it is signed");
    }
}

/// A pull in whose middle something is done, after its signatures were verified.
async fn pull_during(signed: &std::sync::Arc<Signed>, name: &str, change: fn(&Signed)) -> cri_api::Result<String> {
    let then = std::sync::Arc::clone(signed);
    let before_visible = BeforeVisible::new(move || {
        change(&then);
        Box::pin(async { Ok(()) })
    });
    let request = PullImageRequest { before_visible, ..PullImageRequest::new(signed.node.name(name)) };
    signed.node.engine.pull_image(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_name_of_an_image_is_signed_by_itself() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    for repository in ["signed/a", "signed/b"] {
        let digest = node.registry.push(repository, "v1", &image);
        node.pull(&format!("{repository}:v1")).await.expect_err("it is not signed");
        signed.push_signatures(repository, &digest, &[signed.signature(repository, &digest)]);
        node.pull(&format!("{repository}:v1")).await.expect("it is signed");
    }
    for repository in ["signed/a", "signed/b"] {
        assert!(node.status(&format!("{repository}:v1")).await.is_some(), "{repository}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_follow_the_policy() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    let layout = signed.path("layout");
    let write = |bytes: &[u8]| {
        let path = layout.join("blobs/sha256").join(Digest::sha256(bytes).hex());
        fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
        fs::write(path, bytes).expect("writes");
    };
    image.blobs().for_each(|(_, bytes)| write(&bytes));
    write(&image.manifest);
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("writes");
    let index = |manifests: &[Value]| {
        let index = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": manifests });
        fs::write(layout.join("index.json"), index.to_string()).expect("writes");
    };
    let entry = serde_json::to_value(&image.descriptor).expect("a descriptor");
    index(std::slice::from_ref(&entry));
    let import = async |name: &str| {
        let name = Some(Reference::parse(&node.name(name)).expect("a reference"));
        node.engine.import(&layout, ImportOptions { name, ..ImportOptions::default() }).await
    };
    for (name, words) in [("signed/app:v1", "was found in the archive"), ("rejected/app:v1", "rejects it")] {
        let error = import(name).await.expect_err(name);
        let begins = format!("SignatureValidationFailed: image {}: signature policy ", node.name(name));
        assert!(error.message().starts_with(&begins) && error.message().contains(words), "{error}");
        assert!(node.entries("layers").is_empty());
    }

    // As `cosign save` writes it.
    let (bytes, blobs) = manifest(&[signed.signature("signed/app", image.digest())], None);
    blobs.iter().chain([&bytes]).for_each(|bytes| write(bytes));
    let signatures = json!({
        "mediaType": media_type::OCI_MANIFEST, "digest": Digest::sha256(&bytes), "size": bytes.len(),
        "annotations": { "kind": "dev.cosignproject.cosign/sigs" },
    });
    index(&[entry, signatures]);
    import("signed/other:v1").await.expect_err("it is signed by another name");
    let imported = import("signed/app:v1").await.expect("it is signed");
    assert_eq!(imported.images.len(), 1);
    assert!(node.status("signed/app:v1").await.is_some());
    import("free/app:v1").await.expect("nothing is demanded");
}

/// A signature says of a digest that it is good. Under the name of another digest it would say so of another image.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_signed_image_does_not_pass_as_the_new_one() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let (old, new) = (sample(), image().layer(layer("a/x", 3, 20_000)).build());
    let (bytes, blobs) = manifest(&[signed.signature("signed/app", old.digest())], None);
    let layout = signed.path("layout");
    let pinned = format!("signed/app@{}", new.digest());
    old.write_layout(&layout, &node.name(&pinned)).expect("writes");
    for bytes in blobs.iter().chain([&bytes]) {
        fs::write(layout.join("blobs/sha256").join(Digest::sha256(bytes).hex()), bytes).expect("writes");
    }
    let text = fs::read(layout.join("index.json")).expect("readable");
    let mut index: Value = serde_json::from_slice(&text).expect("JSON");
    index["manifests"].as_array_mut().expect("a list").push(json!({
        "mediaType": media_type::OCI_MANIFEST, "digest": Digest::sha256(&bytes), "size": bytes.len(),
        "annotations": { "kind": "dev.cosignproject.cosign/sigs" },
    }));
    fs::write(layout.join("index.json"), index.to_string()).expect("writes");
    let error = node.engine.import(&layout, ImportOptions::default()).await.expect_err("it is another digest");
    assert!(error.message().contains(&new.digest().to_string()), "{error}");
    assert!(error.message().contains(&old.digest().to_string()), "{error}");
    assert!(node.status(&pinned).await.is_none());
    assert!(node.entries("layers").is_empty());
    // By its own digest it is what was signed.
    let name = Some(Reference::parse(&node.name(&format!("signed/app@{}", old.digest()))).expect("a reference"));
    node.engine.import(&layout, ImportOptions { name, ..ImportOptions::default() }).await.expect("it is signed");
    assert!(node.status(&pinned).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_cannot_be_read_opens_nothing() {
    let signed = Signed::start().await;
    let node = &signed.node;
    let image = sample();
    node.registry.push("free/app", "v1", &image);
    fs::write(signed.path("policy.json"), "{\n\"default\": [{\"type\": \"x\"}]}").expect("writes");
    let places = ["policy.json: default[0]: line 2, column ", "unknown type \"x\""];
    let error = node.pull("free/app:v1").await.expect_err("the policy is broken");
    for words in places.iter().chain(&["SignatureValidationFailed: pull "]) {
        assert!(error.message().contains(words), "{error}");
    }
    assert!(node.registry.requests().is_empty());
    node.engine.image_status(&ImageSpec::new(node.name("free/app:v1")), false).await.expect("it is not here");
    let broken = image_service::EngineOptions {
        signature_policy: Some(signed.path("policy.json")),
        root: signed.path("another"),
        ..options(node.directory.path())
    };
    let error = Engine::open(broken.clone()).await.expect_err("broken");
    assert!(matches!(error, OpenError::SignaturePolicy(_)), "{error}");
    for place in places {
        assert!(error.to_string().contains(place), "{error}");
    }
    assert!(!signed.path("another").exists(), "nothing was opened");
    let missing = image_service::EngineOptions { signature_policy: Some(signed.path("missing")), ..broken };
    let error = Engine::open(missing).await.expect_err("missing").to_string();
    assert!(error.starts_with("signature policy ") && error.contains("missing: No such file"), "{error}");

    signed.trust(&signed.key);
    node.pull("free/app:v1").await.expect("it was mended");
}
