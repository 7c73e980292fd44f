//! Signature policies over the command line: what is not signed is refused with the kubelet's word before any layer is asked
//! for, what openssl signed as cosign does is pulled, and a broken policy ends the program before it does anything.

use std::fs;
use std::process::Command;

use base64::Engine as _;
use oci::{Descriptor, Digest, media_type};
use registry::testing::{BuiltImage, ImageBuilder, TestRegistry};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::{Imagelet, Scratch, runtime};

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
        let runtime = runtime();
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

    /// Pushes the signature of `cosign sign --key cosign.key` to the registry.
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

impl Scene {
    /// A pod's manifest.
    fn pod(&self, name: &str, image: &str, policy: &str) -> String {
        let path = self.scratch.join(&format!("{name}.yaml"));
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: '{image}', \
             imagePullPolicy: {policy}}}]}}\n"
        );
        fs::write(&path, text).expect("writes");
        path.display().to_string()
    }

    fn write_policy(&self, policy: &serde_json::Value) {
        fs::write(&self.policy, policy.to_string()).expect("writes");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_policy_holds_for_every_way_to_name_an_image() {
    for format in ["dir", "erofs"] {
        let s = Scene::new();
        // Whose image it is, is another question.
        let open = ("--image-pull-credentials-verification-policy", "NeverVerify");
        let imagelet = s.imagelet("store").global("--layer-format", format).global(open.0, open.1);
        let (name, image) = s.push("1");
        let id = image.id().to_string();
        s.write_policy(&json!({ "default": [{ "type": "insecureAcceptAnything" }] }));
        imagelet.ok(&["pull", &name]);
        let pods = [s.pod("by-name", &name, "Never"), s.pod("by-id", &id, "Never"), s.pod("by-hex", &id[7..], "Never")];
        let status = |here: bool| {
            let agent = imagelet.serve(&s.scratch.join("cri.sock"));
            let remote = Imagelet::remote(&format!("unix://{}", s.scratch.join("cri.sock").display()));
            for pod in &pods[..2] {
                let ensured = remote.run(&["ensure", "-f", pod]);
                assert_eq!(ensured.code, Some(i32::from(!here)), "{pod} over CRI: {}", ensured.stderr);
            }
            // What may not be used is on the list, and can be taken away.
            assert_eq!(remote.ids(), [id.as_str()]);
            let inspected = remote.run(&["inspect", &id]);
            assert_eq!(inspected.code, Some(i32::from(!here)), "{}", inspected.stderr);
            assert!(here || inspected.stderr.contains("the signature policy refuses it"), "{}", inspected.stderr);
            drop(agent);
            assert!(imagelet.ok(&["inspect", &id]).contains(&id));
        };
        pods[..2].iter().for_each(|pod| drop(imagelet.ok(&["ensure", "-f", pod])));
        status(true);
        s.write_policy(&json!({ "default": [{ "type": "reject" }] }));
        for pod in &pods {
            let said = imagelet.fails(1, &["ensure", "-f", pod]);
            assert!(said.contains("is not present with pull policy of Never") || pod.contains("by-hex"), "{said}");
        }
        status(false);
        assert_eq!(imagelet.ids(), [id.as_str()]);
        imagelet.ok(&["rmi", &id]);
        assert_eq!(imagelet.ids(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_spelling_of_a_host_evades_a_policy() {
    let s = Scene::new();
    let imagelet = s.imagelet("store");
    s.push("1");
    let port = s.registry.host().rsplit_once(':').expect("a port").1.to_owned();
    let reject = json!([{ "type": "reject" }]);
    let scopes =
        json!({ format!("127.0.0.1:{port}"): reject, format!("localhost:{port}"): reject, "docker.io": reject });
    s.write_policy(&json!({ "default": [{ "type": "insecureAcceptAnything" }], "transports": { "docker": scopes } }));
    let hosts = [
        format!("127.0.0.1:{port}"),
        format!("127.0.0.1:0{port}"),
        format!("LOCALHOST:{port}"),
        format!("LocalHost:00{port}"),
        "Docker.io".to_owned(),
        "docker.io:443".to_owned(),
        "index.docker.io:0443".to_owned(),
    ];
    for host in hosts {
        let said = imagelet.fails(1, &["pull", &format!("{host}/team/app:1")]);
        assert!(said.contains("because the signature validation failed") && said.contains("rejects it"), "{said}");
    }
    for host in
        [format!("127.1:{port}"), format!("0x7f.1:{port}"), format!("2130706433:{port}"), "127.0.0.1:70000".into()]
    {
        let said = imagelet.fails(2, &["pull", &format!("{host}/team/app:1")]);
        assert!(said.contains(&format!("invalid reference format: host {host:?}: ")), "{said}");
    }
    assert!(s.registry.requests().is_empty(), "{:?}", s.registry.requests());

    // What was pulled in one spelling is there in every other, under its normal form.
    s.write_policy(&json!({ "default": [{ "type": "insecureAcceptAnything" }] }));
    imagelet.ok(&["pull", &format!("LOCALHOST:0{port}/team/app:1")]);
    assert_eq!(imagelet.images()[0]["repoTags"], json!([format!("localhost:{port}/team/app:1")]));
    let agent = imagelet.serve(&s.scratch.join("cri.sock"));
    let remote = Imagelet::remote(&format!("unix://{}", s.scratch.join("cri.sock").display()));
    for host in [format!("LOCALHOST:0{port}"), format!("localhost:{port}")] {
        remote.ok(&["ensure", "-f", &s.pod("spelled", &format!("{host}/team/app:1"), "Never")]);
    }
    drop(agent);
}

fn openssl(args: &[&str]) {
    let done = Command::new("openssl").args(args).output().expect("openssl, of scripts/prerequisites.sh");
    assert!(done.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
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
    for text in [&name, &image.id().to_string()] {
        let shown = imagelet.ok(&["inspect", text]);
        assert!(shown.contains(&image.id().to_string()) && shown.contains("\"config\""), "{shown}");
    }
    assert_eq!(imagelet.ids(), [image.id().to_string()]);
    imagelet.ok(&["check"]);
    imagelet.ok(&["df"]);
    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
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
    let done = Imagelet::remote(&nowhere)
        .global("--signature-policy", &s.policy)
        .global("--pull-engine", "runtime")
        .run(&["images"]);
    assert_eq!(done.stderr.matches("is not looked at").count(), 1, "{}", done.stderr);
}
