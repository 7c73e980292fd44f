//! `imagelet serve` as a kubelet or crictl uses it: CRI calls over the socket, the life of the socket file, and the
//! command line while an agent runs.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, path::Path};

use cri_api::{ImageFilter, ImageService, ImageSpec, Kind, PullImageRequest, RuntimeService as _};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service, connect_runtime_service};
use registry::testing::{Fault, ImageBuilder, TestRegistry};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::process::signal;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch};

async fn client(socket: &Path) -> Arc<dyn ImageService> {
    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    Arc::new(connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn cri_calls_in_the_order_of_a_node() {
    let s = Scene::new();
    let (name, image) = s.push_file("serve/one:1", "a", "one");
    let socket = s.scratch.join("cri.sock");
    let _agent = s.imagelet.serve(&socket);
    let service = client(&socket).await;
    assert_eq!(service.list_images(None).await.expect("an empty list"), []);
    assert_eq!(service.image_status(&ImageSpec::new(&name), false).await.expect("absent is no error").image, None);
    assert_eq!(service.pull_image(PullImageRequest::new(&name)).await.expect("a pull"), image.id);
    let listed = service.list_images(None).await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id.as_str(), listed[0].repo_tags.as_slice()), (image.id.as_str(), [name.clone()].as_slice()));
    let filter = ImageFilter { image: Some(ImageSpec::new(&image.id[..19])) };
    assert_eq!(service.list_images(Some(&filter)).await.expect("a list").len(), 1, "a short id with its algorithm");
    let verbose = service.image_status(&ImageSpec::new(&name), true).await.expect("a status");
    let info: Value = serde_json::from_str(&verbose.info["info"]).expect("the information is JSON");
    assert!(info["chainID"].is_string() && info["imageSpec"]["rootfs"].is_object(), "{info}");
    let usage = service.image_fs_info().await.expect("usage").image_filesystems.remove(0);
    assert!(usage.used_bytes.unwrap_or_default() > 0 && usage.inodes_used.unwrap_or_default() > 0, "{usage:?}");
    let missing =
        service.pull_image(PullImageRequest::new(s.registry.name("serve/missing:1"))).await.expect_err("no such image");
    assert_eq!(missing.kind(), Kind::NotFound);
    service.remove_image(&ImageSpec::new(&name)).await.expect("a removal");
    assert_eq!(service.list_images(None).await.expect("a list"), []);

    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    let runtime =
        connect_runtime_service(&endpoint, ClientOptions::default()).await.expect("crictl connects like this");
    assert_eq!(runtime.version().await.expect("a version").runtime_name, "imagelet");
    assert_eq!(runtime.list_containers(None).await.expect("stubs answer"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn how_long_a_registry_wants_to_be_left_alone_reaches_the_client() {
    let s = Scene::new();
    let registry = TestRegistry::open().await;
    registry.push("busy/app", "1", &ImageBuilder::tiny("busy"));
    registry.faults().always("/manifests/", Fault::rate_limited("30"));
    let socket = s.scratch.join("cri.sock");
    let _agent = s.imagelet.serve(&socket);
    let request = PullImageRequest::new(format!("{}/busy/app:1", registry.host()));
    let error = client(&socket).await.pull_image(request).await.expect_err("refused");
    assert_eq!((error.kind(), error.retry_after()), (Kind::ResourceExhausted, Some(Duration::from_secs(30))));
    assert_eq!(registry.requests_for("/manifests/").len(), 1, "it is not waited out here");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn socket_belongs_to_its_group_and_is_removed_with_the_agent() {
    let s = Scene::new();
    let socket = s.scratch.join("cri.sock");
    let mut agent = s.imagelet.serve(&socket);
    let meta = fs::symlink_metadata(&socket).expect("the socket is there");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o660);
    let second = Imagelet::on(&s.scratch.join("other"))
        .fails(1, &["serve", "--listen", &format!("unix://{}", socket.display())]);
    assert!(second.contains("cri.sock") && second.contains("another process answers"), "{second}");
    signal(agent.pid(), Signal::INT);
    agent.ended();
    assert!(!socket.exists(), "an agent that a person ends takes its socket along");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn unanswered_socket_is_replaced() {
    let s = Scene::new();
    let socket = s.scratch.join("stale.sock");
    drop(UnixListener::bind(&socket).expect("a socket"));
    assert!(socket.exists(), "what a killed agent leaves");
    let _agent = s.imagelet.serve(&socket);
    assert_eq!(Imagelet::remote(&format!("unix://{}", socket.display())).ids(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_command_line_reaches_a_root_that_an_agent_holds() {
    let s = Scene::new();
    let (name, image) = s.push_file("held/one:1", "a", "one");
    let socket = s.scratch.join("cri.sock");
    let mut agent = s.imagelet.serve(&socket);
    assert_eq!(
        s.imagelet.ok(&["pull", &name]).trim(),
        image.id,
        "through the agent's socket, which the lock file names"
    );
    assert_eq!(s.imagelet.ids(), [image.id.as_str()]);
    let second =
        s.imagelet.fails(1, &["serve", "--listen", &format!("unix://{}", s.scratch.join("second.sock").display())]);
    assert!(second.contains(&agent.pid().to_string()), "a second agent is told who holds the root: {second}");
    agent.stop();
    assert_eq!(s.imagelet.ids(), [image.id], "and by itself when the agent is gone");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_that_is_killed_leaves_a_root_that_opens() {
    let s = Scene::new();
    let (name, image) = s.push_file("killed/one:1", "a", "one");
    let socket = s.scratch.join("cri.sock");
    let agent = s.imagelet.serve(&socket);
    s.imagelet.ok(&["pull", &name]);
    agent.kill();
    assert_eq!(s.imagelet.ids(), [image.id]);
    let _again = s.imagelet.serve(&socket);
}

#[test]
fn command_lines_at_once_share_a_root() {
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("store"));
    let mut running: Vec<_> = (0..6).map(|_| imagelet.spawn(&["images"])).collect();
    for child in &mut running {
        let status = crate::support::cli::end_of(child);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut said).expect("text");
        assert!(status.success(), "{status}: {said}");
    }
}
