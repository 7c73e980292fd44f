//! A containerd that has ended: a kubelet gets the error that containerd's own absence gives, and pulls work when it is back.

use std::path::Path;

use cri_api::{Error, ImageService as _, ImageSpec, Kind, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteImageService, connect_image_service};
use tokio::runtime::Runtime;

use super::{Harbour, differences};
use crate::support::Imagelet;
use crate::support::gate::Gate;
use crate::support::process::eventually;

/// A client of CRI, as the kubelet is one.
struct Kubelet {
    runtime: Runtime,
    service: RemoteImageService,
}

impl Kubelet {
    #[track_caller]
    fn of(socket: &Path) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
        let service = runtime.block_on(connect_image_service(&endpoint, ClientOptions::default())).expect("connect");
        Self { runtime, service }
    }

    fn pull(&self, name: &str) -> Result<String, Error> {
        self.runtime.block_on(self.service.pull_image(PullImageRequest::new(name)))
    }

    fn is_there(&self, name: &str) -> Result<bool, Error> {
        self.runtime
            .block_on(async { Ok(self.service.image_status(&ImageSpec::new(name), false).await?.image.is_some()) })
    }

    /// The kinds of errors of every call.
    fn errors(&self, name: &str) -> Vec<(&'static str, Option<Kind>)> {
        let kind = |result: Result<(), Error>| result.err().map(|error| error.kind());
        self.runtime.block_on(async {
            let (service, spec) = (&self.service, ImageSpec::new(name));
            vec![
                ("PullImage", kind(service.pull_image(PullImageRequest::new(name)).await.map(drop))),
                ("ImageStatus", kind(service.image_status(&spec, false).await.map(drop))),
                ("ListImages", kind(service.list_images(None).await.map(drop))),
                ("RemoveImage", kind(service.remove_image(&spec).await)),
                ("ImageFsInfo", kind(service.image_fs_info().await.map(drop))),
            ]
        })
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kubelet_sees_containerd_stop_and_return() {
    let mut h = Harbour::new(256);
    let layers = h.layers("gone", 3, 20_000);
    let (one, two) = (h.push("gone/one:1", &layers[..2]), h.push("gone/two:1", &layers));
    let socket = h.s.scratch.join("front.sock");
    // Before containerd has started at all.
    let direct = Kubelet::of(h.containerd.socket());
    h.containerd.kill();
    let gone = direct.errors(&one.name);
    assert!(gone.iter().all(|(_, kind)| *kind == Some(Kind::Unavailable)), "{gone:?}");
    let endpoint = format!("unix://{}", socket.display());
    let mut agent = h.imagelet.daemon(&["serve", "--listen", &endpoint]);
    agent.wait_for("that it waits", |line| line.contains("waiting for the container runtime").then_some(()));
    h.containerd.start_again();
    agent.wait_for("where it serves", |line| (line == endpoint).then_some(()));
    let front = Kubelet::of(&socket);
    assert_eq!(front.pull(&one.name).expect("a pull of an agent that was there before containerd"), one.id);

    // Under an agent that has pulled already.
    h.containerd.kill();
    let said = front.pull(&two.name).expect_err("containerd is gone");
    assert_eq!(said.kind(), Kind::Unavailable, "{said}");
    assert!(said.message().contains("containerd") && !said.message().contains("RegistryUnavailable"), "{said}");
    assert_eq!(front.errors(&two.name), gone);
    h.containerd.start_again();
    // The next attempt to connect follows a moment after a failed one, as with every client of gRPC.
    eventually("containerd is back", || front.is_there(&one.name).is_ok_and(|is_there| is_there));
    assert_eq!(front.pull(&two.name).expect("a pull of the same agent"), two.id);
    assert!(front.is_there(&two.name).expect("a status"));
    h.nothing_on_the_way("it is back");
    assert!(
        agent.lines().iter().all(|line| !line.contains("left to the runtime")),
        "our engine pulls: {:?}",
        agent.lines()
    );
    agent.stop();
    h.empty("at the end");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn containerd_restart_during_a_pull_fetches_no_layer_twice() {
    let mut h = Harbour::new(256);
    let mut layers = h.layers("middle", 4, 20_000);
    layers.push(h.layer("middle-top", 0, 8 << 20));
    let app = h.push("middle/app:1", &layers);
    let runtime = Runtime::new().expect("a runtime");
    let gate = runtime.block_on(Gate::start(h.s.registry.host().to_owned()));
    let name = format!("{}/middle/app:1", gate.host());
    let socket = h.s.scratch.join("front.sock");
    let mut agent = h.imagelet.serve(&socket);
    let front = Imagelet::remote(&format!("unix://{}", socket.display())).global("--pull-engine", "runtime");

    gate.hold_answers_after(4 << 20);
    let pull = front.spawn(&["pull", &name]);
    runtime.block_on(gate.reached());
    let below = app.chains.len() - 1;
    eventually("the layers below the last are there", || h.committed().len() == below);
    h.containerd.kill();
    gate.open();
    let output = pull.wait_with_output().expect("it is our child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("containerd: "), "{said}");
    h.containerd.start_again();
    assert_eq!(h.committed().len(), below, "{said}");
    assert!(h.visible().is_empty());
    // The leftovers are used when the image is pulled again.
    assert_eq!(h.leases().len(), 1);
    let before = h.s.registry.requests().len();
    front.ok(&["pull", &name]);
    let requests = h.s.registry.requests().split_off(before);
    for (_, blob) in &app.chains[..below] {
        let read = requests.iter().filter(|r| r.starts_with("GET ") && r.contains(blob.as_str())).count();
        assert_eq!(read, 0, "{requests:?}");
    }
    h.nothing_on_the_way("it is back");
    let good = h.tree(&name);
    h.empty("in between");
    h.plain.ok(&["pull", &app.name]);
    assert_eq!(differences(&h.tree(&app.name), &good), Vec::<String>::new());
    agent.stop();
}
