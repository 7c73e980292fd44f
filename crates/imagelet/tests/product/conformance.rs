//! The conformance suite of `cri-api`, over a real socket and with a real registry: imagelet's own engine behind
//! `imagelet serve`, Debian's containerd, and imagelet between a client and containerd.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::ImageService;
use cri_api::testing::conformance::{self, Deviation, Harness, Hold, Identity};
use cri_api::testing::fixtures::{self, FixtureImage};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use oci::Digest;
use serde_json::json;

use crate::support::containerd_config;
use crate::support::gate::Gate;
use crate::support::images::{self, Image};
use crate::support::process::{Daemon, need_root};
use crate::support::{Containerd, DockerRegistry, Imagelet, Layout, Packing, Scratch};

/// The registry with all fixtures, behind a gate.
struct Published {
    gate: Gate,
    registry: DockerRegistry,
    layout: Layout,
    images: BTreeMap<&'static str, Image>,
    scratch: Scratch,
}

impl Published {
    async fn start() -> Self {
        need_root();
        let scratch = Scratch::new();
        let layout = Layout::at(&scratch.join("layout"));
        let registry = DockerRegistry::start(&scratch.join("registry"));
        let gate = Gate::start(registry.host().to_owned()).await;
        let base = scratch.directory("base");
        images::write(&base.join(fixtures::BASE_PATH), fixtures::BASE_CONTENT);
        images::settle(&base);
        let base = layout.layer(&base, Packing::Gzip);
        let mut made = BTreeMap::new();
        for (number, fixture) in fixtures::IMAGES.iter().enumerate() {
            let own = scratch.directory(&format!("own-{number}"));
            images::write(&own.join(fixtures::CONTENT_PATH), fixture.content);
            images::settle(&own);
            let layers = [base.clone(), layout.layer(&own, Packing::Gzip)];
            let diff_ids: Vec<String> = layers.iter().map(|l| l.diff_id.to_string()).collect();
            let config = (0_u32..)
                .map(|nonce| {
                    let mut config = images::platform();
                    config["config"] =
                        json!({"User": fixture.user, "Labels": {fixtures::NONCE_LABEL: nonce.to_string()}});
                    config["rootfs"] = json!({"type": "layers", "diff_ids": diff_ids});
                    config.to_string()
                })
                .find(|config| Digest::sha256(config.as_bytes()).hex().starts_with(fixture.id_prefix))
                .expect("some nonce fits");
            let mut image = layout.image_of(&layers, config.as_bytes());
            if fixture.index {
                let id = image.id.clone();
                image = layout.index(&[(&image, images::platform())]);
                image.id = id;
            }
            for (repository, tag) in fixture.names {
                registry.push(&layout, &image, &format!("{repository}:{tag}"));
            }
            made.insert(fixture.content, image);
        }
        // The first target of the moving tag.
        let (repository, tag) = fixtures::MOVING_TAG;
        registry.push(&layout, &made[fixtures::MOVING_OLD.content], &format!("{repository}:{tag}"));
        Self { gate, registry, layout, images: made, scratch }
    }

    /// Directory of hosts files which send docker.io to the registry as well.
    fn hosts(&self) -> PathBuf {
        let certs = self.scratch.directory("certs.d");
        let docker = self.scratch.directory("certs.d/docker.io");
        let text = format!("server = \"http://{}\"\n", self.gate.host());
        fs::write(docker.join("hosts.toml"), text).expect("write a hosts file");
        certs
    }
}

/// An implementation behind a socket.
struct Behind {
    name: String,
    published: Published,
    service: Arc<dyn ImageService>,
    deviations: Vec<Deviation>,
    handlers: Option<Vec<String>>,
    _daemons: Vec<Box<dyn Send + Sync>>,
}

#[async_trait]
impl Harness for Behind {
    fn name(&self) -> &str {
        &self.name
    }

    fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service)
    }

    fn domain(&self) -> String {
        self.published.gate.host()
    }

    fn other_domain(&self) -> Option<String> {
        Some(format!("localhost:{}", self.published.gate.port()))
    }

    fn serves_default_domain(&self) -> bool {
        true
    }

    fn identity(&self, fixture: &FixtureImage) -> Option<Identity> {
        let image = self.published.images.get(fixture.content)?;
        Some(Identity { id: image.id.parse().expect("a digest"), digest: image.manifest.digest.clone() })
    }

    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        let Some(image) = self.published.images.get(to.content) else { return false };
        self.published.registry.push(&self.published.layout, image, &format!("{repository}:{tag}"));
        true
    }

    fn hold_pulls(&self) -> Option<Hold> {
        let gate = self.published.gate.clone();
        gate.shut();
        let hold = Hold::new(gate.reached(), {
            let gate = gate.clone();
            move || gate.open()
        });
        Some(hold.with_given_up(gate.given_up()))
    }

    fn runtime_handlers(&self) -> Option<Vec<String>> {
        self.handlers.clone()
    }

    fn deviations(&self) -> &[Deviation] {
        &self.deviations
    }

    fn case_timeout(&self) -> Duration {
        // containerd's usage follows late.
        Duration::from_secs(120)
    }
}

async fn connect(endpoint: &str) -> Arc<dyn ImageService> {
    let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
    Arc::new(connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect to the image service"))
}

/// The ways in which containerd is known to differ, in all versions from 1.6 to 2.1.
fn containerds_own() -> Vec<Deviation> {
    vec![
        Deviation::ListFilterIgnored,
        Deviation::EmptyNameIsIdPrefix,
        Deviation::BadReferenceIsUnknown,
        Deviation::FsUsageIsLate,
        Deviation::ShorterIdsResolve,
        Deviation::AmbiguousIdIsUnknown,
        Deviation::PullsFailDuringRemoval,
    ]
}

fn serve(imagelet: &Imagelet, published: &Published) -> (String, Daemon) {
    let socket = published.scratch.join("i.sock");
    let daemon = imagelet.serve(&socket);
    (format!("unix://{}", socket.display()), daemon)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn the_embedded_engine_behind_its_own_socket_conforms() {
    let published = Published::start().await;
    let hosts = published.hosts().display().to_string();
    let imagelet = Imagelet::on(&published.scratch.join("store")).global("--registry-config-path", &hosts);
    let (endpoint, daemon) = serve(&imagelet, &published);
    let service = connect(&endpoint).await;
    let name = "imagelet's engine behind its socket".to_owned();
    let harness = Behind {
        name,
        published,
        service,
        deviations: Vec::new(),
        handlers: Some(Vec::new()),
        _daemons: vec![Box::new(daemon)],
    };
    let report = conformance::run_all(&harness).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), Vec::<&str>::new(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn debians_containerd_conforms() {
    let published = Published::start().await;
    let containerd = Containerd::start(&published.gate.host());
    let service = connect(&containerd.endpoint()).await;
    let name = containerd_config::name();
    let harness = Behind {
        name,
        published,
        service,
        deviations: containerds_own(),
        handlers: None,
        _daemons: vec![Box::new(containerd)],
    };
    conformance::run_all(&harness).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn imagelet_in_front_of_containerd_conforms() {
    in_front_of_containerd("runtime", containerds_own()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn imagelets_engine_in_containerds_store_conforms() {
    in_front_of_containerd("embedded", without_its_pulls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn imagelet_in_front_of_containerd_conforms_with_the_engine_that_it_chooses() {
    in_front_of_containerd("auto", without_its_pulls()).await;
}

/// The ways in which containerd differs where our engine pulls in its place.
fn without_its_pulls() -> Vec<Deviation> {
    containerds_own().into_iter().filter(|deviation| *deviation != Deviation::BadReferenceIsUnknown).collect()
}

/// The suite with `imagelet serve` between it and containerd, and `--pull-engine`.
async fn in_front_of_containerd(engine: &str, deviations: Vec<Deviation>) {
    let published = Published::start().await;
    let containerd = Containerd::start(&published.gate.host());
    let imagelet = Imagelet::remote(&containerd.endpoint()).global("--pull-engine", engine);
    let imagelet = imagelet.global("--root", &published.scratch.join("store").display().to_string());
    let imagelet = match engine {
        "runtime" => imagelet,
        _ => imagelet.global("--registry-config-path", &published.hosts().display().to_string()),
    };
    let (endpoint, daemon) = serve(&imagelet, &published);
    let service = connect(&endpoint).await;
    let name = format!("imagelet in front of {}, pull engine {engine}", containerd_config::name());
    // Last in, first out: imagelet ends before containerd.
    let daemons: Vec<Box<dyn Send + Sync>> = vec![Box::new(daemon), Box::new(containerd)];
    let harness = Behind { name, published, service, deviations, handlers: None, _daemons: daemons };
    conformance::run_all(&harness).await.assert_passed();
}
