//! No secret in any output: every way to pass a password to imagelet, every place where it could be printed,
//! at the most verbose log level.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use registry::testing::{Auth, Fault, ImageBuilder, TestRegistry, TokenAuth};
use serde_json::json;

use crate::support::cli::Done;
use crate::support::manifests::{Manifests, Pod, PullSecret, docker_config, forms_of};
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch, secrets};

/// User and password of every source, good ones and refused ones.
const SECRETS: [(&str, &str); 8] = [
    ("by-secret", "hemlock+nightshade"),
    ("by-rotated-secret", "foxglove&monkshood"),
    ("by-node-file", "larkspur/oleander"),
    ("by-helper", "yew%20laburnum"),
    ("by-provider", "mandrake=henbane"),
    ("by-variable", "belladonna:aconite"),
    ("wrong-secret", "daphne~spurge"),
    ("wrong-node-file", "ragwort^ivy"),
];

fn password(user: &str) -> &'static str {
    SECRETS.iter().find(|(name, _)| *name == user).expect("it is in the list").1
}

/// The texts that must not appear anywhere.
fn needles(host: &str) -> Vec<String> {
    let mut needles: Vec<String> = SECRETS.iter().flat_map(|(user, password)| forms_of(user, password)).collect();
    for (user, password) in SECRETS {
        needles.push(STANDARD.encode(password));
        needles.push(STANDARD.encode(docker_config(&[(host, user, password)]).to_string()));
    }
    needles
}

/// Everything that was seen, with the name of where.
struct Seen {
    needles: Vec<String>,
    texts: usize,
}

impl Seen {
    #[track_caller]
    fn check(&mut self, what: &str, bytes: &[u8]) {
        self.texts += 1;
        let text = String::from_utf8_lossy(bytes);
        for needle in &self.needles {
            assert!(!text.contains(needle.as_str()), "{what} tells {needle:?}:\n{text}");
        }
    }

    #[track_caller]
    fn run(&mut self, imagelet: &Imagelet, code: i32, args: &[&str]) -> Done {
        let done = imagelet.run(args);
        let what = format!("imagelet {args:?}");
        assert_eq!(done.code, Some(code), "{what}:\n{}{}", done.stdout, done.stderr);
        self.check(&format!("{what}, standard output"), done.stdout.as_bytes());
        self.check(&format!("{what}, standard error"), done.stderr.as_bytes());
        done
    }

    /// Every file below a directory, by name and content.
    #[track_caller]
    fn files(&mut self, directory: &Path) -> usize {
        let mut files = 0;
        for entry in fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display())) {
            let path = entry.expect("an entry").path();
            self.check("a file's name", path.as_os_str().as_encoded_bytes());
            if path.is_dir() && !path.is_symlink() {
                files += self.files(&path);
            } else if path.is_file() && !path.is_symlink() {
                files += 1;
                self.check(&path.display().to_string(), &fs::read(&path).expect("read a file"));
            }
        }
        files
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_output_and_no_file_tells_a_password() {
    let s = Scene::new();
    let images = ["secret", "rotated", "node-file", "helper", "provider", "variable", "refused"];
    for image in images {
        s.push_file(&format!("quiet/{image}:1"), "data", image);
    }
    let good: Vec<(&str, &str)> = SECRETS.iter().copied().filter(|(user, _)| user.starts_with("by-")).collect();
    let registry = GuardedRegistry::start(&s.scratch.join("registry"), &good);
    let host = registry.host.as_str();
    let certs = registry.hosts_file(&s.scratch.join("certs.d"));
    let mut seen = Seen { needles: needles(host), texts: 0 };

    // Programs that have passwords.
    let programs = s.scratch.directory("programs");
    let program = |name: &str, answer: &serde_json::Value| {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{answer}\nEND\n")).expect("write a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
    };
    program(
        "docker-credential-box",
        &json!({"ServerURL": host, "Username": "by-helper", "Secret": password("by-helper")}),
    );
    program(
        "provider",
        &json!({"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "cacheKeyType": "Registry",
            "auth": {host: {"username": "by-provider", "password": password("by-provider")}}}),
    );
    let providers = s.scratch.join("providers.json");
    let config = json!({"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers": [
        {"name": "provider", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": [host],
         "defaultCacheDuration": "1m"}]});
    fs::write(&providers, config.to_string()).expect("write a provider configuration");
    let docker = |name: &str, config: serde_json::Value| {
        let directory = s.scratch.directory(name);
        fs::write(directory.join("config.json"), config.to_string()).expect("write a docker configuration");
        directory.display().to_string()
    };
    let by_file = docker("docker-file", docker_config(&[(host, "by-node-file", password("by-node-file"))]));
    let by_helper = docker("docker-helper", json!({"credHelpers": {host: "box"}}));
    let wrong_file = docker("docker-wrong", docker_config(&[(host, "wrong-node-file", password("wrong-node-file"))]));

    let manifest = |image: &str, users: &[&str], policy: &str| {
        let names: Vec<String> = (0..users.len()).map(|n| format!("pull-{n}")).collect();
        let secrets: Vec<&str> = names.iter().map(String::as_str).collect();
        let image = registry.name(&format!("quiet/{image}:1"));
        let mut manifests =
            Manifests::new().pod(Pod { namespace: "quiet", name: "pod", image: &image, policy, secrets: &secrets });
        for (name, user) in names.iter().zip(users) {
            let (uid, password) = (format!("uid-{name}"), password(user));
            let (namespace, registry) = ("quiet", host);
            manifests = manifests.secret(PullSecret { namespace, name, uid: &uid, registry, user, password });
        }
        manifests.write(&s.scratch.join("manifests.yaml"))
    };

    // The search finds a secret in files that contain it in clear text.
    let open = fs::read_to_string(manifest("secret", &["by-secret"], "Always")).expect("a manifest");
    assert!(seen.needles.iter().any(|needle| open.contains(needle.as_str())), "{open}");
    let open = fs::read_to_string(s.scratch.join("docker-file/config.json")).expect("a docker configuration");
    assert!(seen.needles.iter().any(|needle| open.contains(needle.as_str())), "{open}");

    for format in ["text", "json"] {
        let imagelet = s
            .imagelet
            .clone()
            .global("--registry-config-path", &certs)
            .global("--log-level", "trace")
            .global("--log-format", format)
            .env("PATH", &format!("{}:/usr/bin:/bin", programs.display()));
        let with_file = imagelet.clone().global("--docker-config-path", &by_file);
        let with_helper = imagelet.clone().global("--docker-config-path", &by_helper);
        let with_wrong_file = imagelet.clone().global("--docker-config-path", &wrong_file);
        let with_provider = imagelet
            .clone()
            .global("--image-credential-provider-config", &providers.display().to_string())
            .global("--image-credential-provider-bin-dir", &programs.display().to_string());

        // Good ones, alone and behind refused ones.
        let pull = "IfNotPresent";
        seen.run(&imagelet, 0, &["ensure", "-f", &manifest("secret", &["by-secret"], pull)]);
        seen.run(&imagelet, 0, &["ensure", "-f", &manifest("rotated", &["wrong-secret", "by-rotated-secret"], pull)]);
        seen.run(&with_file, 0, &["ensure", "-f", &manifest("node-file", &["wrong-secret"], pull)]);
        seen.run(&with_helper, 0, &["ensure", "-f", &manifest("helper", &[], pull)]);
        seen.run(&with_provider, 0, &["ensure", "-f", &manifest("provider", &[], pull)]);
        let variable = format!("by-variable:{}", password("by-variable"));
        let image = registry.name("quiet/variable:1");
        seen.run(&imagelet.clone().env("IMAGELET_CREDS", &variable), 0, &["pull", &image]);
        seen.run(&imagelet, 0, &["pull", &image, "--creds", &variable]);

        // Refused ones; their errors are shown to users and in events.
        let refused = manifest("refused", &["wrong-secret"], "Always");
        let done = seen.run(&with_wrong_file, 77, &["ensure", "-f", &refused]);
        assert!(done.stderr.contains("ErrImagePull"), "{}", done.stderr);
        seen.run(&with_wrong_file, 77, &["ensure", "-o", "yaml", "-f", &refused]);
        seen.run(&with_wrong_file, 0, &["explain", "-o", "json", "-f", &refused]);
        seen.run(&with_provider, 0, &["explain", "-f", &manifest("provider", &["by-secret"], "Always")]);

        for output in ["table", "wide", "json", "yaml", "name"] {
            seen.run(&imagelet, 0, &["images", "-o", output]);
        }
        seen.run(&imagelet, 0, &["inspect", &registry.name("quiet/secret:1")]);
        seen.run(&with_provider.clone().env("IMAGELET_CREDS", &variable), 0, &["config"]);
        seen.run(&with_file, 0, &["config", "-o", "table"]);
        // Nonsense where a secret should be: the error must not quote it.
        let broken = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{a: [{variable}]}}\n");
        let path = s.scratch.join("broken.yaml");
        fs::write(&path, broken).expect("write a manifest");
        let done = imagelet.run(&["ensure", "-f", &path.display().to_string()]);
        seen.check("a broken secret", done.stderr.as_bytes());
        seen.run(&imagelet, 0, &["rmi", "--all"]);
    }
    let files = seen.files(&s.scratch.join("store"));
    assert!(files > 5, "records, database and lock were looked into: {files}");
    let records = s.scratch.join("store/image_manager/pulled");
    assert!(fs::read_dir(records).expect("pulled records").count() > 0);
    assert!(seen.texts > 50);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_tells_no_password() {
    let s = Scene::new();
    s.push_file("quiet/variable:1", "data", "variable");
    let user = "by-variable";
    let registry = GuardedRegistry::start(&s.scratch.join("registry"), &[(user, password(user))]);
    let certs = registry.hosts_file(&s.scratch.join("certs.d"));
    let mut seen = Seen { needles: needles(&registry.host), texts: 0 };
    let admin = s.scratch.join("admin.sock").display().to_string();
    let imagelet = s
        .imagelet
        .clone()
        .global("--registry-config-path", &certs)
        .global("--log-level", "trace")
        .global("--admin-socket", &admin);
    let mut agent = imagelet.serve(&s.scratch.join("cri.sock"));
    let image = registry.name("quiet/variable:1");
    let good = format!("{user}:{}", password(user));
    let wrong = format!("wrong-secret:{}", password("wrong-secret"));
    seen.run(&imagelet.clone().env("IMAGELET_CREDS", &good), 0, &["pull", &image]);
    seen.run(&imagelet.clone().env("IMAGELET_CREDS", &wrong), 77, &["pull", &image]);
    seen.run(&imagelet, 0, &["metrics"]);
    seen.run(&imagelet, 0, &["backoff", "-o", "json"]);
    seen.run(&imagelet, 0, &["inspect", &image]);
    agent.stop();
    let log = agent.lines().join("\n");
    assert!(log.contains("PullImage"), "the agent's log has its calls:\n{log}");
    seen.check("the agent's log", log.as_bytes());
    seen.files(&s.scratch.join("store"));
}

/// Users, passwords and tokens that are noted for the watch, which searches every output, every log and every store.
const TOKEN_USER: (&str, &str) = ("by-token", "spindle*privet");
const PROXY_USER: (&str, &str) = ("by-proxy", "bryony-and-arum");
const IDENTITY: &str = "identity-of-cuckoopint";
const REGISTRY_TOKEN: &str = "registry-of-dogsbane";
const SIGNATURE: &str = "signature-of-baneberry";

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_output_and_no_file_tells_a_token() {
    for (user, password) in [TOKEN_USER, PROXY_USER] {
        secrets::note(user, password);
    }
    // All tokens that the registry gives out begin so.
    for secret in [IDENTITY, REGISTRY_TOKEN, SIGNATURE, "test-token-"] {
        secrets::note_bare(secret);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let s = Scratch::new();
    let auth = TokenAuth {
        identity_token: Some(IDENTITY.into()),
        registry_token: Some(REGISTRY_TOKEN.into()),
        ..TokenAuth::user(TOKEN_USER.0, TOKEN_USER.1)
    };
    let options = registry::testing::Options { auth: Some(Auth::Token(auth)), ..Default::default() };
    let registry = runtime.block_on(TestRegistry::start(options));
    let store = runtime.block_on(TestRegistry::open());
    let image = ImageBuilder::tiny("quiet");
    for repository in ["quiet/creds", "quiet/identity", "quiet/verbatim", "quiet/agent", "quiet/refused"] {
        registry.push(repository, "1", &image);
        store.push_untagged(repository, &image);
        for (digest, _) in image.blobs() {
            let path = format!("/v2/{repository}/blobs/{digest}");
            let url = format!("{}{path}?X-Amz-Signature={SIGNATURE}&X-Amz-Expires=60", store.url());
            registry.faults().always(&path, Fault::Location { url });
        }
    }
    // A store whose error contains the secret of the request.
    let told = format!("<Error><Code>AccessDenied</Code>{SIGNATURE}</Error>");
    store.faults().always("quiet/refused", Fault::Status { code: 403, headers: vec![], body: told });
    let host = registry.host();
    let docker = |name: &str, entry: serde_json::Value| {
        let directory = s.directory(name);
        fs::write(directory.join("config.json"), json!({"auths": {host.as_str(): entry}}).to_string())
            .expect("write a docker configuration");
        directory.display().to_string()
    };
    let identity = docker("identity", json!({"username": "who", "password": "x", "identitytoken": IDENTITY}));
    let verbatim = docker("verbatim", json!({"registrytoken": REGISTRY_TOKEN}));
    let stale = docker("stale", json!({"registrytoken": format!("{REGISTRY_TOKEN}-of-yesterday")}));
    let creds = format!("{}:{}", TOKEN_USER.0, TOKEN_USER.1);
    let name = |image: &str| format!("{host}/quiet/{image}:1");

    // The agent below logs as text.
    {
        let imagelet = Imagelet::on(&s.join("alone")).global("--log-level", "trace").global("--log-format", "json");
        let run = |imagelet: &Imagelet, code: i32, args: &[&str]| {
            let done = imagelet.run(args);
            assert_eq!(done.code, Some(code), "{args:?}:\n{}{}", done.stdout, done.stderr);
            done
        };
        let with = |path: &str| imagelet.clone().global("--docker-config-path", path);
        run(&imagelet.clone().env("IMAGELET_CREDS", &creds), 0, &["pull", &name("creds")]);
        run(&with(&identity), 0, &["pull", &name("identity")]);
        run(&with(&verbatim), 0, &["pull", &name("verbatim")]);
        let refused = run(&with(&stale), 77, &["pull", &name("verbatim")]);
        assert!(refused.stderr.contains("the registry token was refused"), "{}", refused.stderr);
        // Nothing of this image is on the disk yet.
        let elsewhere = Imagelet::on(&s.join("refused")).global("--log-level", "trace");
        let refused = run(&elsewhere.env("IMAGELET_CREDS", &creds), 77, &["pull", &name("refused")]);
        assert!(refused.stderr.contains("AccessDenied"), "{}", refused.stderr);

        // A proxy with a password, in the environment and in a file; the registry behind it is the store.
        store.push("quiet/behind", "1", &image);
        let certs = s.directory("certs.d/behind.example");
        fs::write(certs.join("hosts.toml"), "server = \"http://behind.example\"\n").expect("write a hosts file");
        let certs = s.join("certs.d").display().to_string();
        let proxy = format!("http://{}:{}@{}", PROXY_USER.0, PROXY_USER.1, store.host());
        let behind = imagelet.clone().global("--registry-config-path", &certs);
        run(&behind.clone().env("HTTP_PROXY", &proxy), 0, &["pull", "behind.example/quiet/behind:1"]);
        run(&behind.clone().env("HTTP_PROXY", &proxy), 0, &["config"]);
        let told = format!("{PROXY_USER:?} {}", STANDARD.encode(format!("{}:{}", PROXY_USER.0, PROXY_USER.1)));
        store.faults().once("quiet/behind", Fault::Status { code: 403, headers: vec![], body: told });
        let refused = run(&behind.env("HTTP_PROXY", &proxy), 77, &["pull", "behind.example/quiet/behind:1"]);
        assert!(refused.stderr.contains("403"), "{}", refused.stderr);
        let own = s.directory("own.d/behind.example");
        let text = format!("server = \"http://behind.example\"\nproxy = \"{proxy}\"\n");
        fs::write(own.join("hosts.toml"), &text).expect("write a hosts file");
        let own = imagelet.clone().global("--registry-config-path", &s.join("own.d").display().to_string());
        run(&own, 0, &["pull", "behind.example/quiet/behind:1"]);
        let broken = format!("server = \"http://behind.example\"\n[host.\"{proxy}\"]\n");
        fs::write(s.join("own.d/behind.example/hosts.toml"), broken).expect("write a hosts file");
        assert_ne!(own.run(&["pull", "behind.example/quiet/behind:1"]).code, Some(0));
        run(&imagelet, 0, &["images", "-o", "json"]);
    }
    let asked = store.requests();
    assert!(asked.iter().any(|asked| asked.query.contains(SIGNATURE)) && !registry.issued_tokens().is_empty());
    assert!(asked.iter().any(|asked| asked.header("proxy-authorization").is_some()));

    let admin = s.join("admin.sock").display().to_string();
    let imagelet = Imagelet::on(&s.join("agent")).global("--log-level", "trace").global("--admin-socket", &admin);
    let mut agent = imagelet.serve(&s.join("cri.sock"));
    let asks = imagelet.clone().env("IMAGELET_CREDS", &creds);
    asks.ok(&["pull", &name("agent")]);
    asks.run(&["pull", &name("refused")]);
    assert_eq!(imagelet.run(&["pull", &name("creds")]).code, Some(77));
    for args in [&["metrics"][..], &["backoff", "-o", "json"], &["inspect", &name("agent")]] {
        imagelet.ok(args);
    }
    agent.stop();
    assert!(agent.lines().join("\n").contains("PullImage"));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_watch_over_all_tests_finds_what_it_looks_for() {
    use std::panic::catch_unwind;
    let s = Scene::new();
    let _registry = GuardedRegistry::start(&s.scratch.join("registry"), &[("watch", "wolfsbane-and-cowbane")]);
    // A secret in an image name is found, because the error message prints the name.
    let imagelet = s.imagelet.clone();
    let told = catch_unwind(move || imagelet.run(&["inspect", "no.example/wolfsbane-and-cowbane:1"]));
    let told = told.err().and_then(|why| why.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(told.contains("tells the secret"), "{told}");
    // A secret in the output of a program that runs in the background is found, whether the test reads that output or not.
    let mut beside = s.imagelet.spawn(&["inspect", "no.example/wolfsbane-and-cowbane:2"]);
    beside.wait().expect("it is our child");
    assert!(catch_unwind(secrets::search_written_files).is_err(), "a secret of a parallel test is found");
    // In a store, in any directory.
    for (root, noted) in [("store", false), ("elsewhere/of-its-own", true)] {
        let scratch = Scratch::new();
        let store = scratch.directory(&format!("{root}/image_manager"));
        if noted {
            Imagelet::on(&scratch.join(root));
        }
        fs::write(store.join("record"), STANDARD.encode("watch:wolfsbane-and-cowbane")).expect("write a record");
        let told = catch_unwind(std::panic::AssertUnwindSafe(|| drop(scratch)));
        assert!(told.is_err(), "a secret in the store at {root} is found");
    }
}
