//! Back-off as an operator sees it: `ensure --wait` against a registry that sends `Retry-After`, that refuses, that lacks the image
//! and that does not listen; meanwhile `imagelet backoff` reports why and until when, and `reset` makes it retry at once.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use registry::testing::{Fault, ImageBuilder, TestRegistry};
use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;

use crate::support::images;
use crate::support::manifests::{Manifests, Pod, PullSecret, forms_of};
use crate::support::process::{Daemon, eventually};
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch, runtime};

/// An `ensure --wait` that runs, and a command line to use meanwhile.
struct Waiting {
    ensure: Daemon,
    imagelet: Imagelet,
}

impl Waiting {
    /// Starts one for these manifests, with this first back-off.
    #[track_caller]
    fn start(scratch: &Scratch, imagelet: &Imagelet, manifests: &Manifests, initial: &str) -> Self {
        let admin = scratch.join("admin.sock").display().to_string();
        let file = manifests.write(&scratch.join("wait.yaml"));
        let imagelet = imagelet.clone().global("--admin-socket", &admin);
        let waiting = ["ensure", "--wait", "--timeout", "60s", "--image-pull-back-off-initial", initial, "-f", &file];
        Self { ensure: imagelet.daemon(&waiting), imagelet }
    }

    /// The entry of the one image that waits, as soon as there is one that `wanted` takes.
    #[track_caller]
    fn entry(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        eventually("the image waits", || {
            let done = self.imagelet.run(&["backoff", "-o", "json"]);
            // Until the first process listens there is no process to ask.
            let Ok(list) = serde_json::from_str::<Value>(&done.stdout) else { return false };
            let entry = list["entries"].get(0).filter(|entry| wanted(entry));
            found = entry.cloned().unwrap_or_default();
            !found.is_null()
        });
        found
    }

    #[track_caller]
    fn ends_with(&self, result: &str) {
        let wanted = format!(" result={result}");
        self.ensure.wait_for(&format!("{wanted:?}"), |line| line.ends_with(&wanted).then_some(()));
    }

    #[track_caller]
    fn reset(&self, whose: &[&str]) -> String {
        let args: Vec<&str> = ["backoff", "reset"].iter().chain(whose).copied().collect();
        self.imagelet.ok(&args).trim().to_owned()
    }
}

fn pod(image: &str) -> Pod<'_> {
    Pod { namespace: "shop", name: "web", image, policy: "IfNotPresent", secrets: &[] }
}

#[test]
fn retry_after_of_a_registry_is_obeyed_until_a_reset() {
    let runtime = runtime();
    let scratch = Scratch::new();
    let registry = runtime.block_on(TestRegistry::open());
    registry.push("busy/app", "1", &ImageBuilder::tiny("busy"));
    registry.push("busy/other", "1", &ImageBuilder::tiny("other"));
    registry.faults().always("/manifests/", Fault::rate_limited("1800"));
    let (image, other) = (format!("{}/busy/app:1", registry.host()), format!("{}/busy/other:1", registry.host()));
    let two = Pod { name: "db", image: &other, ..pod(&image) };
    let manifests = Manifests::new().pod(pod(&image)).pod(two);
    let imagelet = Imagelet::on(&scratch.join("store"));
    let waiting = Waiting::start(&scratch, &imagelet, &manifests, "50ms");

    let entry = waiting.entry(|_| true);
    assert_eq!(entry["cause"], "rate_limited", "{entry}");
    let remaining = entry["remainingMilliseconds"].as_u64().expect("a number");
    assert!((1_700_000..=1_800_000).contains(&remaining), "as long as the registry says: {entry}");
    let table = waiting.imagelet.ok(&["backoff"]);
    assert!(table.contains("shop/web") && table.contains("rate_limited"), "{table}");
    assert!(table.contains("in 30m0s") || table.contains("in 29m"), "{table}");
    assert!(registry.requests_for("/manifests/").len() <= 2, "each asked once: {:?}", registry.requests());

    registry.faults().clear();
    assert_ne!(waiting.reset(&["--registry", &registry.host()]), "0");
    waiting.ends_with("pulled");
    eventually("both are there", || registry.requests_for("/busy/other/blobs/").len() >= 2);
}

#[test]
fn explain_reports_the_back_off_of_the_agent() {
    let scratch = Scratch::new();
    let runtime = runtime();
    let registry = runtime.block_on(TestRegistry::open());
    let socket = scratch.join("images.sock");
    let _serving = Imagelet::on(&scratch.join("store")).serve(&socket);
    let image = format!("{}/lost/app:1", registry.host());
    let agent = Imagelet::remote(&format!("unix://{}", socket.display()))
        .global("--root", &scratch.join("agent").display().to_string());
    let manifests = Manifests::new().pod(pod(&image));
    let waiting = Waiting::start(&scratch, &agent, &manifests, "60s");
    waiting.entry(|_| true);
    let asked = registry.requests().len();
    let explained = waiting.imagelet.ok(&["explain", "-f", &scratch.join("wait.yaml").display().to_string()]);
    assert!(explained.contains("back-off") && explained.contains("but not for another"), "{explained}");
    // Without a pod, no back-off applies and the image would be pulled.
    let explained = waiting.imagelet.ok(&["explain", &image, "-o", "json"]);
    assert!(!explained.contains("back-off"), "{explained}");
    assert_eq!(registry.requests().len(), asked, "nothing is asked of the registry");
}

#[test]
fn single_command_waits_as_the_registry_asks() {
    let scratch = Scratch::new();
    let runtime = runtime();
    let registry = runtime.block_on(TestRegistry::open());
    registry.push("busy/app", "1", &ImageBuilder::tiny("busy"));
    registry.faults().once("/manifests/", Fault::rate_limited("3"));
    let file = Manifests::new().pod(pod(&format!("{}/busy/app:1", registry.host()))).write(&scratch.join("pod.yaml"));
    let from = Instant::now();
    Imagelet::on(&scratch.join("store")).ok(&["ensure", "-f", &file]);
    // The promise is a time: the registry asked for three seconds. Both run on the real clock, and a busy machine only waits longer.
    assert!(from.elapsed() >= Duration::from_secs(3), "it asked too early: {:?}", from.elapsed());
}

#[test]
fn a_registry_that_is_not_there_is_waited_for() {
    let scratch = Scratch::new();
    let runtime = runtime();
    let registry = runtime.block_on(TestRegistry::open());
    registry.push("late/app", "1", &ImageBuilder::tiny("late"));
    // A bound port that refuses connections: no other process can get it.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    rustix::net::bind(&socket, &any).expect("a free port");
    let address: std::net::SocketAddr =
        rustix::net::getsockname(&socket).expect("an address").try_into().expect("of the internet");

    let image = format!("{address}/late/app:1");
    let imagelet = Imagelet::on(&scratch.join("store"));
    let waiting = Waiting::start(&scratch, &imagelet, &Manifests::new().pod(pod(&image)), "50ms");
    let entry = waiting.entry(|_| true);
    assert_eq!(entry["cause"], "unavailable", "{entry}");
    assert!(entry["message"].as_str().is_some_and(|m| m.starts_with("RegistryUnavailable")), "{entry}");

    listen(socket, registry.host());
    waiting.ends_with("pulled");
    drop(waiting);
    assert_eq!(imagelet.images().len(), 1);
}

/// Begins to listen on a bound socket, and forwards connections to `target`.
fn listen(socket: OwnedFd, target: String) {
    rustix::net::listen(&socket, 16).expect("listen");
    let listener = TcpListener::from(socket);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = std::net::TcpStream::connect(&target).expect("the registry is there");
            let (mut to, mut back) = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
            std::thread::spawn(move || std::io::copy(&mut &server, &mut back));
            std::thread::spawn(move || std::io::copy(&mut &client, &mut to));
        }
    });
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_password_that_becomes_good_and_an_image_that_is_pushed_are_waited_for() {
    let s = Scene::new();
    s.push_file("guarded/app:1", "data", "guarded");
    const USER: &str = "keeper";
    const PASSWORD: &str = "portcullis-and-moat";
    let guarded = GuardedRegistry::start(&s.scratch.join("registry"), &[(USER, "another")]);
    let certs = guarded.hosts_file(&s.scratch.join("certs.d"));
    let image = guarded.name("guarded/app:1");
    let manifests = Manifests::new().pod(Pod { secrets: &["pull"], ..pod(&image) }).secret(PullSecret {
        namespace: "shop",
        name: "pull",
        uid: "uid-of-pull",
        registry: &guarded.host,
        user: USER,
        password: PASSWORD,
    });
    let imagelet = s.imagelet.clone().global("--registry-config-path", &certs);
    let waiting = Waiting::start(&s.scratch, &imagelet, &manifests, "50ms");
    // It doubles: the second failure has the longer window.
    let entry = waiting.entry(|entry| entry["failures"].as_u64() >= Some(2));
    assert_eq!(entry["cause"], "unauthenticated", "{entry}");
    assert!(entry["windowMilliseconds"].as_u64() >= Some(100), "{entry}");
    for secret in forms_of(USER, PASSWORD) {
        assert!(!entry.to_string().contains(&secret), "{entry}");
    }
    guarded.set_users(&[(USER, PASSWORD)]);
    waiting.ends_with("pulled");
    drop(waiting);

    let image = s.registry.name("later/app:1");
    let waiting = Waiting::start(&s.scratch, &imagelet, &Manifests::new().pod(pod(&image)), "4m");
    let entry = waiting.entry(|_| true);
    assert_eq!((&entry["cause"], &entry["failures"]), (&"not_found".into(), &1.into()), "{entry}");
    s.push_file("later/app:1", "data", "later");
    assert_eq!(waiting.reset(&["--pod", "shop/other"]), "0", "nobody's");
    assert_eq!(waiting.reset(&["--pod", "shop/web"]), "1");
    waiting.ends_with("pulled");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_corrected_hosts_file_ends_the_wait() {
    let scratch = Scratch::new();
    let runtime = runtime();
    let registry = runtime.block_on(TestRegistry::open());
    registry.push("late/app", "1", &ImageBuilder::tiny("late"));
    let gone = runtime.block_on(TestRegistry::open());
    gone.faults().always("/v2/", Fault::Drop);
    // The name of the registry means nothing by itself: only the file says where it is.
    let certs = scratch.directory("certs.d");
    let point_to = |host: &str| {
        images::write(&certs.join("registry.test/hosts.toml"), format!("server = \"http://{host}\"\n"));
    };
    point_to(&gone.host());
    let missing = format!("{}/late/missing:1", registry.host());
    let manifests =
        Manifests::new().pod(pod("registry.test/late/app:1")).pod(Pod { name: "db", image: &missing, ..pod(&missing) });
    let certs = certs.display().to_string();
    let imagelet = Imagelet::on(&scratch.join("store")).global("--registry-config-path", &certs);
    let waiting = Waiting::start(&scratch, &imagelet, &manifests, "4m");
    let all = || {
        let list: Value = serde_json::from_str(&waiting.imagelet.ok(&["backoff", "-o", "json"])).expect("JSON");
        list["entries"].as_array().cloned().unwrap_or_default()
    };
    let of = |pod: &str| all().into_iter().find(|entry| entry["pod"] == pod).unwrap_or_default();
    waiting.entry(|_| true);
    eventually("both wait", || all().len() == 2);
    assert_eq!((&of("web")["cause"], &of("web")["failures"]), (&"unavailable".into(), &1.into()), "{:?}", all());

    // The reset of the other pod wakes every waiter: with an unchanged hosts file this one is not tried again.
    let asked = gone.requests().len();
    let look_again = || {
        let before = registry.requests_for("/late/missing/").len();
        assert_eq!(waiting.reset(&["--pod", "shop/db"]), "1");
        eventually("the other was tried again", || registry.requests_for("/late/missing/").len() > before);
        eventually("the other waits again", || of("db")["failures"] == 1);
    };
    look_again();
    assert_eq!((gone.requests().len(), &of("web")["failures"]), (asked, &1.into()), "{:?}", all());

    point_to(&registry.host());
    look_again();
    // The back-off of four minutes is longer than the watchdog of this wait.
    waiting.ends_with("pulled");
    assert_eq!(registry.requests_for("/late/app/blobs/").len(), 2, "{:?}", registry.requests());
}
