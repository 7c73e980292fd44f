//! Signature policies over the command line: what is not signed is refused with the kubelet's word before any layer is asked
//! for, what openssl signed as cosign does is pulled, and a broken policy ends the program before it does anything.

use std::fs;
use std::process::Command;

use base64::Engine as _;
use oci::{Descriptor, Digest, media_type};
use registry::testing::{BuiltImage, ImageBuilder, TestRegistry};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::{Imagelet, Scratch};

const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

struct Scene {
    _runtime: Runtime,
    registry: TestRegistry,
    scratch: Scratch,
    policy: String,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let registry = runtime.block_on(TestRegistry::open());
        let path = |name: &str| scratch.join(name).display().to_string();
        openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", &path("cosign.key")]);
        openssl(&["pkey", "-in", &path("cosign.key"), "-pubout", "-out", &path("cosign.pub")]);
        let policy = path("policy.json");
        let demand = json!({
            "type": "sigstoreSigned", "keyPath": path("cosign.pub"), "signedIdentity": { "type": "matchRepository" },
        });
        let text = json!({
            "default": [{ "type": "reject" }],
            "transports": { "docker": { registry.host(): [demand] } },
        });
        fs::write(&policy, text.to_string()).expect("writes");
        Self { _runtime: runtime, registry, scratch, policy }
    }

    fn imagelet(&self, store: &str) -> Imagelet {
        Imagelet::on(&self.scratch.join(store)).global("--signature-policy", &self.policy)
    }

    fn push(&self, tag: &str) -> (String, BuiltImage) {
        let image = ImageBuilder::tiny(tag);
        self.registry.push("team/app", tag, &image);
        (format!("{}/team/app:{tag}", self.registry.host()), image)
    }

    /// What `cosign sign --key cosign.key` leaves at the registry.
    fn sign(&self, digest: &Digest) {
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": format!("{}/team/app", self.registry.host()) },
                "image": { "docker-manifest-digest": digest },
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string();
        let path = |name: &str| self.scratch.join(name).display().to_string();
        fs::write(path("payload"), &payload).expect("writes");
        openssl(&["dgst", "-sha256", "-sign", &path("cosign.key"), "-out", &path("signature"), &path("payload")]);
        let signature = fs::read(path("signature")).expect("reads");
        let signature = base64::prelude::BASE64_STANDARD.encode(signature);
        let config = self.registry.push_blob("team/app", "{}");
        let mut layer = self.registry.push_blob("team/app", payload);
        layer.media_type = PAYLOAD_TYPE.to_owned();
        layer.annotations.insert("dev.cosignproject.cosign/signature".to_owned(), signature);
        let config = Descriptor { media_type: media_type::OCI_CONFIG.to_owned(), ..config };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type::OCI_MANIFEST, "config": config, "layers": [layer],
        });
        let pushed = self.registry.push_manifest("team/app", media_type::OCI_MANIFEST, manifest.to_string());
        self.registry.tag("team/app", &format!("sha256-{}.sig", digest.hex()), &pushed);
    }
}

fn openssl(args: &[&str]) {
    let done = Command::new("openssl").args(args).output().expect("openssl, of scripts/prerequisites.sh");
    assert!(done.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn only_what_is_signed_comes_to_the_disk() {
    let s = Scene::new();
    let imagelet = s.imagelet("store");
    let (name, image) = s.push("1");
    let manifest = s.scratch.join("pod.yaml");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: '{name}'}}]}}\n"
    );
    fs::write(&manifest, pod).expect("writes");
    let manifest = manifest.display().to_string();

    let words = format!("because the signature validation failed: pull {name}: signature policy {} (scope ", s.policy);
    let key = s.scratch.join("cosign.pub").display().to_string();
    let said = imagelet.fails(1, &["pull", &name]);
    assert!(said.contains(&words) && said.contains(&format!("by key {key}: no signature of ")), "{said}");
    let said = imagelet.fails(1, &["ensure", "-f", &manifest]);
    assert!(said.contains(&words), "{said}");
    // By CRI as well.
    let agent = imagelet.serve(&s.scratch.join("cri.sock"));
    let said = imagelet.fails(1, &["pull", &name]);
    assert!(said.contains(&words), "{said}");
    drop(agent);
    assert!(s.registry.requests_for("/blobs/").is_empty(), "{:?}", s.registry.requests());
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    for directory in ["layers", "ingest"] {
        let left = fs::read_dir(s.scratch.join("store").join(directory)).expect("a directory").count();
        assert_eq!(left, 0, "{directory}");
    }

    s.sign(image.digest());
    imagelet.ok(&["ensure", "-f", &manifest]);
    assert_eq!(imagelet.ids(), [image.id().to_string()]);

    // Its default rejects what has another name.
    let host = s.registry.host().replace("127.0.0.1", "localhost");
    let said = imagelet.fails(1, &["pull", &format!("{host}/team/app:1")]);
    assert!(said.contains("(its default) rejects it"), "{said}");

    // With another key the image that is here is not used, and can be looked at and taken away.
    let other = s.scratch.join("cosign.key").display().to_string();
    openssl(&["genpkey", "-algorithm", "ED25519", "-out", &other]);
    openssl(&["pkey", "-in", &other, "-pubout", "-out", &key]);
    let said = imagelet.fails(1, &["ensure", "-f", &manifest]);
    assert!(said.contains("it was not made with the key"), "{said}");
    assert!(imagelet.ok(&["inspect", &name]).contains(&image.id().to_string()));
    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
}

#[test]
fn a_policy_that_cannot_be_used_ends_the_program() {
    let s = Scene::new();
    let (name, _) = s.push("1");
    fs::write(&s.policy, "{\"default\": [{\"type\": \"insecureAcceptAnything\"}],\n \"transport\": {}}")
        .expect("writes");
    let said = s.imagelet("store").fails(64, &["pull", &name]);
    assert!(said.contains(&format!("signature policy {}: line 2, column ", s.policy)), "{said}");
    assert!(said.contains("unknown field \"transport\""), "{said}");
    assert!(s.registry.requests().is_empty());

    // Behind a runtime it is that one's affair.
    let nowhere = format!("unix://{}", s.scratch.join("nowhere.sock").display());
    let done = Imagelet::remote(&nowhere).global("--signature-policy", &s.policy).run(&["images"]);
    assert_eq!(done.stderr.matches("is not looked at").count(), 1, "{}", done.stderr);
}
