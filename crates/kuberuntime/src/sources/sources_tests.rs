//! Sources on real directories with the kernel's own events: what is written is known soon, and what is not whole changes
//! nothing.

use base::lock::Mutex;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use image_manager::{Event, EventRecorder, EventRef, WallClock};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::*;
use crate::pod::{Pod, ProfileKind, Word as _};

const SOON: Duration = Duration::from_secs(60);

#[derive(Default)]
struct RecordedEvents(Mutex<Vec<Event>>);

impl EventRecorder for RecordedEvents {
    fn record(&self, event: EventRef<'_>) {
        self.0.lock().push(event.into());
    }
}

impl RecordedEvents {
    fn lines(&self) -> Vec<String> {
        self.0.lock().iter().map(|event| format!("{} {}", event.reason, event.message)).collect()
    }
}

/// The sources at work. Dropping it ends them.
struct Scene {
    desired: watch::Receiver<DesiredPods>,
    documents: DocumentStore,
    events: Arc<RecordedEvents>,
    _stop: tokio_util::sync::DropGuard,
}

fn parse() -> Parse {
    Arc::new(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        serde_saphyr::from_multiple::<Value>(text).map_err(|error| error.to_string().lines().next().unwrap().to_owned())
    })
}

fn options(events: &Arc<RecordedEvents>) -> SourceOptions {
    let clock = AtomicUsize::new(0);
    // Every reading of the clock gives another time: pods must not be seen twice.
    let clock: WallClock =
        Arc::new(move || Timestamp::now() + Duration::from_micros(clock.fetch_add(1, Ordering::Relaxed) as u64));
    let events: Arc<dyn EventRecorder> = Arc::clone(events) as _;
    SourceOptions {
        file_check: Duration::from_secs(300),
        quiet: Duration::from_millis(150),
        ..SourceOptions::new("n1".to_owned(), parse(), events, clock)
    }
}

fn scene_with(sources: Vec<Source>, change: impl FnOnce(&mut SourceOptions)) -> Scene {
    let events = Arc::new(RecordedEvents::default());
    let mut options = options(&events);
    change(&mut options);
    let sources = Sources::new(sources, options);
    let (desired, documents) = (sources.desired(), sources.documents());
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    TaskTracker::new().spawn(async move { sources.run(&stop).await });
    Scene { desired, documents, events, _stop: guard }
}

fn scene(path: &Path) -> Scene {
    scene_with(vec![Source::Path(path.to_owned())], |_| {})
}

impl Scene {
    /// Waits until what is desired is so.
    async fn until(&mut self, what: &str, so: impl FnMut(&DesiredPods) -> bool) -> DesiredPods {
        let last = self.desired.clone();
        let found = tokio::time::timeout(SOON, self.desired.wait_for(so)).await;
        let found = found.unwrap_or_else(|_| panic!("never {what}: {}", shown(&last.borrow())));
        found.expect("the sources work").clone()
    }

    /// Waits until these pods are desired, given as `name image`.
    async fn pods(&mut self, want: &[&str]) -> DesiredPods {
        self.until(&format!("{want:?}"), |desired| desired.ready && pods(desired) == want).await
    }
}

fn pods(desired: &DesiredPods) -> Vec<String> {
    let name = |pod: &Arc<Pod>| format!("{} {}", pod.metadata.name, pod.spec.containers[0].image);
    let mut pods: Vec<_> = desired.pods.values().map(name).collect();
    pods.sort();
    pods
}

fn shown(desired: &DesiredPods) -> String {
    format!("ready {} {:?} held {:?} refused {:?}", desired.ready, pods(desired), desired.held, desired.refused)
}

fn pod(name: &str, image: &str) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                     "spec": {"containers": [{"name": "main", "image": image}]}});
    pod.to_string()
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
}

#[tokio::test]
async fn files_come_change_and_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    write(&at("a.yaml"), &pod("a", "x:1"));
    write(&at(".hidden.yaml"), &pod("hidden", "x:1"));
    fs::create_dir(at("below.yaml")).expect("made");
    let mut scene = scene(directory.path());
    let first = scene.pods(&["a-n1 x:1"]).await;
    let (uid, one) = first.pods.first_key_value().expect("one");
    let annotations = &one.metadata.annotations;
    assert_eq!(annotations[CONFIG_ORIGIN_ANNOTATION], at("a.yaml").display().to_string());
    assert!(annotations[crate::identity::CONFIG_SEEN_ANNOTATION].parse::<Timestamp>().is_ok());

    // Another file, and the first one is the same object still, though it was written again.
    write(&at("a.yaml"), &format!(" {} # the same", pod("a", "x:1")));
    write(&at("b"), &format!("---\n{}\n---\n{}\n", pod("b", "x:1"), pod("c", "x:1")));
    let both = scene.pods(&["a-n1 x:1", "b-n1 x:1", "c-n1 x:1"]).await;
    assert!(Arc::ptr_eq(&both.pods[uid], one));

    // The old pod is removed and the new one added in one update.
    let mut changes = scene.desired.clone();
    changes.mark_unchanged();
    write(&at("a.yaml"), &pod("a", "x:2"));
    tokio::time::timeout(SOON, changes.changed()).await.expect("soon").expect("the sources work");
    let changed = changes.borrow_and_update().clone();
    assert_eq!(pods(&changed), ["a-n1 x:2", "b-n1 x:1", "c-n1 x:1"]);
    assert!(!changed.pods.contains_key(uid));

    fs::remove_file(at("b")).expect("removed");
    scene.pods(&["a-n1 x:2"]).await;
    fs::rename(at("a.yaml"), at(".a.yaml")).expect("moved");
    let last = scene.pods(&[]).await;
    assert!(last.held.is_empty() && last.refused.is_empty(), "{}", shown(&last));
}

#[tokio::test]
async fn a_whole_file_is_read_without_a_rest() {
    let directory = tempfile::tempdir().expect("a directory");
    // A rest before the file is read, or the next list of the directory, would take far longer than the test waits.
    let hour = Duration::from_secs(3600);
    let mut scene = scene_with(vec![Source::Path(directory.path().to_owned())], |options| {
        options.quiet = hour;
        options.file_check = hour;
    });
    scene.pods(&[]).await;
    for index in 0..20 {
        let name = format!("p{index}");
        write(&directory.path().join(format!("{name}.yaml")), &pod(&name, "x:1"));
        scene.until(&name, |desired| desired.pods.len() == index + 1).await;
    }
}

#[tokio::test]
async fn what_is_not_whole_or_not_valid_changes_nothing() {
    use std::io::Write as _;
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    write(&at("a.yaml"), &pod("a", "x:1"));
    write(&at("bad.yaml"), "kind: [");
    let mut scene = scene(directory.path());
    let held = at("bad.yaml").display().to_string();
    let first = scene.until("held", |desired| desired.ready && desired.held.contains(&held)).await;
    assert_eq!((pods(&first), first.held.len()), (vec!["a-n1 x:1".to_owned()], 1));
    let told = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert_eq!(told.refused[0].origin, held);

    // Half of it is a whole pod of another kind; then it is left so for a while.
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: main, image: 'x:2'}\n";
    let rest = "  - {name: side, image: 'y:1'}\n";
    let mut file = fs::File::create(at("a.yaml")).expect("made");
    file.write_all(text.as_bytes()).expect("written");
    // Something else that happens meanwhile shows that the half was passed over.
    write(&at("c.yaml"), &pod("c", "x:1"));
    scene.pods(&["a-n1 x:1", "c-n1 x:1"]).await;
    file.write_all(rest.as_bytes()).expect("written");
    drop(file);
    let whole = scene.pods(&["a-n1 x:2", "c-n1 x:1"]).await;
    let a = whole.pods.values().find(|pod| pod.metadata.name == "a-n1").expect("there");
    assert_eq!(a.spec.containers.len(), 2);

    // Empty, cut, no pod, not allowed: the last good one stays in force, and each reason is reported once.
    let reason = |desired: &DesiredPods| {
        let path = at("a.yaml").display().to_string();
        desired.refused.iter().find(|r| r.origin == path).map(|r| r.reason.clone()).unwrap_or_default()
    };
    let cases = [
        ("", "it is empty; what it said before goes on"),
        ("# nothing\n", "there is no object in it; what"),
        (
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}\n",
            "Deployment \"x\" (apps/v1) is passed over: only",
        ),
        ("- 1\n", "an object was expected, not a list; what"),
        (
            "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}",
            "error: line 1 column 1: unclosed",
        ),
        (&pod("A_b", ""), "[metadata.name: Invalid value: \"A_b-n1\""),
    ];
    for (text, want) in cases {
        write(&at("a.yaml"), text);
        let now = scene.until(want, |desired| reason(desired).starts_with(want));
        let now = now.await;
        assert_eq!(pods(&now), ["a-n1 x:2", "c-n1 x:1"], "{want}");
        assert!(!now.held.contains(&at("a.yaml").display().to_string()));
    }
    let lines = scene.events.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("A_b-n1_default(")).count(), 1, "{lines:?}");
    assert!(lines[0].starts_with("FailedValidation Error validating pod A_b-n1_default("), "{lines:?}");
    write(&at("a.yaml"), &pod("a", "x:3"));
    let mended = scene.pods(&["a-n1 x:3", "c-n1 x:1"]).await;
    assert_eq!(mended.refused.len(), 1, "{}", shown(&mended));
}

#[tokio::test]
async fn editors_dances_are_one_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    write(&at("web.yaml"), &pod("web", "x:1"));
    let mut scene = scene(directory.path());
    let mut image = 1;
    scene.pods(&["web-n1 x:1"]).await;
    let mut seen = scene.desired.clone();
    seen.mark_unchanged();
    type Dance = fn(&dyn Fn(&str) -> PathBuf, &str);
    let dances: [Dance; 4] = [
        // vim with a backup, and its probe.
        |at, text| {
            write(&at("4913"), "");
            fs::remove_file(at("4913")).expect("removed");
            fs::rename(at("web.yaml"), at("web.yaml~")).expect("moved");
            write(&at("web.yaml"), text);
            fs::remove_file(at("web.yaml~")).expect("removed");
        },
        // sed -i: a name of its own that sorts in front.
        |at, text| {
            write(&at("sedA1b2"), text);
            fs::rename(at("sedA1b2"), at("web.yaml")).expect("moved");
        },
        |at, text| {
            fs::remove_file(at("web.yaml")).expect("removed");
            write(&at("web.yaml"), text);
        },
        |at, text| {
            write(&at(".web.yaml.tmp"), text);
            fs::rename(at(".web.yaml.tmp"), at("web.yaml")).expect("moved");
        },
    ];
    for dance in dances {
        image += 1;
        let want = format!("web-n1 x:{image}");
        dance(&at, &pod("web", &format!("x:{image}")));
        let before = format!("web-n1 x:{}", image - 1);
        loop {
            tokio::time::timeout(SOON, seen.changed()).await.expect("soon").expect("the sources work");
            let now = pods(&seen.borrow_and_update());
            assert!(now == [before.clone()] || now == [want.clone()], "{now:?}");
            if now == [want.clone()] {
                break;
            }
        }
    }
    // A file under another name is another pod; there is one at every moment.
    let before = pods(&seen.borrow_and_update());
    let uid = seen.borrow().pods.keys().next().cloned().expect("one");
    fs::rename(at("web.yaml"), at("aaa.yaml")).expect("moved");
    let moved = scene.until("moved", |desired| {
        assert_eq!(pods(desired), before);
        !desired.pods.contains_key(&uid)
    });
    moved.await;
}

#[tokio::test]
async fn the_first_of_two_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    write(&at("a.yaml"), &pod("web", "x:1"));
    write(&at("b.yaml"), &pod("web", "x:2"));
    let by_hand = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": "u1"},
               "spec": {"containers": [{"name": "main", "image": "x:1"}]}})
        .to_string()
    };
    write(&at("c.yaml"), &by_hand("one"));
    write(&at("d.yaml"), &by_hand("two"));
    let mut scene = scene(directory.path());
    scene.pods(&["one-n1 x:1", "web-n1 x:1"]).await;
    let path = |name: &str| at(name).display().to_string();
    let refused = scene.desired.borrow().refused.clone();
    let reasons: Vec<_> = refused.iter().map(|r| (r.origin.clone(), r.reason.clone())).collect();
    let want = [
        (path("b.yaml"), format!("the pod default/web-n1 is in {} already", path("a.yaml"))),
        (path("d.yaml"), format!("the uid \"u1\" is that of a pod in {} already", path("c.yaml"))),
    ];
    assert_eq!(reasons, want);
    assert_eq!(refused[0].pod.as_deref(), Some("default/web-n1"));
    fs::remove_file(at("a.yaml")).expect("removed");
    scene.pods(&["one-n1 x:1", "web-n1 x:2"]).await;
    // A later manifest of an earlier path takes precedence, once it has been present for a moment.
    write(&at("a.yaml"), &pod("web", "x:3"));
    scene.pods(&["one-n1 x:1", "web-n1 x:3"]).await;
    let lines = scene.events.lines();
    assert!(lines.iter().any(|line| line.contains("ignoring: the pod default/web-n1 is in")), "{lines:?}");
}

#[tokio::test]
async fn a_directory_may_be_missing_appear_be_replaced_or_be_links() {
    let above = tempfile::tempdir().expect("a directory");
    let at = |name: &str| above.path().join(name);
    let mut scene = scene(&at("pods"));
    let told = scene.until("told", |desired| !desired.refused.is_empty()).await;
    let origin = at("pods").display().to_string();
    assert!(!told.ready && told.reported && told.unread.contains(&origin), "{}", shown(&told));
    assert_eq!((&told.refused[0].origin, told.holds(&format!("{origin}/a.yaml"))), (&origin, true));
    assert!(told.refused[0].reason.starts_with("it cannot be listed: No such file"), "{}", shown(&told));
    fs::create_dir(at("pods")).expect("made");
    write(&at("pods/a.yaml"), &pod("a", "x:1"));
    scene.pods(&["a-n1 x:1"]).await;
    // Another directory in its place, where the file is the same.
    fs::create_dir(at("next")).expect("made");
    write(&at("next/a.yaml"), &pod("a", "x:1"));
    write(&at("next/b.yaml"), &pod("b", "x:1"));
    let uid = scene.desired.borrow().pods.keys().next().cloned().expect("one");
    fs::rename(at("pods"), at("old")).expect("moved");
    fs::rename(at("next"), at("pods")).expect("moved");
    let replaced = scene.pods(&["a-n1 x:1", "b-n1 x:1"]).await;
    assert!(replaced.pods.contains_key(&uid));
    write(&at("pods/b.yaml"), &pod("b", "x:2"));
    scene.pods(&["a-n1 x:1", "b-n1 x:2"]).await;
    // The directory is removed with everything in it: it is not known which pods should run, and running pods go on.
    fs::remove_dir_all(at("pods")).expect("removed");
    let gone = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert_eq!((pods(&gone), gone.ready), (vec!["a-n1 x:1".to_owned(), "b-n1 x:2".to_owned()], true));
    let [told] = gone.refused.as_slice() else { panic!("one line: {}", shown(&gone)) };
    assert!(told.origin == origin && told.reason.ends_with("; what it said before goes on"), "{}", shown(&gone));
    assert!(gone.holds(&format!("{origin}/a.yaml")));
    // It is there again, and empty.
    fs::create_dir(at("pods")).expect("made");
    let empty = scene.pods(&[]).await;
    assert!(empty.refused.is_empty() && empty.unread.is_empty(), "{}", shown(&empty));
    fs::remove_dir(at("pods")).expect("removed");

    // As the kubelet lays out volumes: names are links through a link that is switched as a whole.
    let lay = |version: &str, image: &str| {
        let version = at(&format!("pods/..{version}"));
        fs::create_dir(&version).expect("made");
        write(&version.join("a.yaml"), &pod("a", image));
        std::os::unix::fs::symlink(version.file_name().expect("a name"), at("pods/..tmp")).expect("linked");
        fs::rename(at("pods/..tmp"), at("pods/..data")).expect("switched");
    };
    fs::create_dir(at("pods")).expect("made");
    lay("1", "x:1");
    std::os::unix::fs::symlink("..data/a.yaml", at("pods/a.yaml")).expect("linked");
    scene.pods(&["a-n1 x:1"]).await;
    lay("2", "x:2");
    fs::remove_dir_all(at("pods/..1")).expect("removed");
    scene.pods(&["a-n1 x:2"]).await;
    // The target of the link is missing: the file itself was not deleted.
    fs::remove_dir_all(at("pods/..2")).expect("removed");
    fs::remove_file(at("pods/..data")).expect("removed");
    let broken = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert_eq!(pods(&broken), ["a-n1 x:2"]);
    assert!(broken.refused[0].reason.starts_with("it is a link to what is not there"), "{}", shown(&broken));
    fs::remove_file(at("pods/a.yaml")).expect("removed");
    scene.pods(&[]).await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_listed_says_nothing() {
    let above = tempfile::tempdir().expect("a directory");
    let path = above.path().join("pods");
    std::os::unix::fs::symlink(&path, &path).expect("linked to itself");
    let mut scene = scene(&path);
    let told = scene.until("told", |desired| !desired.refused.is_empty()).await;
    // The content is unknown: no pod that runs from it may be taken for removed.
    assert!(!told.ready && told.refused[0].origin == path.display().to_string(), "{}", shown(&told));
    assert!(told.refused[0].reason.starts_with("it cannot be listed: "), "{}", shown(&told));
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    write(&path.join("a.yaml"), &pod("a", "x:1"));
    let mended = scene.pods(&["a-n1 x:1"]).await;
    assert!(mended.refused.is_empty());
}

#[tokio::test]
async fn a_path_may_be_one_file() {
    let above = tempfile::tempdir().expect("a directory");
    let path = above.path().join("pod.yaml");
    let mut scene = scene(&path);
    let told = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert!(!told.ready && told.unread.contains(&path.display().to_string()), "{}", shown(&told));
    write(&above.path().join("other.yaml"), &pod("other", "x:1"));
    write(&path, &pod("web", "x:1"));
    let there = scene.pods(&["web-n1 x:1"]).await;
    let origin = &there.pods.values().next().expect("one").metadata.annotations[CONFIG_ORIGIN_ANNOTATION];
    assert_eq!(*origin, path.display().to_string());
    write(&path, &pod("web", "x:2"));
    scene.pods(&["web-n1 x:2"]).await;
    // The file is the source: without it, it is not known which pods should run.
    fs::remove_file(&path).expect("removed");
    let gone = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert_eq!(pods(&gone), ["web-n1 x:2"]);
    assert_eq!((&gone.refused[0].origin, gone.refused.len()), (&path.display().to_string(), 1));
    write(&path, &pod("web", "x:3"));
    let back = scene.pods(&["web-n1 x:3"]).await;
    assert!(back.refused.is_empty() && back.unread.is_empty(), "{}", shown(&back));
}

#[tokio::test]
async fn the_default_directory_need_not_exist() {
    let above = tempfile::tempdir().expect("a directory");
    let path = above.path().join("pods");
    let mut scene = scene_with(vec![Source::DefaultPath(path.clone())], |_| {});
    let absent = scene.pods(&[]).await;
    let origin = path.display().to_string();
    assert!(absent.refused.is_empty() && absent.holds(&format!("{origin}/a.yaml")), "{}", shown(&absent));
    assert!(!absent.holds("/elsewhere/a.yaml"));
    fs::create_dir(&path).expect("made");
    write(&path.join("a.yaml"), &pod("a", "x:1"));
    scene.pods(&["a-n1 x:1"]).await;
    // From now on something would be lost.
    fs::remove_dir_all(&path).expect("removed");
    let gone = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert_eq!((pods(&gone), &gone.refused[0].origin), (vec!["a-n1 x:1".to_owned()], &origin));
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn an_unmounted_directory_is_not_an_empty_one() {
    let above = tempfile::tempdir().expect("a directory");
    let path = above.path().join("pods");
    fs::create_dir(&path).expect("made");
    rustix::mount::mount(c"none", &path, c"tmpfs", rustix::mount::MountFlags::empty(), None).expect("mounted");
    write(&path.join("a.yaml"), &pod("a", "x:1"));
    // The kernel sends no event for a mount.
    let often = |options: &mut SourceOptions| options.file_check = Duration::from_millis(300);
    let mut scene = scene_with(vec![Source::Path(path.clone())], often);
    scene.pods(&["a-n1 x:1"]).await;
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    let gone = scene.until("told", |desired| !desired.refused.is_empty()).await;
    assert_eq!(pods(&gone), ["a-n1 x:1"]);
    assert!(gone.refused[0].reason.starts_with("the file system of its files is not mounted"), "{}", shown(&gone));
    // Mounted again, with another pod and without the first.
    rustix::mount::mount(c"none", &path, c"tmpfs", rustix::mount::MountFlags::empty(), None).expect("mounted");
    write(&path.join("b.yaml"), &pod("b", "x:1"));
    let back = scene.pods(&["b-n1 x:1"]).await;
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    assert!(back.refused.is_empty(), "{}", shown(&back));
}

#[tokio::test]
async fn documents_are_read_next_to_pods_and_from_their_own_directory() {
    let (pods_at, documents_at) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let map = |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{k: '{value}'}}\n");
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: kubernetes.io/dockerconfigjson\n\
                  stringData: {.dockerconfigjson: swordfish}\n";
    write(&pods_at.path().join("a.yaml"), &format!("{}\n---\n{}", map("1"), pod("a", "x:1")));
    write(&documents_at.path().join("s.yaml"), secret);
    write(&documents_at.path().join("m.yaml"), &map("2"));
    write(&documents_at.path().join("p.yaml"), &pod("p", "x:1"));
    let sources = vec![Source::Path(pods_at.path().to_owned()), Source::Documents(documents_at.path().to_owned())];
    let mut scene = scene_with(sources, |_| {});
    let store = scene.documents.clone();
    let value = |store: &DocumentStore| {
        store.of("default").config_maps.get("m").and_then(|m| m.data["k"].text().map(str::to_owned)).unwrap_or_default()
    };
    scene.pods(&["a-n1 x:1"]).await;
    assert_eq!((value(&store), store.of("other")), ("1".to_owned(), crate::Documents::default()));
    let pull = store.pull_secret("default", "s").expect("there");
    assert_eq!((&*pull.kind, pull.data.len(), pull.uid.len()), ("kubernetes.io/dockerconfigjson", 1, 32));
    let told = scene.until("told", |desired| desired.refused.len() == 2).await;
    let mut reasons: Vec<_> = told.refused.iter().map(|refused| refused.reason.clone()).collect();
    reasons.sort();
    let first = pods_at.path().join("a.yaml").display().to_string();
    let taken = format!("ConfigMap default/m is in {first} already");
    assert_eq!(reasons, [taken, "a Pod is not run from where documents are kept".to_owned()]);

    let mut changes = store.changes();
    changes.mark_unchanged();
    write(&pods_at.path().join("a.yaml"), &format!("{}\n---\n{}", map("3"), pod("a", "x:1")));
    tokio::time::timeout(SOON, changes.changed()).await.expect("soon").expect("there");
    assert_eq!(value(&store), "3");
    // A secret that cannot be read any more stays, and is not shown.
    write(&documents_at.path().join("s.yaml"), "kind: Secret\nswordfish: [\n");
    let bad = documents_at.path().join("s.yaml").display().to_string();
    let told = scene.until("told", |desired| desired.refused.iter().any(|refused| refused.origin == bad)).await;
    let reason = &told.refused.iter().find(|refused| refused.origin == bad).expect("there").reason;
    assert!(reason.contains("neither YAML nor JSON") && !reason.contains("swordfish"), "{reason}");
    assert_eq!(store.pull_secret("default", "s").expect("still there"), pull);
    fs::remove_file(pods_at.path().join("a.yaml")).expect("removed");
    scene.pods(&[]).await;
    assert_eq!(value(&store), "2");
}

#[tokio::test]
async fn one_shot_sources_say_at_once_what_is_wrong() {
    let options = options(&Arc::new(RecordedEvents::default()));
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}},
        {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}},
    ]})
    .to_string();
    let once = Once::stdin(list.as_bytes(), &options).await.expect("read");
    assert_eq!(once.pods(), 2);
    let mut scene = scene_with(vec![Source::Once(once)], |_| {});
    let desired = scene.pods(&["a-n1 x:1", "b-n1 x:1"]).await;
    let origin = |pod: &Arc<Pod>| pod.metadata.annotations[CONFIG_ORIGIN_ANNOTATION].clone();
    assert!(desired.pods.values().all(|pod| origin(pod) == "standard input"));
    let error = Once::stdin(&b"kind: Pod\napiVersion: v1\nmetadata: {name: a}\n"[..], &options).await;
    let error = error.expect_err("refused").to_string();
    assert_eq!(error, "standard input: pod default/a-n1: spec: Required value");
    let long = vec![b'#'; MAX_MANIFEST + 1];
    let error = Once::stdin(&long[..], &options).await.expect_err("refused").to_string();
    assert_eq!(error, "standard input: it has more than 10 MiB, which no manifest has");
    let error = Once::file(Path::new("/nowhere/pod.yaml"), &options).await.expect_err("refused").to_string();
    assert_eq!(error, "/nowhere/pod.yaml: No such file or directory (os error 2)");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_asked_again_and_failures_change_nothing() {
    let answers: Arc<Mutex<Vec<Result<String, String>>>> = Arc::default();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let fetch: Fetch = {
        let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
        Arc::new(move |request| {
            asked.lock().push((request.url.clone(), request.headers.clone(), request.limit));
            let answer = answers.lock().last().cloned();
            Box::pin(async move {
                match answer {
                    Some(answer) => answer.map(String::into_bytes),
                    None => std::future::pending().await,
                }
            })
        })
    };
    let say = |answer: Result<&str, &str>| {
        answers.lock().push(answer.map(str::to_owned).map_err(str::to_owned));
    };
    let header = |value: &str| ("X-Token".to_owned(), value.to_owned());
    let source = UrlSource { url: "http://me:pw@h/p?t=1".to_owned(), headers: vec![header("1"), header("2")] };
    assert_eq!(format!("{source:?}"), "UrlSource { url: \"http://h/p\", .. }");
    let mut scene = scene_with(vec![Source::Url(source)], |options| options.fetch = fetch);
    // No answer: pods that run from that address are left alone.
    let held = scene.until("held", |desired| desired.reported && desired.held.contains("http://h/p")).await;
    assert!(!held.ready && held.unread.contains("http://h/p"), "{}", shown(&held));
    assert_eq!(held.refused[0].reason, "no answer within 10 seconds");
    say(Ok(&pod("a", "x:1")));
    let first = scene.pods(&["a-n1 x:1"]).await;
    let one = first.pods.values().next().expect("one");
    assert_eq!(one.metadata.annotations[CONFIG_ORIGIN_ANNOTATION], "http://h/p");
    assert_eq!(one.metadata.annotations[crate::identity::CONFIG_SOURCE_ANNOTATION], "http");
    assert!(first.held.is_empty());
    for (answer, want) in [(Err("503"), "503"), (Ok(""), "it is empty"), (Ok("{"), "")] {
        say(answer);
        let kept = scene.until(want, |d| d.refused.first().is_some_and(|refused| refused.reason.starts_with(want)));
        let kept = kept.await;
        assert!(Arc::ptr_eq(kept.pods.values().next().expect("one"), one));
    }
    say(Ok(&json!({"kind": "List", "apiVersion": "v1", "items": [
        serde_json::from_str::<Value>(&pod("a", "x:2")).expect("a pod"),
    ]})
    .to_string()));
    scene.pods(&["a-n1 x:2"]).await;
    let asked = asked.lock().clone();
    assert_eq!(asked[0], ("http://me:pw@h/p?t=1".to_owned(), vec![header("1"), header("2")], MAX_MANIFEST));
    assert!(asked.len() < 12, "{}", asked.len());
}

#[tokio::test]
async fn an_address_is_asked_over_http() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/pods", server.local_addr().expect("bound"));
    let serve = async move {
        let mut asked = Vec::new();
        for answer in [("503 Service Unavailable", String::new()), ("200 OK", pod("a", "x:1"))] {
            let (mut client, _) = server.accept().await.expect("a client");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(client.read_u8().await.expect("more"));
            }
            asked.push(String::from_utf8(request).expect("text"));
            let (status, body) = answer;
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            client.write_all(answer.as_bytes()).await.expect("sent");
        }
        asked
    };
    let served = TaskTracker::new().spawn(serve);
    let headers = vec![("X-Token".to_owned(), "1".to_owned()), ("X-Token".to_owned(), "2".to_owned())];
    let source = UrlSource { url: url.clone(), headers };
    let mut scene = scene_with(vec![Source::Url(source)], |options| options.http_check = Duration::from_millis(50));
    let refused = scene.until("refused", |desired| !desired.refused.is_empty()).await;
    assert_eq!(refused.refused[0].reason, format!("get {url}: status 503"));
    assert!(refused.held.contains(&url));
    scene.pods(&["a-n1 x:1"]).await;
    let asked = served.await.expect("served");
    let tokens = asked[1].lines().filter(|line| line.to_lowercase().starts_with("x-token: ")).count();
    assert_eq!(tokens, 2, "{}", asked[1]);
}

#[tokio::test]
async fn a_node_default_seccomp_profile_applies_to_pods_without_one() {
    let directory = tempfile::tempdir().expect("a directory");
    write(&directory.path().join("a.yaml"), &pod("a", "x"));
    let own = pod("b", "x")
        .replace("\"spec\":{", "\"spec\":{\"securityContext\":{\"seccompProfile\":{\"type\":\"Unconfined\"}},");
    write(&directory.path().join("b.yaml"), &own);
    let sources = || vec![Source::Path(directory.path().to_owned())];
    let profiles = |desired: &DesiredPods| {
        let profile = |pod: &Arc<Pod>| {
            pod.spec.security_context.seccomp_profile.as_ref().and_then(|p| ProfileKind::of(Some(&p.type_)))
        };
        let mut profiles: Vec<_> = desired.pods.values().map(|pod| (pod.metadata.name.clone(), profile(pod))).collect();
        profiles.sort();
        profiles
    };
    use ProfileKind::{RuntimeDefault, Unconfined};
    for (seccomp_default, want) in [(false, None), (true, Some(RuntimeDefault))] {
        let mut scene = scene_with(sources(), |options| options.seccomp_default = seccomp_default);
        let desired = scene.pods(&["a-n1 x", "b-n1 x"]).await;
        assert_eq!(profiles(&desired), [("a-n1".to_owned(), want), ("b-n1".to_owned(), Some(Unconfined))]);
    }
}
