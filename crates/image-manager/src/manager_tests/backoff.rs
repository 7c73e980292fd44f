//! Back-off beyond upstream's table: what the manager makes of causes, events and changes.

use cri_api::{Error, Kind, Reason};

use super::*;
use crate::{BackoffSelector, Cause};

/// As it is in the product: by cause, and one event per window.
fn product() -> Options {
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
    Options { puller: SERIAL, keyring, ..Options::default() }
}

fn pulls(rig: &Rig) -> usize {
    rig.pulled_names().len()
}

#[tokio::test(start_paused = true)]
async fn one_event_per_window() {
    let rig = Rig::with(product());
    rig.fake.faults().fail(CallKind::PullImage, Error::new(Kind::NotFound, "404"));
    for _ in 0..24 {
        rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect_err("404");
    }
    // Pulls at 1 s and 11 s; each window has one event.
    assert_eq!(pulls(&rig), 2);
    assert_eq!(rig.reasons(), ["Pulling", "Failed", "BackOff", "Pulling", "Failed", "BackOff"]);
    assert_eq!(rig.messages()[2], "Back-off pulling image \"missing_image\"");
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_names_a_time_is_left_alone_by_other_pods_too() {
    let rig = Rig::with(product());
    rig.fake.publish("r.example/a:1", &FakeImage::new("a"));
    rig.fake.publish("s.example/a:1", &FakeImage::new("a"));
    let limited = Error::new(Kind::ResourceExhausted, "429 Too Many Requests");
    rig.fake.faults().fail_times(CallKind::PullImage, 1, limited.with_retry_after(Duration::from_secs(30)));
    let error = rig.ensure(request("r.example/a:1", PullPolicy::Always)).await.expect_err("429");
    assert_eq!((error.reason(), error.cause()), ("ErrImagePull", Some(Cause::RateLimited)));
    let mut other = request("r.example/a:1", PullPolicy::Always);
    other.pod.uid = "uid-2".into();
    let error = rig.ensure(other.clone()).await.expect_err("held");
    assert_eq!(error.reason(), "ImagePullBackOff");
    assert_eq!(error.message(), "Back-off pulling image \"r.example/a:1\": ErrImagePull: 429 Too Many Requests");
    rig.ensure(request("s.example/a:1", PullPolicy::Always)).await.expect("another registry");
    let listed: Vec<(String, u32)> = rig.manager.backoff().into_iter().map(|e| (e.uid, e.failures)).collect();
    assert_eq!(listed, [("uid-1".to_owned(), 1), ("uid-2".to_owned(), 0)]);
    rig.pass(30);
    rig.ensure(other).await.expect("the time is over");
}

#[tokio::test(start_paused = true)]
async fn new_credentials_or_another_configuration_end_it_at_once() {
    let configuration = Arc::new(AtomicU64::new(1));
    let seen = Arc::clone(&configuration);
    let fingerprint = move |registry: &str| {
        assert_eq!(registry, "docker.io");
        seen.load(Ordering::Relaxed)
    };
    let rig = Rig::with(Options { registry_fingerprint: Some(Arc::new(fingerprint)), ..product() });
    rig.fake.require_auth("missing_image", oci::RegistryAuth::basic("grace", "grace-password"));
    let mut asked = request("missing_image", PullPolicy::IfNotPresent);
    asked.secrets = vec![secret("a", "ada")];
    let mut reasons = Vec::new();
    for step in 0..5 {
        match step {
            2 => asked.secrets = vec![secret("a", "rex")],
            4 => configuration.store(2, Ordering::Relaxed),
            _ => {}
        }
        reasons.push(rig.ensure(asked.clone()).await.expect_err("not grace").reason());
    }
    assert_eq!(reasons, ["ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImagePull"]);
    assert_eq!(rig.manager.backoff()[0].window, Duration::from_secs(10), "each change begins a new back-off");
    asked.secrets.push(secret("b", "grace"));
    assert!(rig.ensure(asked).await.expect("grace may").pulled);
}

fn down() -> Error {
    Error::new(Kind::Unavailable, "down").with_reason(Reason::RegistryUnavailable)
}

#[tokio::test(start_paused = true)]
async fn listed_reset_and_counted() {
    let rig = Rig::with(product());
    rig.fake.faults().fail(CallKind::PullImage, down());
    rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect_err("down");
    rig.pass(4);
    let listed = rig.manager.backoff();
    let [entry] = &listed[..] else { panic!("one entry: {listed:?}") };
    assert_eq!((entry.namespace.as_str(), entry.name.as_str(), entry.uid.as_str()), ("default", "pod", "uid-1"));
    assert_eq!((entry.image.as_str(), entry.registry.as_str()), ("missing_image", "docker.io"));
    assert_eq!((entry.cause, entry.failures), (Cause::Unavailable, 1));
    assert_eq!((entry.window, entry.remaining), (Duration::from_secs(10), Duration::from_secs(6)));
    assert!(entry.message.starts_with("RegistryUnavailable: image pull failed for missing_image"), "{}", entry.message);
    assert_eq!(rig.manager.reset_backoff(&BackoffSelector::Image("other".into())), 0);
    assert_eq!(rig.manager.reset_backoff(&BackoffSelector::Image("missing_image".into())), 1);
    rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect_err("down");
    assert_eq!(pulls(&rig), 2, "the reset let it through");
}

#[tokio::test(start_paused = true)]
async fn a_success_keeps_what_the_next_failure_doubles() {
    let rig = Rig::with(product());
    rig.fake.faults().fail_times(CallKind::PullImage, 1, Error::new(Kind::NotFound, "404"));
    rig.ensure(request("missing_image", PullPolicy::Always)).await.expect_err("404");
    rig.pass(10);
    rig.ensure(request("missing_image", PullPolicy::Always)).await.expect("on offer");
    assert_eq!(rig.manager.backoff(), []);
    rig.fake.faults().fail(CallKind::PullImage, Error::new(Kind::NotFound, "404"));
    rig.ensure(request("missing_image", PullPolicy::Always)).await.expect_err("404");
    assert_eq!(rig.manager.backoff()[0].window, Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn who_finds_the_image_by_other_means_waits_no_more() {
    let rig = Rig::with(product());
    rig.fake.faults().fail_times(CallKind::PullImage, 1, Error::new(Kind::NotFound, "404"));
    rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect_err("404");
    rig.fake.preload("missing_image", &FakeImage::new("missing"));
    rig.pass(10);
    rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect("imported");
    assert_eq!(rig.manager.backoff(), []);
}
