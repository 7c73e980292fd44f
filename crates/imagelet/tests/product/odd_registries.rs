//! Registries that authenticate in unusual ways, which containerd and skopeo accept: one scheme for manifests and another for
//! blobs, and redirects to a registry that wants an anonymous token. With our own store, through `serve`, and into containerd's
//! store.

use cri_api::{ImageService as _, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use oci::RegistryAuth;
use registry::testing::{
    Auth, BasicOffer, Fault, ImageBuilder, LayerBuilder, Options, RequestLog, TestRegistry, TokenAuth,
};
use tokio::runtime::Runtime;

use crate::support::process::run;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, runtime};

const CREDS: &str = "ada:of-the-front-registry";

/// A registry to pull from, the one that has the content, and the image's name.
struct Odd {
    front: TestRegistry,
    content: Option<TestRegistry>,
    name: String,
    id: String,
}

fn ada() -> TokenAuth {
    let (user, password) = CREDS.split_once(':').expect("both");
    TokenAuth::user(user, password)
}

fn start(runtime: &Runtime, auth: Auth) -> TestRegistry {
    runtime.block_on(TestRegistry::start(Options { auth: Some(auth), ..Options::default() }))
}

fn fill(registry: &TestRegistry) -> String {
    let layer = |n: u8| LayerBuilder::new().file(&format!("f{n}"), vec![n; 10_000]);
    let image = ImageBuilder::new().layer(layer(1)).layer(layer(2)).layer(layer(3)).build();
    registry.push("team/app", "1", &image);
    image.id().to_string()
}

/// Tokens for manifests, `Basic` for blobs.
fn with_two_schemes(runtime: &Runtime) -> Odd {
    let front = start(runtime, Auth::Token(TokenAuth { basic: BasicOffer::For("/blobs/"), ..ada() }));
    let id = fill(&front);
    Odd { name: format!("{}/team/app:1", front.host()), front, content: None, id }
}

/// A registry with a password in front of one that gives tokens to everyone.
fn in_front_of_another(runtime: &Runtime) -> Odd {
    let (user, password) = CREDS.split_once(':').expect("both");
    let front = start(runtime, Auth::Basic { user: user.into(), password: password.into() });
    let content = start(runtime, Auth::Token(TokenAuth { anonymous: true, ..ada() }));
    let id = fill(&content);
    front.faults().always("/v2/", Fault::RedirectTo { base: content.url() });
    Odd { name: format!("{}/team/app:1", front.host()), front, content: Some(content), id }
}

impl Odd {
    /// The registry behind has seen requests, and nothing that belongs to the one in front.
    #[track_caller]
    fn kept_its_secret(&self) {
        let Some(content) = &self.content else { return };
        let seen = content.requests();
        let has_secret = |r: &&RequestLog| {
            !r.body.is_empty() || r.authorization().is_some_and(|header| !header.starts_with("Bearer test-token-"))
        };
        assert_eq!(seen.iter().find(has_secret), None);
        assert_eq!(seen.iter().filter(|r| r.path == "/token").count(), 1, "one token for all of the pull");
        assert!(seen.iter().any(|r| r.path.contains("/blobs/")), "{seen:?}");
        content.clear_requests();
    }

    /// Each part of the API was challenged once.
    #[track_caller]
    fn was_challenged(&self, times: usize) {
        let refused: Vec<RequestLog> = self.front.requests().into_iter().filter(|r| r.status == 401).collect();
        assert!(refused.len() <= times, "{refused:?}");
        self.front.clear_requests();
    }
}

fn pull_over_cri(runtime: &Runtime, socket: &std::path::Path, name: &str) -> String {
    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    let (user, password) = CREDS.split_once(':').expect("both");
    let auth = RegistryAuth::basic(user, password);
    runtime.block_on(async {
        let service = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connects");
        service.pull_image(PullImageRequest { auth: Some(auth), ..PullImageRequest::new(name) }).await.expect("pulls")
    })
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn unusual_authentication_is_answered_through_every_way_in() {
    let s = Scene::new();
    let runtime = runtime();
    for (number, make) in [with_two_schemes, in_front_of_another].into_iter().enumerate() {
        let odd = make(&runtime);
        let own = Imagelet::on(&s.scratch.join(&format!("own{number}")));
        own.ok(&["pull", &odd.name, "--creds", CREDS]);
        assert_eq!(own.ids(), [odd.id.as_str()]);
        odd.kept_its_secret();
        // Requests for layers that are made together may all be without an answer to the challenge.
        odd.was_challenged(5);

        let served = Imagelet::on(&s.scratch.join(&format!("served{number}")));
        let socket = s.scratch.join(&format!("served{number}.sock"));
        let _agent = served.serve(&socket);
        assert_eq!(pull_over_cri(&runtime, &socket, &odd.name), odd.id);
        odd.kept_its_secret();

        let containerd = Containerd::start(s.registry.host());
        let behind = Imagelet::remote(&containerd.endpoint()).global("--pull-engine", "embedded");
        let behind = behind.global("--root", &s.scratch.join(&format!("behind{number}")).display().to_string());
        behind.ok(&["pull", &odd.name, "--creds", CREDS]);
        assert!(run(containerd.ctr().args(["images", "list", "-q"])).contains(&odd.name));
        odd.kept_its_secret();
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_missing_image_is_reported_once_by_an_endpoint_that_is_listed_twice() {
    let s = Scene::new();
    let runtime = runtime();
    let registry = runtime.block_on(TestRegistry::open());
    let directory = s.scratch.directory(&format!("certs.d/{}", registry.host()));
    let url = registry.url();
    let text = format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    std::fs::write(directory.join("hosts.toml"), text).expect("writes");
    let configured =
        s.imagelet.clone().global("--registry-config-path", &s.scratch.join("certs.d").display().to_string());
    let error = configured.fails(1, &["pull", &format!("{}/team/app:1", registry.host())]);
    assert_eq!(error.matches("404 Not Found").count(), 1, "{error}");
    assert_eq!(registry.requests_for("/manifests/").len(), 1);
}
