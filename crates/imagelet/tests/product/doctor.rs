//! `imagelet doctor` on nodes with and without a runtime, and with registries that refuse, are absent or have another time. Its check of
//! the pod network and of a sandbox image that is absent is in the tests of pods.

use serde_json::Value;

use crate::support::containerd::{Containerd, Setup};
use crate::support::manifests::docker_config;
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;
use crate::support::tree;
use crate::support::{Imagelet, process};

/// Every check, in the order of the output.
const CHECKS: [&str; 15] = [
    "runtime",
    "pull-engine",
    "sandbox-image",
    "cni",
    "store-disk",
    "runtime-disk",
    "erofs",
    "overlayfs",
    "user-namespaces",
    "cgroups",
    "registry",
    "clock",
    "kubelet",
    "units",
    "mounts-unit",
];

/// How full the machine's disk is must not matter.
fn without_thresholds(imagelet: &Imagelet) -> Imagelet {
    imagelet.clone().global("--image-gc-high-threshold", "100").global(
        "--eviction-hard",
        "imagefs.available<0%,imagefs.inodesFree<0%,nodefs.available<0%,nodefs.inodesFree<0%",
    )
}

/// Runs all checks. Returns the exit code, and a function that finds one of the results.
#[track_caller]
fn doctor(imagelet: &Imagelet, args: &[&str]) -> (i32, impl Fn(&str) -> Value + use<>) {
    let done = imagelet.run(&[&["doctor", "-o", "json"], args].concat());
    let report: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", done.stdout, done.stderr));
    let checks = report["checks"].as_array().expect("a list of checks").clone();
    let names: Vec<&str> = checks.iter().filter_map(|check| check["check"].as_str()).collect();
    assert_eq!(names, CHECKS);
    for check in &checks {
        let needs_remedy = check["result"] == "warning" || check["result"] == "error";
        assert_eq!(check["remedy"].as_str().is_some_and(|text| !text.is_empty()), needs_remedy, "{check}");
        assert!(check["message"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
    }
    let errors = checks.iter().filter(|check| check["result"] == "error").count();
    assert_eq!(done.code, Some(i32::from(errors > 0)), "{report:#}");
    let find = move |name: &str| checks.iter().find(|check| check["check"] == name).expect("a check").clone();
    (done.code.expect("a code"), find)
}

#[track_caller]
fn is(check: &Value, result: &str, words: &[&str]) {
    let text =
        format!("{} {}", check["message"].as_str().unwrap_or_default(), check["remedy"].as_str().unwrap_or_default());
    assert_eq!(check["result"], result, "{check:#}");
    for word in words {
        assert!(text.contains(word), "{word}: {check:#}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn absent_runtime_is_an_error_and_what_depends_on_it_is_skipped() {
    let s = Scene::new();
    let endpoint = format!("unix://{}", s.scratch.join("none.sock").display());
    let imagelet = without_thresholds(&s.imagelet).global("--runtime-endpoint", &endpoint);
    let (code, check) = doctor(&imagelet, &[]);
    assert_eq!(code, 1);
    is(&check("runtime"), "error", &["none.sock", "No such file", "systemctl enable --now containerd"]);
    for name in ["pull-engine", "sandbox-image", "cni", "runtime-disk"] {
        is(&check(name), "skipped", &["no container runtime answers"]);
    }
    is(&check("store-disk"), "ok", &["free"]);
    for name in ["registry", "clock"] {
        is(&check(name), "skipped", &["imagelet doctor IMAGE"]);
    }
    // One line for each check, for a person.
    let done = imagelet.run(&["doctor"]);
    assert_eq!(done.stdout.lines().count(), 1 + CHECKS.len(), "{}", done.stdout);
    assert!(
        done.stderr.contains("1 check failed: runtime") || done.stderr.contains("checks failed: runtime"),
        "{}",
        done.stderr
    );
    assert!(imagelet.run(&["doctor", "-q"]).stdout.lines().any(|line| line == "runtime"));
    // It changes nothing.
    assert!(!s.scratch.join("store").exists(), "{:?}", tree::read(&s.scratch.join("store")).keys());
    // A socket on which nothing answers CRI.
    let silent = s.scratch.join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).expect("listen");
    let imagelet =
        without_thresholds(&s.imagelet).global("--runtime-endpoint", &format!("unix://{}", silent.display()));
    is(&doctor(&imagelet, &[]).1("runtime"), "error", &["silent.sock"]);
    assert!(s.imagelet.fails(2, &["doctor", "Not/A//Name"]).contains("Not/A//Name"));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn runtime_engine_sandbox_image_and_registry_are_checked() {
    let s = Scene::new();
    let (image, _) = s.push_file("team/app:1", "a", "a");
    let setup = Setup { sandbox_image: Some(image.clone()), ..Setup::default() };
    let containerd = Containerd::with(s.registry.host(), setup);
    let imagelet = without_thresholds(&s.imagelet).global("--runtime-endpoint", &containerd.endpoint());
    let before = s.registry.requests().len();
    let (_, check) = doctor(&imagelet, &[&image]);
    is(&check("runtime"), "ok", &["containerd", &containerd.endpoint()]);
    is(&check("pull-engine"), "ok", &["embedded: ", "containerd's snapshotter"]);
    is(&check("sandbox-image"), "warning", &[&image, "is not present", "pull"]);
    is(&check("cni"), "error", &[&containerd.scratch().join("cni").display().to_string(), "hostNetwork: true"]);
    is(&check("runtime-disk"), "ok", &["free"]);
    is(&check("overlayfs"), "ok", &[]);
    let version = if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        ("ok", "v2")
    } else {
        ("warning", "v1")
    };
    is(&check("cgroups"), version.0, &[version.1]);
    is(&check("registry"), "ok", &[&image, "no credential"]);
    is(&check("clock"), "ok", &[]);
    // One HEAD, and nothing is pulled.
    let requests = s.registry.requests().split_off(before);
    assert_eq!(requests.iter().filter(|request| request.contains("/manifests/")).count(), 1, "{requests:?}");
    assert!(
        requests.iter().all(|request| !request.starts_with("GET ") || !request.contains("/manifests/")),
        "{requests:?}"
    );
    Imagelet::remote(&containerd.endpoint()).ok(&["pull", &image]);
    is(&doctor(&imagelet, &[]).1("sandbox-image"), "ok", &["is present"]);
    let of_runtime = imagelet.clone().global("--pull-engine", "runtime");
    is(&doctor(&of_runtime, &[]).1("pull-engine"), "ok", &["as pullEngine says"]);
    // The setting overrides what the runtime reports.
    let other = imagelet.global("--pod-infra-container-image", "registry.example/other:1");
    is(&doctor(&other, &[]).1("sandbox-image"), "warning", &["registry.example/other:1"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn refused_credentials_absent_images_and_a_wrong_clock_are_errors() {
    let s = Scene::new();
    let (plain, _) = s.push_file("team/app:1", "a", "a");
    let guarded = GuardedRegistry::start(&s.scratch.join("registry"), &[("ada", "hornbeam-and-hazel")]);
    let certs = guarded.hosts_file(&s.scratch.join("certs.d"));
    let home = s.scratch.directory("home");
    let path = home.display().to_string();
    let imagelet = without_thresholds(&s.imagelet).global("--registry-config-path", &certs).env("HOME", &path);
    let (app, absent) = (guarded.name("team/app:1"), guarded.name("team/absent:1"));
    is(
        &doctor(&imagelet, &[&app]).1("registry"),
        "error",
        &["no credential", &format!("imagelet login {}", guarded.host)],
    );
    let directory = home.join(".docker");
    std::fs::create_dir(&directory).expect("create");
    let login = |password: &str| {
        let config = docker_config(&[(&guarded.host, "ada", password)]).to_string();
        std::fs::write(directory.join("config.json"), config).expect("write");
    };
    login("another-password");
    is(&doctor(&imagelet, &[&app]).1("registry"), "error", &["config.json", "imagelet login"]);
    login("hornbeam-and-hazel");
    let (_, check) = doctor(&imagelet, &[&app]);
    is(&check("registry"), "ok", &[&guarded.host, "config.json"]);
    is(&check("clock"), "ok", &[]);
    is(&doctor(&imagelet, &[&absent]).1("registry"), "error", &["team/absent", "check the name"]);
    let fast = imagelet.clone().clock_set_by(400);
    is(&doctor(&fast, &[&app]).1("clock"), "error", &["ahead of the registry's clock", "systemd-timesyncd"]);
    // A registry without TLS: its certificate would not be valid yet.
    let slow = imagelet.clone().clock_set_by(-60);
    is(&doctor(&slow, &[&plain]).1("clock"), "warning", &["behind the registry's clock"]);
    drop(guarded);
    process::eventually("the registry has ended", || {
        let check = doctor(&imagelet, &[&app]).1("registry");
        check["result"] == "error" && check["remedy"].as_str().is_some_and(|remedy| remedy.contains(&certs))
    });
}
