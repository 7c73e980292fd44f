//! `imagelet serve` in front of CRI-O, of which there is a stand-in: our engine pulls into the own store, whose view CRI-O reads; IDs have
//! CRI-O's form; images that only CRI-O has are CRI-O's; images of its containers stay.

use base::layer_mount::{LayerMount, linked_layers};
use cri_api::{ImageService, ImageSpec, PullImageRequest, RuntimeService as _};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteImageService, connect_image_service, connect_runtime_service};
use registry::testing::{BuiltImage, ImageBuilder, LayerBuilder, TestRegistry};
use tokio::runtime::Runtime;

use crate::support::crio::{Container, Crio};
use crate::support::process::{Daemon, need_root};
use crate::support::{Imagelet, Scratch, runtime};

/// A registry, the stand-in, and imagelet in front of it.
struct Stage {
    runtime: Runtime,
    registry: TestRegistry,
    crio: Crio,
    imagelet: Imagelet,
    scratch: Scratch,
}

impl Stage {
    fn new() -> Self {
        need_root();
        let scratch = Scratch::new();
        let runtime = runtime();
        let directory = scratch.directory("crio");
        let (registry, crio) = runtime.block_on(async { (TestRegistry::open().await, Crio::start(&directory)) });
        let imagelet = Imagelet::on(&scratch.join("store")).global("--image-endpoint", &crio.endpoint());
        let imagelet = imagelet.global("--runtime-endpoint", &crio.endpoint());
        crio.read(&scratch.join("store/podman"));
        Self { runtime, registry, crio, imagelet, scratch }
    }

    fn serve(&self) -> (Daemon, RemoteImageService) {
        let socket = self.scratch.join("cri.sock");
        let daemon = self.imagelet.serve(&socket);
        let endpoint = self.endpoint();
        let connected = self.runtime.block_on(connect_image_service(&endpoint, ClientOptions::default()));
        (daemon, connected.expect("connects"))
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("unix://{}", self.scratch.join("cri.sock").display())).expect("an endpoint")
    }

    fn push(&self, name: &str, image: &BuiltImage) -> String {
        self.registry.push(name, "1", image);
        format!("{}/{name}:1", self.registry.host())
    }

    fn pull(&self, images: &RemoteImageService, name: &str) -> cri_api::Result<String> {
        self.runtime.block_on(images.pull_image(PullImageRequest::new(name)))
    }

    /// ID of the image, if it is present.
    fn status(&self, images: &RemoteImageService, image: &str) -> Option<String> {
        let status = self.runtime.block_on(images.image_status(&ImageSpec::new(image), false)).expect("a status");
        status.image.map(|image| image.id)
    }

    fn ids(&self, images: &RemoteImageService) -> Vec<String> {
        let listed = self.runtime.block_on(images.list_images(None)).expect("a list");
        let mut ids: Vec<String> = listed.into_iter().map(|image| image.id).collect();
        ids.sort();
        ids
    }

    fn remove(&self, images: &RemoteImageService, image: &str) -> cri_api::Result<()> {
        self.runtime.block_on(images.remove_image(&ImageSpec::new(image)))
    }
}

fn image(seed: &str) -> BuiltImage {
    ImageBuilder::new().layer(LayerBuilder::new().file(seed, seed.repeat(5000))).build()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

/// Digits of an ID that only CRI-O has.
fn foreign(digits: &str) -> String {
    digits.repeat(32)
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn pulls_reach_crio_through_the_view_with_its_ids() {
    let t = Stage::new();
    let pause = foreign("0a");
    t.crio.keep(&pause, "registry.k8s.io/pause:3.10");
    let (daemon, images) = t.serve();
    let line = format!("additionalimagestores = [\"{}\"]", t.scratch.join("store/podman").display());
    assert_eq!(daemon.lines().iter().filter(|said| said.contains(&line)).count(), 1, "{:?}", daemon.lines());
    let built = image("app");
    let name = t.push("app", &built);
    let id = built.id().hex().to_owned();
    assert_eq!(t.pull(&images, &name).as_deref(), Ok(id.as_str()));
    assert_eq!(t.crio.pulls(), Vec::<String>::new());
    let by_digest = format!("{}/app@{}", t.registry.host(), built.digest());
    for spelling in [&id, &built.id().to_string(), &name, &by_digest] {
        assert_eq!(t.status(&images, spelling).as_ref(), Some(&id), "{spelling}");
    }
    for spelling in [&pause, &format!("sha256:{pause}"), "registry.k8s.io/pause:3.10"] {
        assert_eq!(t.status(&images, spelling).as_ref(), Some(&pause), "{spelling}");
    }
    assert_eq!(t.status(&images, &foreign("0b")), None);
    assert_eq!(t.ids(&images), sorted(vec![pause.clone(), id.clone()]));
    let info = t.runtime.block_on(images.image_fs_info()).expect("file systems");
    assert_eq!(info.image_filesystems[0].mountpoint, t.scratch.join("store").display().to_string());
    assert!(info.container_filesystems[0].mountpoint.ends_with("overlay-containers"), "{info:?}");
    let runtime = t.runtime.block_on(connect_runtime_service(&t.endpoint(), ClientOptions::default()));
    let version = t.runtime.block_on(runtime.expect("connects").version()).expect("a version");
    assert_eq!(version.runtime_name, "cri-o");
    let status = t.imagelet.ok(&["status"]);
    assert!(
        status.contains("Pull engine: embedded: it fills the store of imagelet") && status.contains(&line),
        "{status}"
    );
    // The image of sandboxes is pinned, whichever store has it.
    let own_pause = image("pause");
    let own_pause_id = t.pull(&images, &t.push("pause", &own_pause)).expect("pulls");
    let listed = t.runtime.block_on(images.list_images(None)).expect("a list");
    let pinned: Vec<String> = listed.into_iter().filter(|image| image.pinned).map(|image| image.id).collect();
    assert_eq!(sorted(pinned), sorted(vec![pause.clone(), own_pause_id]));
    t.remove(&images, own_pause.id().hex()).expect("removes");
    // The view stays up to date: a pull without this agent, and a removal.
    t.remove(&images, &built.id().to_string()).expect("removes");
    assert_eq!(t.ids(&images), [pause]);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn removal_is_where_the_image_is() {
    let t = Stage::new();
    let (both, pause) = (image("both"), foreign("0a"));
    let name = t.push("both", &both);
    t.crio.keep(&pause, "registry.k8s.io/pause:3.10");
    t.crio.keep(both.id().hex(), &name);
    let (_daemon, images) = t.serve();
    t.pull(&images, &name).expect("pulls");
    assert_eq!(t.ids(&images).len(), 2);
    t.remove(&images, both.id().hex()).expect("removes");
    assert_eq!((t.ids(&images), t.crio.own()), (vec![pause.clone()], vec![pause.clone()]));
    t.remove(&images, &format!("sha256:{pause}")).expect("removes");
    t.remove(&images, &pause).expect("absence is no error");
    assert_eq!(t.ids(&images), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn collection_keeps_images_of_crios_containers() {
    let t = Stage::new();
    let (_daemon, images) = t.serve();
    let built = ["by-id", "by-name", "by-digest", "unused"].map(image);
    let names = ["by-id", "by-name", "by-digest", "unused"].map(|name| t.push(name, &image(name)));
    for name in &names {
        t.pull(&images, name).expect("pulls");
    }
    let (used, old) = (foreign("0a"), foreign("0b"));
    t.crio.keep(&used, "r.example/used:1");
    t.crio.keep(&old, "r.example/old:1");
    let digest = format!("{}/by-digest@{}", t.registry.host(), built[2].digest());
    let container = |id, image: &str, image_ref: &str, image_id: &str| Container {
        id,
        image: image.to_owned(),
        image_ref: image_ref.to_owned(),
        image_id: image_id.to_owned(),
    };
    t.crio.run(&[
        container("a", &names[0], built[0].id().hex(), built[0].id().hex()),
        container("b", &names[1], "", ""),
        container("c", built[2].id().hex(), &digest, ""),
        container("d", &used, &used, &used),
    ]);
    t.imagelet.ok(&["gc", "--all-unused", "--min-age", "0s"]);
    let kept = built[..3].iter().map(|image| image.id().hex().to_owned()).chain([used]).collect();
    assert_eq!(t.ids(&images), sorted(kept));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn pull_says_what_crio_does_not_read() {
    let t = Stage::new();
    t.crio.read(&t.scratch.join("elsewhere"));
    let (_daemon, images) = t.serve();
    let name = t.push("app", &image("app"));
    let error = t.pull(&images, &name).expect_err("CRI-O does not see it");
    assert!(error.message().contains("additionalimagestores = ["), "{error}");
    t.crio.read(&t.scratch.join("store/podman"));
    t.pull(&images, &name).expect("pulls");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_that_crio_cannot_use_are_converted_by_a_pull() {
    let t = Stage::new();
    let built = image("app");
    let name = t.push("app", &built);
    Imagelet::shaped("erofs", &t.scratch.join("store")).ok(&["pull", &name]);
    let (_daemon, images) = t.serve();
    assert_eq!(t.status(&images, &name), None);
    assert_eq!(t.pull(&images, &name).as_deref(), Ok(built.id().hex()));
    assert_eq!(t.status(&images, &name).as_deref(), Some(built.id().hex()));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn crio_gets_layers_that_are_files() {
    let mut t = Stage::new();
    t.imagelet = t.imagelet.clone().global("--runtime-layers", "erofs");
    let (_daemon, images) = t.serve();
    let built = image("app");
    let name = t.push("app", &built);
    assert_eq!(t.pull(&images, &name).as_deref(), Ok(built.id().hex()));
    let layers = linked_layers(&t.scratch.join("store/podman/overlay"), "diff").expect("a view");
    assert!(layers.len() == 1 && layers.iter().all(LayerMount::is_mounted), "{layers:?}");
    t.remove(&images, built.id().hex()).expect("removes");
    assert_eq!(linked_layers(&t.scratch.join("store/podman/overlay"), "diff").expect("a view"), []);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn failed_version_decides_nothing() {
    let t = Stage::new();
    t.crio.starts(true);
    let endpoint = t.endpoint().to_string();
    let daemon = t.imagelet.daemon(&["serve", "--listen", &endpoint]);
    daemon.wait_for("that it waits", |line| line.contains("waiting for the container runtime").then_some(()));
    t.crio.starts(false);
    daemon.wait_for("where it serves", |line| (line == endpoint).then_some(()));
    let connected = t.runtime.block_on(connect_image_service(&t.endpoint(), ClientOptions::default()));
    let built = image("app");
    let name = t.push("app", &built);
    assert_eq!(t.pull(&connected.expect("connects"), &name).as_deref(), Ok(built.id().hex()));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn runtime_pulls_if_the_engine_is_the_runtime() {
    let mut t = Stage::new();
    t.imagelet = t.imagelet.clone().global("--pull-engine", "runtime");
    let (_daemon, images) = t.serve();
    let name = t.push("app", &image("app"));
    t.pull(&images, &name).expect_err("the stand-in pulls nothing");
    assert_eq!(t.crio.pulls(), [name]);
    assert!(!t.scratch.join("store/podman").exists());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn commands_at_a_shell_use_the_store_that_crio_reads() {
    let t = Stage::new();
    let pause = foreign("0a");
    t.crio.keep(&pause, "registry.k8s.io/pause:3.10");
    let (_daemon, images) = t.serve();
    // A configuration file names the root, in place of the default one.
    let file = t.scratch.join("config.yaml");
    let root = t.scratch.join("store").display().to_string();
    let text = format!(
        "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\nroot: {root}\nimageMinimumGCAge: 0s\n"
    );
    std::fs::write(&file, text).expect("write a configuration");
    let shell = Imagelet::bare().global("--config", &file.display().to_string());
    let built = ImageBuilder::new().layer(LayerBuilder::new().file("etc/app", "content\n")).build();
    let name = t.push("app", &built);
    shell.ok(&["pull", &name]);
    assert_eq!(t.crio.pulls(), Vec::<String>::new(), "CRI-O pulled nothing");
    assert_eq!(t.status(&images, &name).as_deref(), Some(built.id().hex()), "the agent has the image");
    assert!(t.scratch.join("store/podman/overlay-images").exists(), "and CRI-O's view");
    assert_eq!(shell.ok(&["cat", &name, "/etc/app"]), "content\n");
    let listed = shell.ok(&["images", "-o", "name"]);
    assert!(listed.contains(&name) && listed.contains("registry.k8s.io/pause:3.10"), "{listed}");
    shell.ok(&["pin", &name]);
    assert!(t.imagelet.ok(&["pins"]).contains(&name), "the agent knows the pin");
    let plan = shell.ok(&["gc", "--dry-run", "--all-unused", "-o", "name"]);
    assert!(!plan.contains(&name), "{plan}");
    shell.ok(&["unpin", &name]);
    let status = shell.ok(&["status"]);
    assert!(status.contains("additionalimagestores"), "{status}");
    shell.ok(&["rmi", &name]);
    assert_eq!(t.ids(&images), [pause]);
}
