//! Present content is not fetched again: under the same name, under another one, with another compression, or while another pull
//! fetches it. Checked by the requests that the registry received.

use std::sync::Arc;

use cri_api::{ImageService, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use serde_json::json;

use crate::support::gate::Gate;
use crate::support::images::{Image, Layer, Packing, platform};
use crate::support::process::eventually;
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

fn layers(s: &Scene, packing: Packing) -> Vec<Layer> {
    ["one", "two", "three"].iter().map(|n| s.file_layer(n, noise_of(n, 300_000), packing)).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_here_costs_a_manifest() {
    let s = Scene::new();
    let image = s.layout.image(&layers(&s, Packing::Gzip));
    let name = s.registry.push(&s.layout, &image, "warm/app:1");
    assert_eq!(s.reads_while(&["pull", &name]).len(), 5, "a manifest, a config, three layers");
    assert_eq!(s.reads_while(&["pull", &name]), ["GET /v2/warm/app/manifests/1"], "again");

    // A second tag of the same digest, and the same digest in another repository, whose registry says that it has each layer.
    let second = s.registry.push(&s.layout, &image, "warm/app:2");
    assert_eq!(s.reads_while(&["pull", &second]), ["GET /v2/warm/app/manifests/2"], "another tag");
    let elsewhere = s.registry.push(&s.layout, &image, "warm/moved:1");
    let asked = s.reads_while(&["pull", &elsewhere]);
    assert_eq!(asked[..2], documents("warm/moved", &image), "another repository");
    assert_eq!(asked[2..], heads("warm/moved", &asked[2..]), "and nothing is fetched");
    assert_eq!(asked.len(), 5, "{asked:?}");
    let again = s.registry.push(&s.layout, &image, "warm/moved:2");
    assert_eq!(s.reads_while(&["pull", &again]), ["GET /v2/warm/moved/manifests/2"], "another tag of that one");

    // The same layers in another image: its config is new, they are not.
    let other = s.layout.image_for(&layers(&s, Packing::Gzip), &json!({"Cmd": ["/bin/other"]}), &platform());
    let other_name = s.registry.push(&s.layout, &other, "warm/other:1");
    let asked = s.reads_while(&["pull", &other_name]);
    assert_eq!(asked[..2], documents("warm/other", &other), "other config");
    assert_eq!(asked[2..], heads("warm/other", &asked[2..]));
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert_eq!(s.imagelet.images().len(), 2);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn runtime_is_asked_for_a_present_image_at_the_cost_of_its_manifest() {
    let s = Scene::new();
    let image = s.layout.image(&layers(&s, Packing::Gzip));
    let name = s.registry.push(&s.layout, &image, "warm/app:1");
    let containerd = Containerd::start(s.registry.host());
    // A kubelet that verifies credentials pulls every image again for a pod without a record.
    for engine in ["runtime", "embedded"] {
        let imagelet = Imagelet::remote(&containerd.endpoint()).global("--pull-engine", engine);
        imagelet.ok(&["pull", &name]);
        let before = s.registry.requests().len();
        imagelet.ok(&["pull", &name]);
        let asked = s.registry.requests()[before..].to_vec();
        let manifest = |request: &String| request.ends_with(" /v2/warm/app/manifests/1");
        assert!(asked.len() <= 2 && asked.iter().all(manifest), "{engine}: {asked:?}");
    }
}

/// The requests for manifest and config.
fn documents(repository: &str, image: &Image) -> [String; 2] {
    let config = format!("GET /v2/{repository}/blobs/{}", image.id);
    [format!("GET /v2/{repository}/manifests/1"), config]
}

/// As many questions for blobs as there are requests, for the same ones.
fn heads(repository: &str, requests: &[String]) -> Vec<String> {
    let digest = |request: &String| request.rsplit('/').next().expect("a path").to_owned();
    requests.iter().map(|request| format!("HEAD /v2/{repository}/blobs/{}", digest(request))).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn another_packing_costs_a_manifest_and_a_config() {
    let s = Scene::new();
    let gzip = s.layout.image(&layers(&s, Packing::Gzip));
    let name = s.registry.push(&s.layout, &gzip, "warm/app:gzip");
    s.imagelet.ok(&["pull", &name]);
    for packing in [Packing::Zstd, Packing::Plain] {
        // In the same repository: another one has to provide content that this node has not yet fetched from it.
        let tag = format!("{packing:?}").to_lowercase();
        // The same config, which is here; then one of its own.
        let same = s.layout.image(&layers(&s, packing));
        assert_eq!(same.id, gzip.id);
        let name = s.registry.push(&s.layout, &same, &format!("warm/app:{tag}-1"));
        assert_eq!(s.reads_while(&["pull", &name]), [format!("GET /v2/warm/app/manifests/{tag}-1")]);
        let run = json!({"Cmd": [format!("{packing:?}")]});
        let other = s.layout.image_for(&layers(&s, packing), &run, &platform());
        let name = s.registry.push(&s.layout, &other, &format!("warm/app:{tag}-2"));
        let (manifest, config) =
            (format!("GET /v2/warm/app/manifests/{tag}-2"), format!("GET /v2/warm/app/blobs/{}", other.id));
        assert_eq!(s.reads_while(&["pull", &name]), [manifest, config]);
    }
}

fn is_layer(request: &str, image: &Image) -> bool {
    image.blobs.iter().any(|b| b.digest.to_string() != image.id && request.contains(&b.digest.to_string()))
}

/// Runs two pulls that share a layer at the same time. Returns the requests for layers.
async fn at_once(s: &Scene, first: (&str, &Image), second: (&str, &Image)) -> Vec<String> {
    let gate = Gate::start(s.registry.host().to_owned()).await;
    gate.hold_answers_after(100_000);
    let socket = s.scratch.join("cri.sock");
    let _agent = s.imagelet.serve(&socket);
    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    let service: Arc<dyn ImageService> =
        Arc::new(connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect"));
    let pull = |name: &str| {
        let (service, name) = (Arc::clone(&service), format!("{}/{name}", gate.host()));
        tokio::spawn(async move { service.pull_image(PullImageRequest::new(name)).await })
    };
    let until = |what: &str, is_asked: &dyn Fn(&String) -> bool| {
        tokio::task::block_in_place(|| eventually(what, || s.registry.requests().iter().any(is_asked)));
    };
    let before = s.registry.requests().len();
    let one = pull(first.0);
    gate.reached().await;
    until("the first one's config is asked for", &|r| r.contains(&first.1.id));
    let other = pull(second.0);
    let (repository, tag) = second.0.split_once(':').expect("a name with a tag");
    until("the second one's manifest is asked for", &|r| r.contains(&format!("{repository}/manifests/{tag}")));
    gate.open();
    assert_eq!(one.await.expect("no panic").expect("a pull"), first.1.id);
    assert_eq!(other.await.expect("no panic").expect("a pull"), second.1.id);
    let requests = s.registry.requests().split_off(before);
    let mut asked: Vec<String> =
        requests.into_iter().filter(|r| is_layer(r, first.1) || is_layer(r, second.1)).collect();
    asked.sort();
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn two_pulls_at_once_fetch_what_they_share_once() {
    let s = Scene::new();
    let shared = layers(&s, Packing::Gzip);
    let image = |name: &str| {
        let own = s.file_layer(name, noise_of(name, 200_000), Packing::Gzip);
        let image = s.layout.image(&[&shared[..], &[own]].concat());
        s.registry.push(&s.layout, &image, &format!("once/app:{name}"));
        image
    };
    let (first, second) = (image("first"), image("second"));
    let asked = at_once(&s, ("once/app:first", &first), ("once/app:second", &second)).await;
    assert_eq!(asked.len(), 5, "three that both want, and one of each: {asked:#?}");
}
