//! Credentials from programs: exec credential providers and docker credential helpers, as real scripts: good ones, ones that hang
//! and ones that print garbage. A bad one is reported without its secrets, and does not by itself make a pull fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::manifests::{Manifests, Pod, docker_config, forms_of};
use crate::support::process::{eventually, signal};
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch};

const USER: &str = "robot";
const PASSWORD: &str = "clank-and-whirr";
/// The text that a bad program prints in addition to everything else.
const SPILLED: &str = "spilled-by-the-program";

/// A guarded registry with one image, a directory of programs, and a pod without secrets.
struct Fixture {
    imagelet: Imagelet,
    registry: GuardedRegistry,
    image: String,
    programs: PathBuf,
    s: Scene,
}

impl Fixture {
    fn new() -> Self {
        let s = Scene::new();
        s.push_file("workshop/app:1", "data", "made by hand");
        let registry = GuardedRegistry::start(&s.scratch.join("registry"), &[(USER, PASSWORD)]);
        let certs = registry.hosts_file(&s.scratch.join("certs.d"));
        let programs = s.scratch.directory("programs");
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let imagelet = s.imagelet.clone().global("--registry-config-path", &certs).env("PATH", &path);
        let image = registry.name("workshop/app:1");
        Self { imagelet, registry, image, programs, s }
    }

    /// Writes a program: a shell script that knows the directory for its notes.
    fn program(&self, name: &str, body: &str) {
        let path = self.programs.join(name);
        let notes = self.s.scratch.path().display();
        fs::write(&path, format!("#!/bin/sh\nnotes={notes}\n{body}\n")).expect("write a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
    }

    fn note(&self, name: &str) -> String {
        fs::read_to_string(self.s.scratch.join(name)).unwrap_or_default()
    }

    fn pod(&self) -> String {
        let pod = Pod { namespace: "shop", name: "web", image: &self.image, policy: "IfNotPresent", secrets: &[] };
        Manifests::new().pod(pod).write(&self.s.scratch.join("pod.yaml"))
    }

    /// Returns imagelet with these credential providers, in this order.
    fn with_providers(&self, providers: &[Value]) -> Imagelet {
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1",
            "kind": "CredentialProviderConfig",
            "providers": providers,
        });
        let path = self.s.scratch.join("providers.json");
        fs::write(&path, config.to_string()).expect("write a provider configuration");
        self.imagelet
            .clone()
            .global("--image-credential-provider-config", &path.display().to_string())
            .global("--image-credential-provider-bin-dir", &self.programs.display().to_string())
    }

    fn provider(&self, name: &str) -> Value {
        json!({
            "name": name,
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": [self.registry.host],
            "defaultCacheDuration": "1m",
            "args": ["get-credentials"],
            "env": [{"name": "FLAVOUR", "value": "oak"}],
        })
    }

    fn response(&self) -> Value {
        json!({
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "kind": "CredentialProviderResponse",
            "cacheKeyType": "Registry",
            "auth": {self.registry.host.clone(): {"username": USER, "password": PASSWORD}},
        })
    }

    /// A good provider, which keeps what it is given.
    fn good_provider(&self, name: &str) -> Value {
        let response = self.response();
        self.program(
            name,
            &format!("cat > $notes/request; echo \"$1 $FLAVOUR\" > $notes/call\ncat <<'END'\n{response}\nEND"),
        );
        self.provider(name)
    }

    /// imagelet which reads this docker configuration of the node.
    fn with_docker_config(&self, config: &Value) -> Imagelet {
        let directory = self.s.scratch.directory("docker");
        fs::write(directory.join("config.json"), config.to_string()).expect("write a docker configuration");
        self.imagelet.clone().global("--docker-config-path", &directory.display().to_string())
    }
}

/// No secret of these tests stands in a text.
#[track_caller]
fn tells_no_secret(text: &str) {
    for secret in forms_of(USER, PASSWORD).iter().map(String::as_str).chain([SPILLED]) {
        assert!(!text.contains(secret), "it tells {secret}:\n{text}");
    }
}

/// Returns true if the process whose id a program wrote has ended.
#[track_caller]
fn has_ended(pid: &str) -> bool {
    let pid = pid.trim();
    assert!(!pid.is_empty(), "the program has noted its process id");
    // A zombie is dead as well; its new parent will reap it.
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_credential_provider_brings_the_image() {
    let w = Fixture::new();
    let imagelet = w.with_providers(&[w.good_provider("carpenter")]);
    imagelet.ok(&["ensure", "-f", &w.pod()]);
    assert_eq!(imagelet.ids().len(), 1);
    let request: Value = serde_json::from_str(&w.note("request")).expect("a request is JSON");
    let want = json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": w.image.trim_end_matches(":1"),
    });
    for (key, value) in want.as_object().expect("an object") {
        assert_eq!(&request[key], value, "{request}");
    }
    assert_eq!(w.note("call"), "get-credentials oak\n");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn failing_providers_are_reported_and_block_no_pull() {
    let w = Fixture::new();
    w.program("mute", &format!("echo {SPILLED}; echo nothing good"));
    w.program("sick", &format!("echo no key in the drawer >&2; echo {SPILLED}; exit 3"));
    let other_version = json!({"apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1", "kind": "CredentialProviderResponse",
        "cacheKeyType": "Image", "auth": {"*.invalid": {"username": "x", "password": SPILLED}}});
    w.program("old", &format!("cat <<'END'\n{other_version}\nEND"));
    let bad = [w.provider("mute"), w.provider("sick"), w.provider("old")];

    // Alone, they leave the pull without a credential, and its error says why.
    let imagelet = w.with_providers(&bad);
    let done = imagelet.run(&["--log-level", "trace", "ensure", "-f", &w.pod()]);
    assert_eq!(done.code, Some(77), "{}", done.stderr);
    assert!(done.stderr.contains("ErrImagePull"), "{}", done.stderr);
    for name in ["mute", "sick", "old"] {
        assert!(done.stderr.contains(name), "{name} is not told of:\n{}", done.stderr);
    }
    tells_no_secret(&done.stderr);
    tells_no_secret(&done.stdout);

    // With a good one, the bad ones are not needed.
    let [mute, sick, old] = bad;
    let imagelet = w.with_providers(&[mute, sick, old, w.good_provider("carpenter")]);
    imagelet.ok(&["ensure", "-f", &w.pod()]);
    assert_eq!(imagelet.ids().len(), 1);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_provider_that_hangs_is_ended_with_the_command() {
    let w = Fixture::new();
    w.program("sleeper", "echo $$ > $notes/sleeper\nexec sleep 1000");
    // Its own time is up after a minute.
    let imagelet = w.with_providers(&[w.provider("sleeper")]);
    let mut ensure = imagelet.spawn(&["ensure", "-f", &w.pod()]);
    eventually("the provider is started", || !w.note("sleeper").is_empty());
    signal(ensure.id(), rustix::process::Signal::TERM);
    let status = crate::support::cli::end_of(&mut ensure);
    assert_eq!(status.code(), Some(143), "{status}");
    eventually("the provider ends with the command", || has_ended(&w.note("sleeper")));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_provider_that_hangs_is_ended_when_its_time_is_up() {
    let w = Fixture::new();
    w.program("sleeper", "echo $$ > $notes/sleeper\nexec sleep 1000");
    let imagelet = w.with_providers(&[w.provider("sleeper")]).hurried(60);
    let done = imagelet.run(&["ensure", "-f", &w.pod()]);
    assert!(done.stderr.contains("timed out after 60s"), "its own time ends it:\n{}", done.stderr);
    assert_eq!(done.code, Some(77), "{}", done.stderr);
    assert!(done.stderr.contains("ErrImagePull") && done.stderr.contains("sleeper"), "{}", done.stderr);
    assert!(has_ended(&w.note("sleeper")), "the provider is ended when its time is up");
    // With a good one, it is not needed.
    let both = [w.provider("sleeper"), w.good_provider("carpenter")];
    let imagelet = w.with_providers(&both).hurried(60);
    imagelet.ok(&["ensure", "-f", &w.pod()]);
    assert_eq!(imagelet.ids().len(), 1);
}

#[test]
fn a_broken_provider_configuration_is_refused_at_once() {
    let scratch = Scratch::new();
    let programs = scratch.directory("programs");
    let config = scratch.join("providers.yaml");
    let imagelet = Imagelet::on(&scratch.join("store"))
        .global("--image-credential-provider-config", &config.display().to_string())
        .global("--image-credential-provider-bin-dir", &programs.display().to_string());
    let pod = Pod { namespace: "a", name: "b", image: "r.invalid/x:1", policy: "IfNotPresent", secrets: &[] };
    let pod = Manifests::new().pod(pod).write(&scratch.join("pod.yaml"));
    for (text, names) in [
        ("kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders: []\n", "provider"),
        (
            "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n- name: missing\n  \
             apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: [r.invalid]\n  defaultCacheDuration: 1m\n",
            "missing",
        ),
        ("kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders: none\n", "providers"),
    ] {
        fs::write(&config, text).expect("write a provider configuration");
        let said = imagelet.fails(64, &["ensure", "-f", &pod]);
        assert!(said.contains(names), "{text}: {said}");
    }
}

/// A credential helper as docker has them: `docker-credential-NAME get`, the server on standard input.
fn helper(w: &Fixture, name: &str, body: &str) {
    w.program(&format!("docker-credential-{name}"), body);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_docker_credential_helper_brings_the_image() {
    let w = Fixture::new();
    let answer = json!({"ServerURL": w.registry.host, "Username": USER, "Secret": PASSWORD});
    helper(&w, "safe", &format!("echo \"$1 $(cat)\" > $notes/helper\ncat <<'END'\n{answer}\nEND"));
    let imagelet = w.with_docker_config(&json!({"credHelpers": {w.registry.host.clone(): "safe"}}));
    let preview = imagelet.ok(&["explain", "-f", &w.pod(), "-o", "yaml"]);
    assert_eq!(w.note("helper"), "", "explain starts no program");
    assert!(preview.contains("safe"), "it says who would be asked:\n{preview}");
    imagelet.ok(&["ensure", "-f", &w.pod()]);
    assert_eq!(imagelet.ids().len(), 1);
    assert_eq!(w.note("helper"), format!("get {}\n", w.registry.host));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_store_for_everything_and_a_helper_that_has_nothing() {
    let w = Fixture::new();
    helper(&w, "none", "echo 'credentials not found in native keychain'; exit 1");
    let answer = json!({"ServerURL": w.registry.host, "Username": USER, "Secret": PASSWORD});
    helper(&w, "all", &format!("cat > /dev/null\ncat <<'END'\n{answer}\nEND"));
    let imagelet = w.with_docker_config(&json!({"credsStore": "all", "credHelpers": {"other.example": "none"}}));
    imagelet.ok(&["ensure", "-f", &w.pod()]);
    imagelet.ok(&["rmi", "--all"]);
    // Nothing found is no failure: what else there is counts.
    let mut config = docker_config(&[(&w.registry.host, USER, PASSWORD)]);
    config["credHelpers"] = json!({"other.example": "none"});
    let imagelet = w.with_docker_config(&config);
    imagelet.ok(&["ensure", "-f", &w.pod()]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn hanging_or_broken_helpers_are_reported_and_block_no_pull() {
    let w = Fixture::new();
    helper(&w, "garbage", &format!("echo '{{{SPILLED}'"));
    helper(&w, "stuck", "echo $$ > $notes/stuck\nexec sleep 1000");
    for (name, hangs) in [("garbage", false), ("stuck", true)] {
        let imagelet = w.with_docker_config(&json!({"credHelpers": {w.registry.host.clone(): name}})).hurried(60);
        let done = imagelet.run(&["--log-level", "trace", "ensure", "-f", &w.pod()]);
        assert_eq!(done.stderr.contains("timed out after 30s"), hangs, "its own time ends it:\n{}", done.stderr);
        assert_eq!(done.code, Some(77), "{}", done.stderr);
        assert!(done.stderr.contains("ErrImagePull") && done.stderr.contains(name), "{}", done.stderr);
        tells_no_secret(&done.stderr);
        tells_no_secret(&done.stdout);
        if hangs {
            assert!(has_ended(&w.note("stuck")), "the helper is ended when its time is up");
        }
    }
    // A good provider in addition to them.
    let providers = w.with_providers(&[w.good_provider("carpenter")]);
    let directory = w.s.scratch.join("docker").display().to_string();
    let imagelet = providers.global("--docker-config-path", &directory).hurried(60);
    imagelet.ok(&["ensure", "-f", &w.pod()]);
}
