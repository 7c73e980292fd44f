//! Bad input of every kind, from the command line, from manifests and from registries: each a one-line error that names
//! the thing, the right exit code, and a store that is as it was before.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use oci::{Digest, Platform};
use registry::testing::{BuiltImage, BuiltIndex, Fault, ImageBuilder, LayerBuilder, TestRegistry, schema1_manifest};
use tokio::runtime::Runtime;

use super::FORMAT;
use crate::support::tree::{self, Tree};
use crate::support::{Imagelet, Scratch, runtime};

/// A registry that sends wrong content on demand, and a store with one good image in it.
struct Scene {
    runtime: Runtime,
    registry: TestRegistry,
    imagelet: Imagelet,
    kept: String,
    scratch: Scratch,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        let runtime = runtime();
        let registry = runtime.block_on(TestRegistry::open());
        let imagelet = Imagelet::shaped(FORMAT, &scratch.join("store"));
        let image = ImageBuilder::tiny("kept");
        registry.push("good/kept", "1", &image);
        imagelet.ok(&["pull", &format!("{}/good/kept:1", registry.host())]);
        let kept = image.config_descriptor.digest.to_string();
        Self { runtime, registry, imagelet, kept, scratch }
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.registry.host())
    }

    /// The content of the store, without the database's own file.
    fn on_disk(&self) -> Tree {
        let mut tree = tree::read(&self.scratch.join("store"));
        tree.retain(|path, _| path.starts_with("layers") || path.starts_with("ingest"));
        // The directory of ingests is used by every pull; what it holds is what counts.
        tree.remove(std::path::Path::new("ingest"));
        tree.remove(std::path::Path::new("layers"));
        tree
    }

    /// Runs `args`, which must fail like this and change nothing. The answer is the line.
    #[track_caller]
    fn refused(&self, code: i32, names: &[&str], args: &[&str]) -> String {
        let before = self.on_disk();
        let said = self.imagelet.fails(code, args);
        for name in names {
            assert!(said.contains(name), "imagelet {args:?} does not name {name:?}: {said}");
        }
        assert_eq!(
            tree::differences(&before, &self.on_disk()),
            Vec::<String>::new(),
            "imagelet {args:?} left something"
        );
        assert_eq!(self.imagelet.ids(), [self.kept.as_str()], "after imagelet {args:?}");
        said
    }

    /// Pulls an image which the registry serves with this fault on requests whose path contains `pattern`.
    #[track_caller]
    fn refused_with_fault(&self, code: i32, names: &[&str], pattern: &str, fault: Fault) -> String {
        let image = ImageBuilder::tiny(&format!("{pattern} {fault:?}"));
        self.registry.push("bad/image", "1", &image);
        let pattern = match pattern {
            "layer" => image.layers[0].descriptor.digest.hex().to_owned(),
            "config" => image.config_descriptor.digest.hex().to_owned(),
            other => other.to_owned(),
        };
        self.registry.faults().always(&pattern, fault);
        let name = self.name("bad/image:1");
        let said = self.refused(code, &[names, &[name.as_str()][..]].concat(), &["pull", &name]);
        self.registry.faults().clear();
        said
    }
}

#[test]
fn names_that_do_not_parse() {
    let s = Scene::new();
    for name in ["a/UPPER:1", "a/b:", "a@sha256:12", "-x/y", "a/b:tag with blank", "http://host/a", ":1", "a//b"] {
        let done = s.imagelet.run(&["pull", "--", name]);
        assert!(matches!(done.code, Some(1 | 2)), "{name}: {done:?}");
        let code = done.code.expect("it has one");
        s.refused(code, &[name], &["pull", "--", name]);
    }
}

#[test]
fn manifests_that_hold_no_pod() {
    let s = Scene::new();
    let cases = [
        ("empty.yaml", "", "empty.yaml"),
        ("nothing.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec: {containers: []}\n", "containers"),
        ("absent.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec: {}\n", "containers"),
        ("kind.yaml", "apiVersion: example.org/v1\nkind: Rocket\nmetadata: {name: r}\n", "rocket/r"),
        (
            "no-image.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: main}]}\n",
            "main",
        ),
        (
            "policy.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: a, imagePullPolicy: Sometimes}]}\n",
            "Sometimes",
        ),
        ("broken.yaml", "apiVersion: v1\nkind: [Pod\n", "broken.yaml"),
    ];
    for (file, text, names) in cases {
        let path = s.scratch.join(file);
        fs::write(&path, text).expect("write a manifest");
        let done = s.imagelet.run(&["ensure", "-f", &path.display().to_string()]);
        assert!(matches!(done.code, Some(1 | 2)), "{file}: {done:?}");
        s.refused(done.code.expect("it has one"), &[names, file], &["ensure", "-f", &path.display().to_string()]);
    }
    let gone = s.scratch.join("gone.yaml").display().to_string();
    s.refused(1, &["gone.yaml", "No such file"], &["ensure", "-f", &gone]);
}

#[test]
fn wrong_usage_and_wrong_configuration() {
    let s = Scene::new();
    for args in [&["pull"][..], &["no-such-command"], &["images", "-o", "xml"], &["ensure"]] {
        assert_eq!(s.imagelet.run(args).code, Some(2), "{args:?}");
    }
    let file = s.scratch.join("config.yaml");
    let head = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n";
    for (text, names) in
        [("pullMemory: 0\n", "pullMemory"), ("noSuchField: 1\n", "noSuchField"), ("durability: some\n", "durability")]
    {
        fs::write(&file, format!("{head}{text}")).expect("write a configuration");
        s.refused(64, &[names], &["--config", &file.display().to_string(), "images"]);
    }
    s.refused(2, &["--image-endpoint", "tcp"], &["--image-endpoint", "tcp://127.0.0.1:1", "images"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn registries_that_cannot_be_reached() {
    let s = Scene::new();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has one");
    let name = format!("{closed}/some/image:1");
    s.refused(69, &[&name, "refused"], &["pull", &name]);
    s.refused(69, &["nowhere.invalid"], &["pull", "nowhere.invalid/some/image:1"]);
    s.refused_with_fault(69, &[], "/v2/", Fault::Drop);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn registries_that_fail() {
    let s = Scene::new();
    s.refused_with_fault(69, &["500"], "/manifests/", Fault::status(500));
    s.refused_with_fault(69, &["503"], "layer", Fault::status(503));
    s.refused_with_fault(69, &["redirect"], "/manifests/", Fault::EndlessRedirect);
    s.refused_with_fault(69, &["redirect"], "layer", Fault::EndlessRedirect);
    s.refused_with_fault(77, &[], "/manifests/", Fault::status(403));
    let missing = s.name("bad/missing:1");
    s.refused(1, &[&missing, "404"], &["pull", &missing]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn registries_that_lie() {
    let s = Scene::new();
    for pattern in ["layer", "config"] {
        s.refused_with_fault(1, &["digest mismatch"], pattern, Fault::Corrupt);
        for fault in [Fault::TooLong, Fault::TooLongChunked, Fault::TooShort] {
            s.refused_with_fault(1, &[], pattern, fault);
        }
        s.refused_with_fault(1, &[], pattern, Fault::Html);
    }
    s.refused_with_fault(1, &["text/html"], "/manifests/", Fault::Html);
    s.refused_with_fault(1, &["names the manifest sha256:"], "/manifests/", Fault::WrongDigestHeader);
    for fault in [Fault::Truncate { after: 0 }, Fault::Reset { after: 0 }] {
        s.refused_with_fault(69, &[], "layer", fault);
    }
}

#[test]
fn content_that_contradicts_itself() {
    let s = Scene::new();
    let good = LayerBuilder::new().file("a", "x");
    let other = Digest::sha256(b"something else");
    let pull = |image: &BuiltImage, code, names: &[&str]| {
        s.registry.push("bad/content", "1", image);
        let name = s.name("bad/content:1");
        s.refused(code, &[names, &[name.as_str()][..]].concat(), &["pull", &name])
    };
    pull(&ImageBuilder::new().layer(good.clone()).diff_ids(vec![other.clone()]).build(), 1, &["diff id"]);
    pull(&ImageBuilder::new().layer(good.clone()).diff_ids(vec![other.clone(), other]).build(), 1, &[]);
    pull(&ImageBuilder::new().layer(LayerBuilder::new().file("../escape", "x")).build(), 1, &["escape"]);
    pull(&ImageBuilder::new().layer(LayerBuilder::new().raw(&[1; 1024])).build(), 1, &[]);
    pull(
        &ImageBuilder::new().layer(good.media_type("application/vnd.example.layer")).build(),
        1,
        &["application/vnd.example.layer"],
    );
    assert!(!s.scratch.join("escape").exists());
}

#[test]
fn media_types_and_platforms_that_are_not_for_us() {
    let s = Scene::new();
    let (media_type, bytes) = (
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        schema1_manifest(&"bad.example/old:1".parse().expect("a reference")),
    );
    let digest = s.registry.push_manifest("bad/old", media_type, bytes);
    s.registry.tag("bad/old", "1", &digest);
    let name = s.name("bad/old:1");
    s.refused(1, &[&name, "schema 1"], &["pull", &name]);

    let other: Platform = "linux/s390x".parse().expect("a platform");
    let image = ImageBuilder::new().platform(other).layer(LayerBuilder::new().file("a", "x")).build();
    let index = BuiltIndex::new(vec![image]);
    s.registry.push_index("bad/platform", "1", &index);
    let name = s.name("bad/platform:1");
    s.refused(1, &[&name, "linux/s390x"], &["pull", &name]);
}

#[test]
fn sockets_that_are_none() {
    let s = Scene::new();
    let file = s.scratch.join("file.sock");
    fs::write(&file, "not a socket").expect("write a file");
    let endpoint = format!("unix://{}", file.display());
    s.refused(1, &["file.sock", "not a socket"], &["serve", "--listen", &endpoint]);
    assert_eq!(fs::read_to_string(&file).expect("it is still there"), "not a socket");
    let path = file.display().to_string();
    let elsewhere = Imagelet::remote(&endpoint);
    assert!(elsewhere.fails(69, &["images"]).contains(&path));
    let gone = s.scratch.join("gone.sock").display().to_string();
    assert!(Imagelet::remote(&format!("unix://{gone}")).fails(69, &["images"]).contains(&gone));
    // Another process answers there, and speaks no gRPC: it is not replaced.
    let taken = s.scratch.join("taken.sock");
    let _listener = UnixListener::bind(&taken).expect("listen");
    s.refused(
        1,
        &["taken.sock", "another process answers"],
        &["serve", "--listen", &format!("unix://{}", taken.display())],
    );
}

#[test]
fn roots_that_are_not_ours() {
    let s = Scene::new();
    let version = s.scratch.join("store/version");
    let good = fs::read_to_string(&version).expect("a store has a version");
    let newer = good.replace(|c: char| c.is_ascii_digit(), "9");
    fs::write(&version, &newer).expect("write a version");
    let said = s.imagelet.fails(1, &["images"]);
    assert!(said.contains("newer") && said.contains(&s.scratch.join("store").display().to_string()), "{said}");
    assert_eq!(fs::read_to_string(&version).expect("a version"), newer, "a newer store is left alone");
    fs::write(&version, good).expect("write a version");
    assert_eq!(s.imagelet.ids(), [s.kept.as_str()]);

    let file = s.scratch.join("a-file");
    fs::write(&file, "x").expect("write a file");
    assert!(Imagelet::on(&file).fails(1, &["images"]).contains("a-file"));
    drop(s.runtime);
}
