//! Signature policies over the command line: an unsigned image is refused with the kubelet's word before any layer is requested, an
//! image that openssl signed as cosign does is pulled, and a broken policy ends the program before it does anything.

use std::fs;
use std::process::Command;

use base64::Engine as _;
use oci::{Descriptor, Digest, media_type};
use registry::testing::{BuiltImage, ImageBuilder, TestRegistry};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::grpc_faults::GrpcFaults;
use crate::support::process::eventually;
use crate::support::{Containerd, Imagelet, Scratch, runtime};

const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

struct Scene {
    runtime: Runtime,
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
        Self { runtime, registry, scratch, policy }
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
            // An image that may not be used is listed, and can be removed.
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

    // An image that was pulled in one spelling is found in every other, under its normal form.
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
fn only_signed_images_are_written_to_disk() {
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

    // Behind a runtime that pulls itself, nothing would ask it.
    let nowhere = format!("unix://{}", s.scratch.join("nowhere.sock").display());
    let remote = Imagelet::remote(&nowhere).global("--signature-policy", &s.policy).global("--pull-engine", "runtime");
    let said = remote.fails(64, &["pull", &name]);
    assert!(said.contains("signaturePolicy is set, and pullEngine is runtime"), "{said}");
}

const ACCEPT: &str = "insecureAcceptAnything";

/// Imagelet before a containerd whose store it fills, with a policy.
struct Behind {
    s: Scene,
    containerd: Containerd,
    imagelet: Imagelet,
    /// Containerd's own pull, past the policy.
    plain: Imagelet,
}

/// A client of CRI without a policy, with a root of its own: records of its pulls concern no other test.
fn client(s: &Scene, endpoint: &str) -> Imagelet {
    let root = s.scratch.join("client");
    Imagelet::on(&root).global("--image-endpoint", endpoint).global("--pull-engine", "runtime")
}

impl Behind {
    fn new() -> Self {
        let s = Scene::new();
        let containerd = Containerd::start(&s.registry.host());
        let imagelet = s.imagelet("store").global("--image-endpoint", &containerd.endpoint());
        let plain = client(&s, &containerd.endpoint());
        Self { s, containerd, imagelet, plain }
    }

    fn default_is(&self, kind: &str) {
        self.s.write_policy(&json!({ "default": [{ "type": kind }] }));
    }

    /// Ensures a pod's image with the policies Never and IfNotPresent; returns for each whether it succeeded, and the messages.
    fn ensure(&self, imagelet: &Imagelet, image: &str) -> [(bool, String); 2] {
        ["Never", "IfNotPresent"].map(|policy| {
            let done = imagelet.run(&["ensure", "-f", &self.s.pod("p", image, policy)]);
            (done.code == Some(0), done.stderr)
        })
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_policy_holds_for_images_that_a_runtime_has() {
    let b = Behind::new();
    let signed_policy = fs::read_to_string(&b.s.policy).expect("a policy");
    let (name, image) = b.s.push("1");
    let id = image.id().to_string();
    b.plain.ok(&["pull", &name]);
    // A front for CRI clients; they apply no policy of their own.
    let mut agent = b.imagelet.serve(&b.s.scratch.join("cri.sock"));
    let front = client(&b.s, &format!("unix://{}", b.s.scratch.join("cri.sock").display()));
    let open = ("--image-pull-credentials-verification-policy", "NeverVerify");
    let (imagelet, front) = (b.imagelet.clone().global(open.0, open.1), front.global(open.0, open.1));

    for policy in [json!({ "default": [{ "type": "reject" }] }).to_string(), signed_policy.clone()] {
        fs::write(&b.s.policy, &policy).expect("writes");
        for client in [&imagelet, &front] {
            for text in [&name, &id] {
                let [never, if_not_present] = b.ensure(client, text);
                assert!(!never.0 && never.1.contains("is not present with pull policy of Never"), "{}", never.1);
                assert!(!if_not_present.0, "{text} under {policy}");
                assert!(*text == id || if_not_present.1.contains("signature"), "{}", if_not_present.1);
            }
        }
        assert_eq!(front.run(&["inspect", &name]).code, Some(1));
        assert_eq!(front.ids(), [id.as_str()], "it is listed");
    }
    // Signed, it is verified by the next pull and counts from then on, by name and by id.
    b.s.sign(image.digest());
    assert!(!b.ensure(&imagelet, &name)[0].0, "nothing has verified it");
    front.ok(&["pull", &name]);
    for client in [&imagelet, &front] {
        for text in [&name, &id] {
            assert!(b.ensure(client, text).iter().all(|(ok, _)| *ok), "{text}");
        }
    }
    // Containerd points the name to another image, which is not signed.
    let other = ImageBuilder::tiny("other");
    b.s.registry.push("team/app", "1", &other);
    b.plain.ok(&["pull", &name]);
    assert!(!b.ensure(&imagelet, &name)[0].0, "the evidence is of another image");
    agent.stop();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_image_in_a_runtime_is_verified_without_its_layers() {
    let b = Behind::new();
    let signed_policy = fs::read_to_string(&b.s.policy).expect("a policy");
    let (name, image) = b.s.push("1");
    b.default_is(ACCEPT);
    b.imagelet.ok(&["pull", &name]);
    fs::write(&b.s.policy, &signed_policy).expect("writes");
    b.s.sign(image.digest());
    assert!(!b.ensure(&b.imagelet, &name)[0].0);
    b.s.registry.clear_requests();
    let [_, pulled] = b.ensure(&b.imagelet, &name);
    assert!(pulled.0, "{}", pulled.1);
    let layer = image.layers[0].descriptor.digest.to_string();
    let reads = b.s.registry.requests_for(&layer).into_iter().filter(|request| request.method == "GET").count();
    assert_eq!(reads, 0, "{:?}", b.s.registry.requests());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn containerd_with_a_changed_snapshotter_pulls_nothing_past_a_policy() {
    let mut b = Behind::new();
    let (name, _) = b.s.push("1");
    let mut agent = b.imagelet.serve(&b.s.scratch.join("cri.sock"));
    let front = client(&b.s, &format!("unix://{}", b.s.scratch.join("cri.sock").display()));
    front.fails(1, &["pull", &name]);
    b.containerd.set_snapshotter("overlayfs", "native");
    // Until the agent sees the other snapshotter, and then as well.
    eventually("the agent has seen the other snapshotter", || {
        let done = front.run(&["pull", &name]);
        assert_ne!(done.code, Some(0), "{}", done.stderr);
        done.stderr.contains("the signature validation failed") && done.stderr.contains("snapshotter is native")
    });
    agent.stop();
    assert_eq!(b.plain.ids(), Vec::<String>::new());
    for engine in ["auto", "embedded", "runtime"] {
        b.imagelet.clone().global("--pull-engine", engine).fails(64, &["pull", &name]);
    }
    assert_eq!(b.plain.ids(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_failed_detection_lets_nothing_past_a_policy() {
    let b = Behind::new();
    let (name, image) = b.s.push("1");
    let _in = b.s.runtime.enter();
    let faults = GrpcFaults::start(b.s.scratch.join("faulty.sock"), b.containerd.socket());
    let open = Imagelet::on(&b.s.scratch.join("open")).global("--image-endpoint", &faults.endpoint());
    let guarded = b.s.imagelet("guarded").global("--image-endpoint", &faults.endpoint());
    // UNKNOWN, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE
    for status in [2, 8, 13, 14] {
        faults.fail("Introspection/Plugins", status);
        for imagelet in [&open, &guarded] {
            let mut agent = imagelet.serve(&b.s.scratch.join("cri.sock"));
            let front = client(&b.s, &format!("unix://{}", b.s.scratch.join("cri.sock").display()));
            let said = front.run(&["pull", &name]);
            assert_ne!(said.code, Some(0), "{status}");
            assert!(said.stderr.contains("a fault of the test"), "{status}: {}", said.stderr);
            let said = imagelet.run(&["pull", &name]);
            assert!(said.code != Some(0) && said.stderr.contains("a fault of the test"), "{}", said.stderr);
            faults.heal();
            if std::ptr::eq(imagelet, &guarded) {
                let said = front.fails(1, &["pull", &name]);
                assert!(said.contains("the signature validation failed"), "{said}");
            }
            faults.fail("Introspection/Plugins", status);
            agent.stop();
            assert_eq!(b.plain.ids(), Vec::<String>::new(), "{status}");
        }
    }
    faults.heal();
    assert_eq!(open.ok(&["pull", &name]).trim(), image.id().to_string());
}
