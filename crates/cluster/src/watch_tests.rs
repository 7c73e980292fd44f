//! Watches on an API server in memory, with and without streaming lists.

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::fake::FakeServer;

const PODS: &str = "/api/v1/namespaces/shop/pods";
const SETS: &str = "/apis/imagelet.dev/v1alpha1/imagesets";

fn selection() -> Selection {
    Selection::pods_of("edge")
}

fn pod(node: &str) -> Value {
    json!({"metadata": {"managedFields": [{"manager": "kubectl"}]}, "spec": {"nodeName": node}})
}

struct Scene {
    server: FakeServer,
    selected: watch::Receiver<Selected>,
    _stop: tokio_util::sync::DropGuard,
}

impl Scene {
    fn new(server: FakeServer) -> Self {
        Self::of(server, selection())
    }

    fn of(server: FakeServer, selection: Selection) -> Self {
        let (sender, stop) = (watch::Sender::new(Selected::default()), CancellationToken::new());
        let (selected, client, ended) = (sender.subscribe(), server.client(), stop.clone());
        tokio_util::task::TaskTracker::new().spawn(async move { follow(&client, &selection, &sender, &ended).await });
        Self { server, selected, _stop: stop.drop_guard() }
    }

    /// Waits until exactly these pods are known.
    async fn until(&mut self, names: &[&str]) {
        let known = |selected: &Selected| {
            let mut known: Vec<_> =
                selected.objects.values().filter_map(|object| object["metadata"]["name"].as_str()).collect();
            known.sort_unstable();
            selected.ready && known == names
        };
        let waited = tokio::time::timeout(Duration::from_secs(600), self.selected.wait_for(known)).await;
        assert!(waited.is_ok_and(|heard| heard.is_ok()), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_fields_that_are_kept_are_held() {
    for streams in [true, false] {
        let server = FakeServer::new(streams);
        let set = |disk: &str| json!({"metadata": {"labels": {"disk": disk}}, "status": {"images": [1, 2, 3]}});
        server.put(&format!("{SETS}/a"), set("ssd"));
        let selection =
            Selection::all_of("imagelet.dev/v1alpha1", "imagesets").keeping(&["/metadata/name", "/metadata/labels"]);
        let mut scene = Scene::of(server, selection);
        scene.until(&["a"]).await;
        scene.server.put(&format!("{SETS}/a"), set("hdd"));
        scene.server.put(&format!("{SETS}/b"), set("hdd"));
        scene.until(&["a", "b"]).await;
        for object in scene.selected.borrow().objects.values() {
            let name = &object["metadata"]["name"];
            assert_eq!(**object, json!({"metadata": {"name": name, "labels": {"disk": "hdd"}}}));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn objects_come_change_and_go_on_every_server() {
    for streams in [true, false] {
        let server = FakeServer::new(streams);
        server.put(&format!("{PODS}/a"), pod("edge"));
        server.put(&format!("{PODS}/other"), pod("else"));
        let mut scene = Scene::new(server);
        scene.until(&["a"]).await;
        let object = scene.selected.borrow().objects.values().next().cloned().expect("one");
        assert!(object["metadata"].get("managedFields").is_none());
        scene.server.put(&format!("{PODS}/b"), pod("edge"));
        scene.until(&["a", "b"]).await;
        scene.server.remove(&format!("{PODS}/a"));
        scene.until(&["b"]).await;
        let want: &[&str] = match streams {
            true => &["WATCH /api/v1/pods"],
            // It was asked for a stream once.
            false => &["WATCH /api/v1/pods", "GET /api/v1/pods", "WATCH /api/v1/pods"],
        };
        assert_eq!(scene.server.take_requests(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_resumes_from_its_version() {
    for streams in [true, false] {
        let mut scene = Scene::new(FakeServer::new(streams));
        scene.server.put(&format!("{PODS}/a"), pod("edge"));
        scene.until(&["a"]).await;
        scene.server.take_requests();
        scene.server.close_watches();
        scene.server.put(&format!("{PODS}/b"), pod("edge"));
        scene.until(&["a", "b"]).await;
        assert_eq!(scene.server.take_requests(), ["WATCH /api/v1/pods"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_listed_again_and_what_is_the_same_stays() {
    for streams in [true, false] {
        let mut scene = Scene::new(FakeServer::new(streams));
        scene.server.put(&format!("{PODS}/a"), pod("edge"));
        scene.server.put(&format!("{PODS}/b"), pod("edge"));
        scene.until(&["a", "b"]).await;
        let before = scene.selected.borrow().objects.values().next().cloned().expect("one");
        scene.server.set_away(true);
        scene.server.remove(&format!("{PODS}/b"));
        scene.server.compact();
        // While the server does not answer, no object counts as removed.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.selected.borrow().objects.len(), 2);
        scene.server.set_away(false);
        scene.until(&["a"]).await;
        let after = scene.selected.borrow().objects.values().next().cloned().expect("one");
        assert!(Arc::ptr_eq(&before, &after));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_asked_less_and_less() {
    let server = FakeServer::new(true);
    server.set_away(true);
    let mut scene = Scene::new(server);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = scene.server.take_requests().len();
    // 0.8, 1.6, … 30 s, a quarter more or less.
    assert!((15..30).contains(&asked), "{asked}");
    assert!(!scene.selected.borrow().ready);
    scene.server.set_away(false);
    scene.until(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn watches_of_many_nodes_do_not_end_together() {
    let mut scene = Scene::new(FakeServer::new(true));
    for _ in 0..20 {
        scene.until(&[]).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.server.close_watches();
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    let seconds = scene.server.watch_seconds();
    assert!(seconds.len() >= 20 && seconds.iter().all(|seconds| (300..=600).contains(seconds)), "{seconds:?}");
    let different: std::collections::BTreeSet<&u64> = seconds.iter().collect();
    assert!(different.len() > 10, "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn object_deleted_while_it_is_listed_is_absent() {
    let server = FakeServer::new(true);
    server.put(&format!("{PODS}/a"), pod("edge"));
    server.put(&format!("{PODS}/b"), pod("edge"));
    server.delete_in_list(&format!("{PODS}/a"));
    let mut scene = Scene::new(server);
    scene.until(&["b"]).await;
    assert_eq!(scene.server.take_requests(), ["WATCH /api/v1/pods", "WATCH /api/v1/pods"]);
    scene.server.put(&format!("{PODS}/c"), pod("edge"));
    scene.until(&["b", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_wait_longer_and_longer() {
    for streams in [true, false] {
        let mut scene = Scene::new(FakeServer::new(streams));
        scene.until(&[]).await;
        scene.server.take_requests();
        let server = scene.server.clone();
        let close = async {
            // Every watch ends within a tenth of a second, for ten minutes.
            for _ in 0..6000 {
                server.close_watches();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        close.await;
        let asked = scene.server.take_requests();
        assert!((15..40).contains(&asked.len()), "{}", asked.len());
        assert!(asked.iter().all(|request| request == "WATCH /api/v1/pods"), "nothing is listed again: {asked:?}");
        scene.server.put(&format!("{PODS}/a"), pod("edge"));
        scene.until(&["a"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn watch_refused_with_410_lists_again() {
    for streams in [true, false] {
        let mut scene = Scene::new(FakeServer::new(streams));
        scene.server.put(&format!("{PODS}/a"), pod("edge"));
        scene.until(&["a"]).await;
        // The status of the answer itself, not an event of the watch.
        scene.server.fail("WATCH", 410);
        scene.server.close_watches();
        scene.server.remove(&format!("{PODS}/a"));
        scene.until(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn object_without_uid_is_a_failure_and_nothing_is_lost() {
    for streams in [true, false] {
        let mut scene = Scene::new(FakeServer::new(streams));
        scene.server.put(&format!("{PODS}/a"), pod("edge"));
        scene.until(&["a"]).await;
        // A changed object that lost its uid on the way; then one that nothing is wrong with.
        let mut unsound = pod("edge");
        unsound["metadata"]["uid"] = json!("");
        scene.server.put(&format!("{PODS}/b"), unsound.clone());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.selected.borrow().objects.len(), 1, "{streams}");
        unsound["metadata"]["uid"] = json!("uid-b");
        scene.server.put(&format!("{PODS}/b"), unsound);
        scene.until(&["a", "b"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_an_end_is_replaced_by_a_plain_one() {
    let server = FakeServer::new(true);
    server.put(&format!("{PODS}/a"), pod("edge"));
    server.set_endless_lists(true);
    let begun = Instant::now();
    let mut scene = Scene::new(server);
    scene.until(&["a"]).await;
    assert!(begun.elapsed() >= requests::LIST, "{:?}", begun.elapsed());
    assert_eq!(scene.server.take_requests(), ["WATCH /api/v1/pods", "GET /api/v1/pods", "WATCH /api/v1/pods"]);
}

#[tokio::test(start_paused = true)]
async fn watch_that_the_server_does_not_end_is_ended() {
    let mut scene = Scene::new(FakeServer::new(true));
    scene.until(&[]).await;
    scene.server.take_requests();
    // The fake server ends no watch by itself: 600 seconds and 30 more are the most that a watch lasts.
    tokio::time::sleep(Duration::from_secs(640)).await;
    assert!((1..=2).contains(&scene.server.take_requests().len()));
    scene.server.put(&format!("{PODS}/a"), pod("edge"));
    scene.until(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn outage_in_a_streaming_list_does_not_give_up_streaming_lists() {
    let server = FakeServer::new(true);
    server.put(&format!("{PODS}/a"), pod("edge"));
    server.set_endless_lists(true);
    let mut scene = Scene::new(server);
    // The list has begun; then the server is away for longer than a list may take.
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.server.set_away(true);
    scene.server.set_endless_lists(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    scene.server.set_away(false);
    scene.until(&["a"]).await;
    let asked = scene.server.take_requests();
    assert!(asked.iter().all(|request| request == "WATCH /api/v1/pods"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn plain_watch_after_a_refused_streaming_list_does_not_wait() {
    let begun = Instant::now();
    let mut scene = Scene::new(FakeServer::new(false));
    scene.until(&[]).await;
    while scene.server.count("WATCH") < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}
