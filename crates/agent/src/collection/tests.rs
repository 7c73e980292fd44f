//! A collection of a fake's images: over the admin endpoint and without it, with and without a runtime that knows the
//! containers, and as clients of an agent see it.

use std::path::Path;

use cri_api::testing::{CallKind, FakeImage, FakeImageService, FakeRuntimeService};
use cri_api::{Container, ContainerState, ImageSpec, Kind};
use image_manager::{LogRecorder, gc};
use tokio_util::sync::CancellationToken;

use super::collects::chain;
use super::*;
use super::{Collects, RemoteCollection};
use crate::admin::{Admin, AdminAddress};

const UNUSED: &str = "registry.test/unused:1";
const KEPT: &str = "registry.test/kept:1";

impl CollectionParts {
    /// Of what a fake has, without ages, with its state below `root`.
    pub(crate) fn for_tests(root: &Path, fake: &FakeImageService, endpoint: &str, runtime: Runtime) -> Self {
        let clock = || Arc::new(jiff::Timestamp::now);
        let mut images = GcOptions::new(clock(), Arc::new(gc::measure));
        images.policy.min_age = Duration::ZERO;
        images.protect_pre_pulled = Duration::ZERO;
        images.directory = Some(root.join("image_gc"));
        let (service, events) = (Arc::new(fake.clone()), Arc::new(LogRecorder));
        let containers = ContainerGcOptions::new(clock());
        Self { service, endpoint: endpoint.to_owned(), runtime, events, images, containers, pods: None }
    }
}

type Runtime = Result<Option<Arc<dyn RuntimeService>>, String>;

async fn open(root: &Path, fake: &FakeImageService, endpoint: &str, runtime: Runtime) -> Arc<Collection> {
    let parts = CollectionParts::for_tests(root, fake, endpoint, runtime);
    Arc::new(Collection::open(parts).await.expect("it opens"))
}

fn images() -> (FakeImageService, String, String) {
    let fake = FakeImageService::new();
    let unused = fake.preload(UNUSED, &FakeImage::new("unused").sized(5_000_000));
    let kept = fake.preload(KEPT, &FakeImage::new("kept").sized(3_000_000));
    (fake, unused, kept)
}

fn everything() -> CollectRequest {
    CollectRequest { all_unused: true, ..CollectRequest::default() }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect()
}

/// Asks every question of the owner of the collection.
async fn asked(owner: &dyn Collects, fake: &FakeImageService, ids: (&str, &str)) {
    let (unused, kept) = ids;
    let pinned = owner.pin(&patterns(&["registry.test/kept", "registry.test/none"])).await.expect("pinned");
    let told: Vec<_> = pinned.iter().map(|pin| (pin.pattern.as_str(), pin.images.len(), pin.changed)).collect();
    assert_eq!(told, [("registry.test/kept", 1, true), ("registry.test/none", 0, true)]);
    assert!(owner.pin(&patterns(&["registry.test/kept"])).await.expect("pinned")[0].images[0].id == kept);
    let plan = owner.plan(&everything()).await.expect("a plan");
    let decided: Vec<_> = plan.images.iter().map(|image| (image.id.as_str(), image.decision.as_str())).collect();
    assert_eq!(decided, [(unused, "remove"), (kept, "pinned")]);
    assert_eq!((plan.exact, plan.high_threshold_percent, plan.disk), (false, 85, None), "a fake has no disk");
    assert!(owner.names().await.expect("names")[kept].contains(&KEPT.to_owned()));

    let failure = owner.plan(&CollectRequest::default()).await.expect_err("nothing to measure");
    assert!(chain(&failure).contains("measure the image file system /fake/images"), "{failure:?}");
    let failure = owner.containers(true).await.expect_err("there is no runtime");
    assert!(chain(&failure).starts_with("no container runtime is configured"), "{failure:?}");
    fake.faults().fail_times(CallKind::ListImages, 1, cri_api::Error::new(cri_api::Kind::Unavailable, "gone"));
    let failure = owner.plan(&everything()).await.expect_err("the service is away");
    assert_eq!((failure.kind(), chain(&failure)), (Kind::Unavailable, "list images: gone".to_owned()));

    let done = owner.collect(&everything()).await.expect("collected");
    let removed: Vec<_> = done.removed.iter().map(|image| (image.id.as_str(), image.because.as_str())).collect();
    assert_eq!((removed, done.problem, done.missing), (vec![(unused, "unused")], None, None));
    let gone = owner.unpin(&patterns(&["registry.test/kept", "registry.test/other"])).await.expect("unpinned");
    assert_eq!(gone.iter().map(|pin| pin.changed).collect::<Vec<_>>(), [true, false]);
    let left: Vec<String> = owner.pins().await.expect("pins").into_iter().map(|pin| pin.pattern).collect();
    assert_eq!(left, ["registry.test/none"]);
}

#[tokio::test]
async fn this_process_and_an_agent_answer_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let (fake, unused, kept) = images();
    let here = open(&directory.path().join("here"), &fake, "", Ok(None)).await;
    asked(&*here, &fake, (&unused, &kept)).await;

    let (fake, unused, kept) = images();
    let root = directory.path().join("agent");
    let collection = open(&root, &fake, "unix:///run/x.sock", Ok(None)).await;
    let mut admin = Admin::new(|_| {}, Arc::new(fake.clone()));
    admin.collection = Some(collection);
    let places = AdminAddress::at(root.join("admin.sock"));
    let running = admin.start(&places, &CancellationToken::new()).await.expect("it starts");
    let agent = RemoteCollection::of_endpoint(&places.socket, "unix:///run/x.sock").await.expect("it answers");
    assert!(
        RemoteCollection::of_endpoint(&places.socket, "unix:///run/y.sock").await.is_none(),
        "another runtime's images"
    );
    let failure = RemoteCollection::of_root(&places.socket).await.expect_err("not those of the store");
    assert!(chain(&failure).contains("unix:///run/x.sock"), "{failure:?}");
    asked(&agent, &fake, (&unused, &kept)).await;
    let ask = async |method: &str, target: &str| {
        let method = method.parse().expect("a method");
        let asked = crate::api::client::ask_json::<serde_json::Value>(&places.socket, method, target).await;
        let error = asked.expect_err(target);
        (error.kind(), error.to_string())
    };
    for (method, target, part) in [
        ("POST", "/v1/gc/collect?allUnused=maybe", "allUnused: must be true"),
        ("POST", "/v1/pins?pattern=", "image pattern"),
        ("POST", "/v1/pins", "pattern is needed"),
        ("POST", "/v1/check?fast=true", "unknown parameter"),
        ("POST", "/v1/gc/room?needed=much", "needed is a number of bytes"),
        ("GET", "/v1/gc/collect", "has other methods"),
    ] {
        let (kind, line) = ask(method, target).await;
        assert!(kind == Kind::InvalidArgument && line.contains(part), "{target}: {kind:?} {line}");
    }
    for (target, what) in [("/v1/check", "check"), ("/v1/convert?to=dir", "convert")] {
        let why = format!("{what} works on the embedded store only, and the images are behind unix:///run/x.sock");
        assert_eq!(ask("POST", target).await, (Kind::Unimplemented, why));
    }
    running.stop().await;
    assert!(RemoteCollection::of_endpoint(&places.socket, "unix:///run/x.sock").await.is_none(), "no agent listens");
}

#[tokio::test]
async fn what_a_container_uses_stays_and_who_knows_no_containers_removes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (fake, _, kept) = images();
    let blind = open(directory.path(), &fake, "", Err("the runtime is away".to_owned())).await;
    for failure in [
        blind.plan(&everything()).await.expect_err("refused"),
        blind.collect(&everything()).await.expect_err("refused"),
        blind.containers(false).await.expect_err("refused"),
    ] {
        assert!(chain(&failure).contains("the runtime is away; --runtime-endpoint names the runtime"), "{failure:?}");
    }
    let room = blind.reclaim_space(Some(1)).await;
    assert!(room.removed == 0 && room.problem.is_some_and(|text| text.contains("the runtime is away")));

    let runtime = FakeRuntimeService::new().with_images(&fake);
    runtime.put_container(Container {
        id: "c1".into(),
        image_id: kept.clone(),
        state: ContainerState::Exited,
        ..Container::default()
    });
    let collection = open(directory.path(), &fake, "", Ok(Some(Arc::new(runtime)))).await;
    let plan = collection.plan(&everything()).await.expect("a plan");
    let why = plan.images.iter().find(|image| image.id == kept).map(|image| image.decision.as_str());
    assert_eq!(why, Some("in-use"), "also by a container that has ended");
    assert_eq!(collection.collect(&everything()).await.expect("collected").removed.len(), 1);
    let left = collection.containers(true).await.expect("a plan").items;
    assert_eq!(left.iter().map(|left| left.id.as_str()).collect::<Vec<_>>(), ["c1"]);
}

#[tokio::test]
async fn clients_see_what_is_pinned() {
    let directory = tempfile::tempdir().expect("a directory");
    let (fake, _, kept) = images();
    let collection = open(directory.path(), &fake, "", Ok(None)).await;
    let served = collection.served(Arc::new(fake.clone()), false);
    let pinned = async || -> Vec<String> {
        let list = served.list_images(None).await.expect("a list");
        list.into_iter().filter(|image| image.pinned).map(|image| image.id).collect()
    };
    assert_eq!(pinned().await, Vec::<String>::new());
    collection.pin(&patterns(&["registry.test/kept"])).await.expect("pinned");
    assert_eq!(pinned().await, [kept]);
    let status = served.image_status(&ImageSpec::new(KEPT), false).await.expect("a status");
    assert!(status.image.is_some_and(|image| image.pinned));
    // Another process reads it from the disk.
    let other = open(directory.path(), &fake, "", Ok(None)).await;
    let list = other.served(Arc::new(fake), false).list_images(None).await.expect("a list");
    assert_eq!(list.iter().filter(|image| image.pinned).count(), 1);
    other.unpin(&patterns(&["registry.test/kept"])).await.expect("unpinned");
}
