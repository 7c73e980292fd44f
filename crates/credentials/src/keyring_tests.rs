//! The keyring as a whole: secrets before files before helpers, in the kubelet's order, each credential once. Rows named
//! `upstream` mirror the kubelet's tests, one by one.

use std::fs;
use std::path::Path;

use oci::Secret;

use super::*;
use crate::PullSecret;

const JSON: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
const CFG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

fn secret(name: &str, kind: &str, key: &str, payload: &str) -> PullSecret {
    PullSecret {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        kind: kind.into(),
        data: [(key.to_owned(), Secret::new(payload))].into(),
        ..PullSecret::default()
    }
}

fn cfg(name: &str, payload: &str) -> PullSecret {
    secret(name, CFG.0, CFG.1, payload)
}

fn pod(secrets: impl IntoIterator<Item = PullSecret>) -> Requester {
    Requester {
        namespace: "shop".into(),
        name: "web".into(),
        secrets: secrets.into_iter().collect(),
        ..Requester::default()
    }
}

fn keyring(dir: Option<&Path>) -> Keyring {
    let search = dir.into_iter().map(Path::to_owned).collect();
    Keyring::new(KeyringOptions {
        node_files: NodeFiles { search, ..NodeFiles::default() },
        ..KeyringOptions::default()
    })
}

fn parsed(image: &str) -> Reference {
    Reference::parse(image).expect(image)
}

/// User, password and source of each.
fn shown(candidates: &[Candidate]) -> Vec<(String, String, String)> {
    let one = |c: &Candidate| (c.auth.username.clone(), c.auth.password.expose().to_owned(), c.source.to_string());
    candidates.iter().map(one).collect()
}

async fn users(keyring: &Keyring, image: &str, pod: &Requester) -> Vec<String> {
    let found = keyring.candidates(&parsed(image), pod).await.expect(image);
    found.candidates.into_iter().map(|c| c.auth.username).collect()
}

#[tokio::test]
async fn upstream_make_docker_keyring() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = r#"{"auths": {"test.registry.io": {"username": "default-user", "password": "default-password"}}}"#;
    fs::write(dir.path().join("config.json"), node).expect("written");
    let auth = r#"{"test.registry.io": {"auth": "dXNlcjpwYXNzd29yZA=="}}"#;
    let fields = r#"{"test.registry.io": {"username": "user", "password": "password"}}"#;
    let other = r#"{"foobar.io": {"auth": "dXNlcjpwYXNzd29yZA=="}}"#;
    let json = |auths: &str| format!(r#"{{"auths": {auths}}}"#);
    let user = ("user", "password", "secret shop/x");
    let of_secret = |kind: &str, key: &str, payload: &str| vec![secret("x", kind, key, payload)];
    let cases = [
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockerconfigjson, auth",
            of_secret(JSON.0, JSON.1, &json(auth)),
            false,
            vec![user],
        ),
        ("upstream: secrets/Test_MakeDockerKeyring/.dockercfg, auth", of_secret(CFG.0, CFG.1, auth), false, vec![user]),
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockerconfigjson, username and password",
            of_secret(JSON.0, JSON.1, &json(fields)),
            false,
            vec![user],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockercfg, username and password",
            of_secret(CFG.0, CFG.1, fields),
            false,
            vec![user],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockerconfigjson, wrong type",
            of_secret(CFG.0, JSON.1, &json(auth)),
            false,
            vec![],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockercfg, wrong type",
            of_secret(JSON.0, CFG.1, auth),
            false,
            vec![],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockerconfigjson not matching, default keyring",
            of_secret(JSON.0, JSON.1, &json(other)),
            true,
            vec![("default-user", "default-password", "file")],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/.dockercfg not matching, default keyring",
            of_secret(CFG.0, CFG.1, other),
            true,
            vec![("default-user", "default-password", "file")],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/no pull secrets, default keyring",
            vec![],
            true,
            vec![("default-user", "default-password", "file")],
        ),
        (
            "upstream: secrets/Test_MakeDockerKeyring/pull secrets and default keyring",
            of_secret(JSON.0, JSON.1, &json(auth)),
            true,
            vec![user, ("default-user", "default-password", "file")],
        ),
    ];
    for (name, secrets, with_default, want) in cases {
        let keyring = keyring(with_default.then(|| dir.path()));
        let found = keyring.candidates(&parsed("test.registry.io/a"), &pod(secrets)).await.expect(name);
        let got = shown(&found.candidates);
        assert_eq!(got.len(), want.len(), "{name}");
        for ((user, password, source), want) in got.iter().zip(&want) {
            assert_eq!((user.as_str(), password.as_str()), (want.0, want.1), "{name}");
            assert!(source.starts_with(want.2), "{name}: {source}");
        }
    }
}

// upstream: credentialprovider/TestDockerKeyringLookup
#[tokio::test]
async fn more_exact_entries_come_first_with_the_kubelets_hashes() {
    let ada = "353258b53f5e9a57b059eab3f05312fc35bbeb874f08ce101e7bf0bf46977423";
    let grace = "f949b3837a1eb733a951b6aeda0b3327c09ec50c917de9ca35818e8fbf567e29";
    let payload = r#"{"bar.example.com": {"username": "ada", "password": "smash", "email": "ada@example.com"},
        "bar.example.com/pong": {"username": "grace", "password": "squash", "email": "grace@example.com"}}"#;
    let pod = pod([cfg("x", payload)]);
    let safe = keyring(None);
    let compat = Keyring::new(KeyringOptions { path_match: PathMatch::Compat, ..KeyringOptions::default() });
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("bar.example.com/pong", &[grace, ada], &[grace, ada]),
        ("bar.example.com/ping", &[ada], &[ada]),
        // The kubelet's test says that this should not be so.
        ("bar.example.com/pongz", &[ada], &[grace, ada]),
        ("bar.example.com/pong/pang", &[grace, ada], &[grace, ada]),
        ("foo.example.com/pong", &[], &[]),
        ("qux.example.com/ping", &[], &[]),
        ("bar.example.com.evil.io/pong", &[], &[]),
    ];
    for (image, want, want_compat) in cases {
        for (keyring, want) in [(&safe, want), (&compat, want_compat)] {
            let found = keyring.candidates(&parsed(image), &pod).await.expect(image);
            assert_eq!(found.candidates.iter().map(|c| c.hash.as_str()).collect::<Vec<_>>(), want, "{image}");
        }
    }
}

// upstream: credentialprovider/TestProvidersDockerKeyring
#[tokio::test]
async fn node_files_are_checked_on_every_lookup() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = keyring(Some(dir.path()));
    for user in ["", "one", "two", "three"] {
        if !user.is_empty() {
            let text = format!(r#"{{"auths": {{"index.docker.io": {{"username": "{user}"}}}}}}"#);
            fs::write(dir.path().join("config.json"), text).expect("written");
        }
        let want: &[&str] = if user.is_empty() { &[] } else { &[user] };
        assert_eq!(users(&keyring, "foo", &pod([])).await, want);
    }
}

#[tokio::test]
async fn the_secrets_of_a_pod_are_one_index() {
    let keyring = keyring(None);
    let entry = |location: &str, user: &str| format!(r#""{location}": {{"username": "{user}", "password": "p"}}"#);
    let secrets = [
        cfg("a", &format!("{{{}, {}}}", entry("reg.io", "a-host"), entry("*.io/team", "a-glob"))),
        cfg("b", &format!("{{{}, {}}}", entry("reg.io/team/app", "b-app"), entry("reg.io", "b-host"))),
        cfg("c", &format!("{{{}, {}}}", entry("index.docker.io", "c-hub"), entry("reg.io/other", "c-other"))),
        cfg("d", &format!("{{{}}}", entry("https://index.docker.io/v1/", "d-hub"))),
    ];
    let pod = pod(secrets);
    assert_eq!(users(&keyring, "reg.io/team/app:1", &pod).await, ["b-app", "a-host", "b-host", "a-glob"]);
    assert_eq!(
        users(&keyring, "reg.io/x@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", &pod).await,
        ["a-host", "b-host"]
    );
    for hub in ["nginx", "docker.io/nginx", "other/nginx:1"] {
        assert_eq!(users(&keyring, hub, &pod).await, ["c-hub", "d-hub"], "{hub}");
    }
    assert!(users(&keyring, "other.example.com/a", &pod).await.is_empty());
    let alone = keyring.secrets_only(&parsed("reg.io/x"), &pod).expect("is right");
    assert_eq!(shown(&alone.candidates)[1], ("b-host".into(), "p".into(), "secret shop/b".into()));
    let Source::Secret(coordinates) = &alone.candidates[1].source else { panic!("a secret") };
    assert_eq!(coordinates.uid, "uid-b");
}

#[tokio::test]
async fn equal_credentials_are_tried_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let node =
        r#"{"auths": {"reg.io": {"username": "u", "password": "p"}, "*.io": {"username": "n", "password": "p"}}}"#;
    fs::write(dir.path().join("config.json"), node).expect("written");
    let node_files = NodeFiles { search: vec![dir.path().to_owned()], ..NodeFiles::default() };
    let keyring = Keyring::new(KeyringOptions { node_files, ..KeyringOptions::default() });
    let same = r#"{"reg.io": {"username": "u", "password": "p", "email": "e"}, "reg.io/a": {"auth": "dTpw"}}"#;
    let pod = pod([cfg("x", same), cfg("y", same)]);
    let found = keyring.candidates(&parsed("reg.io/a"), &pod).await.expect("is right");
    let got = shown(&found.candidates);
    assert_eq!((got[0].0.as_str(), got[0].2.as_str()), ("u", "secret shop/x"));
    assert_eq!(got[1].0, "n");
    assert_eq!(got.len(), 2, "no attempt without a credential follows");
    assert!(keyring.candidates(&parsed("elsewhere.dev/a"), &pod).await.expect("is right").candidates.is_empty());
}

#[tokio::test]
async fn malformed_secret_fails_and_unusable_secret_is_noted() {
    let keyring = keyring(None);
    let wrong = secret("token", "kubernetes.io/service-account-token", "token", "swordfish");
    let found = keyring.candidates(&parsed("reg.io/a"), &pod([wrong.clone()])).await.expect("noted only");
    assert!(found.candidates.is_empty() && found.notes[0].text.contains("shop/token"), "{:?}", found.notes);
    let broken = secret("bad", JSON.0, JSON.1, r#"{"auths": {"reg.io": {"auth": "swordfish"#);
    let error = keyring.candidates(&parsed("reg.io/a"), &pod([wrong, broken])).await.expect_err("broken").to_string();
    assert_eq!(
        error,
        "cannot read pull secret shop/bad: error occurred while trying to unmarshal json: an unexpected end in line 1, \
         column 40"
    );
}

#[tokio::test]
async fn helpers_are_chosen_as_docker_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = r#"{"auths": {"own.io": {"username": "u", "password": "p"}, "stored.io": {}}, "credsStore": "pass",
        "credHelpers": {"ecr.io:5000": "ecr-login", "none.io": "", "https://index.docker.io/v1/": "hub"}}"#;
    fs::write(dir.path().join("config.json"), node).expect("written");
    let keyring = keyring(Some(dir.path()));
    let cases: [(&str, &[&str], usize); 6] = [
        ("stored.io/a", &["credential helper docker-credential-pass for stored.io"], 0),
        ("own.io/a", &["credential helper docker-credential-pass for own.io"], 1),
        ("ecr.io:5000/a", &["credential helper docker-credential-ecr-login for ecr.io:5000"], 0),
        ("ecr.io/a", &["credential helper docker-credential-pass for ecr.io"], 0),
        ("nginx", &["credential helper docker-credential-hub for https://index.docker.io/v1/"], 0),
        ("none.io/a", &[], 0),
    ];
    for (image, want, candidates) in cases {
        let preview = keyring.preview(&parsed(image), &pod([])).await.expect(image);
        assert_eq!(preview.would_ask, want, "{image}");
        assert_eq!(preview.candidates.len(), candidates, "{image}");
    }
}

#[tokio::test]
async fn fingerprint_changes_with_possible_answers() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = keyring(Some(dir.path()));
    let mut pod = pod([cfg("x", r#"{"reg.io": {"username": "u", "password": "a"}}"#)]);
    let mut seen = vec![keyring.fingerprint("reg.io/a", &pod)];
    assert_eq!(seen[0], keyring.fingerprint("reg.io/a", &pod.clone()), "nothing has changed");
    let mut changed = |pod: &Requester, what: &str| {
        let now = keyring.fingerprint("reg.io/a", pod);
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    pod.secrets[0].data.insert(CFG.1.into(), Secret::new(r#"{"reg.io": {"username": "u", "password": "b"}}"#));
    changed(&pod, "a rotated secret");
    pod.secrets.push(cfg("y", "{}"));
    changed(&pod, "another secret");
    pod.service_account = Some(crate::ServiceAccount { name: "default".into(), ..crate::ServiceAccount::default() });
    changed(&pod, "a service account");
    fs::write(dir.path().join("config.json"), "{}").expect("written");
    changed(&pod, "a node file");
    fs::write(dir.path().join("config.json"), "{ }").expect("written");
    changed(&pod, "a changed node file");
    fs::remove_file(dir.path().join("config.json")).expect("there");
    pod.secrets.pop();
    pod.service_account = None;
    pod.secrets[0] = cfg("x", r#"{"reg.io": {"username": "u", "password": "a"}}"#);
    assert_eq!(keyring.fingerprint("reg.io/a", &pod), seen[0], "all as before");
}

#[tokio::test]
async fn debug_output_has_no_secrets() {
    let keyring = keyring(None);
    let pod = pod([cfg("x", r#"{"reg.io": {"username": "u", "password": "swordfish"}}"#)]);
    let found = keyring.candidates(&parsed("reg.io/a"), &pod).await.expect("is right");
    let preview = keyring.preview(&parsed("reg.io/a"), &pod).await.expect("is right");
    let text = format!("{keyring:?} {found:?} {preview:?} {pod:?}");
    assert!(!text.contains("swordfish") && !text.contains(&found.candidates[0].hash), "{text}");
}

/// A node whose helper is a script, which writes a line into the file `runs` each time.
struct Helped {
    dir: tempfile::TempDir,
    keyring: Keyring,
    now: Arc<Mutex<Instant>>,
}

impl Helped {
    fn new(config: &str, script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("config.json"), config).expect("written");
        crate::test_support::script(dir.path(), "docker-credential-fake", &format!("echo run >> $DIR/runs\n{script}"));
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let keyring = Keyring::new(KeyringOptions {
            node_files: NodeFiles { search: vec![dir.path().to_owned()], ..NodeFiles::default() },
            helpers: HelperOptions {
                path: Some(dir.path().into()),
                environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("DIR".into(), dir.path().into())],
                ..HelperOptions::default()
            },
            clock: Arc::new(move || *clock.lock()),
            ..KeyringOptions::default()
        });
        Self { dir, keyring, now }
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.dir.path().join("runs")).map_or(0, |text| text.lines().count())
    }
}

#[tokio::test]
async fn helper_precedes_file_entries_and_runs_once_a_minute() {
    let config = r#"{"auths": {"reg.io": {"username": "file", "password": "p"}}, "credsStore": "fake"}"#;
    let node = Helped::new(config, r#"read server; echo "{\"Username\": \"for-$server\", \"Secret\": \"swordfish\"}""#);
    let pod = pod([cfg("x", r#"{"reg.io": {"username": "pod", "password": "p"}}"#)]);
    for _ in 0..3 {
        assert_eq!(users(&node.keyring, "reg.io/a", &pod).await, ["pod", "for-reg.io", "file"]);
        // The file is read once more when its clock has advanced, and is the same.
        *node.now.lock() += Duration::from_secs(1);
    }
    assert_eq!(node.runs(), 1);
    let found = node.keyring.candidates(&parsed("reg.io/a"), &pod).await.expect("is right").candidates;
    assert_eq!(found[1].source, Source::Node(NodeSource::Helper("fake".into())));
    assert_eq!(found[1].hash, credential_hash(&RegistryAuth::basic("for-reg.io", "swordfish")));
    assert_eq!(users(&node.keyring, "nginx", &pod).await, ["for-https://index.docker.io/v1/"]);
    assert_eq!(node.runs(), 2);
    *node.now.lock() += HELPER_ANSWER;
    assert_eq!(users(&node.keyring, "reg.io/a", &pod).await.len(), 3);
    assert_eq!(node.runs(), 3);
    fs::write(node.dir.path().join("config.json"), r#"{"credHelpers": {"reg.io": "fake"}}"#).expect("written");
    assert_eq!(users(&node.keyring, "reg.io/a", &pod).await, ["pod", "for-reg.io"]);
    assert_eq!(node.runs(), 4, "a changed file may mean a changed store");
    assert!(users(&node.keyring, "nginx", &pod).await.is_empty());
    assert_eq!(node.keyring.preview(&parsed("reg.io/a"), &pod).await.expect("is right").candidates.len(), 1);
    assert_eq!(node.runs(), 4, "a preview runs nothing");
}

#[tokio::test]
async fn failing_helper_is_noted_once_for_all_waiters() {
    let node = Helped::new(
        r#"{"auths": {"reg.io": {"username": "file", "password": "p"}}, "credsStore": "fake"}"#,
        "until [ -e $DIR/go ]; do sleep 0.01; done; echo swordfish; exit 1",
    );
    let pod = pod([]);
    let image = parsed("reg.io/a");
    let asks = futures::future::join_all((0..8).map(|_| node.keyring.candidates(&image, &pod)));
    let (answers, ()) = futures::join!(asks, async {
        crate::test_support::until(|| node.runs() == 1).await;
        fs::write(node.dir.path().join("go"), "").expect("written");
    });
    for answer in answers {
        let found = answer.expect("a failing helper fails no look-up");
        assert_eq!(found.candidates[0].auth.username, "file");
        let [note] = found.notes.as_slice() else { panic!("{:?}", found.notes) };
        assert!(note.text.starts_with("credential helper docker-credential-fake failed: "), "{note}");
        assert!(!note.text.contains("swordfish"), "{note}");
    }
    assert_eq!(node.runs(), 1);
    node.keyring.candidates(&parsed("reg.io/a"), &pod).await.expect("is right");
    assert_eq!(node.runs(), 2, "who comes later has it run again");
}

#[tokio::test]
async fn providers_come_last_in_their_own_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).expect("a directory");
    let answer = |auth: &str| {
        format!(
            "cat > /dev/null; echo '{{\"kind\": \"CredentialProviderResponse\", \"apiVersion\": \
             \"credentialprovider.kubelet.k8s.io/v1\", \"cacheKeyType\": \"Image\", \"cacheDuration\": \"1h\", \"auth\": {auth}}}'"
        )
    };
    let entry = |user: &str| format!(r#"{{"username": "{user}", "password": "p"}}"#);
    let one = format!(r#"{{"*.io": {}, "other.io": {}}}"#, entry("one-glob"), entry("one-other"));
    let two = format!(r#"{{"reg.io": {}, "reg.io:x": {}}}"#, entry("two-host"), entry("two-bad"));
    crate::test_support::script(&bin, "one", &answer(&one));
    crate::test_support::script(&bin, "two", &answer(&two));
    crate::test_support::script(&bin, "bad", "exit 3");
    let provider = |name: &str| {
        format!(
            r#"{{"name": "{name}", "matchImages": ["*.io"], "defaultCacheDuration": "1h",
                "apiVersion": "credentialprovider.kubelet.k8s.io/v1"}}"#
        )
    };
    let config = format!(
        r#"{{"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers": [{}]}}"#,
        ["one", "two", "bad"].map(provider).join(",")
    );
    fs::write(dir.path().join("providers.json"), config).expect("written");
    fs::write(dir.path().join("config.json"), r#"{"auths": {"reg.io": {"username": "file", "password": "p"}}}"#)
        .expect("written");
    let options = crate::exec::ExecOptions {
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        clock: Arc::new(Instant::now),
        yaml: Arc::new(|text| serde_json::from_str(text).map_err(|error| error.to_string())),
        tokens: None,
        service_account_tokens: true,
        path_match: PathMatch::Segments,
        timeout: Duration::from_secs(60),
    };
    let providers = Providers::load(&dir.path().join("providers.json"), &bin, options).expect("is right");
    let keyring = Keyring::new(KeyringOptions {
        node_files: NodeFiles { search: vec![dir.path().to_owned()], ..NodeFiles::default() },
        providers: Some(providers),
        ..KeyringOptions::default()
    });
    let pod = pod([]);
    let preview = keyring.preview(&parsed("reg.io/a"), &pod).await.expect("is right");
    assert_eq!(preview.would_ask, ["one", "two", "bad"].map(|name| format!("credential provider {name}")));
    let found = keyring.candidates(&parsed("reg.io/a"), &pod).await.expect("is right");
    let got: Vec<(&str, String)> =
        found.candidates.iter().map(|c| (c.auth.username.as_str(), c.source.to_string())).collect();
    assert_eq!(got[0].0, "file");
    // One index of all providers, as in the kubelet: the greater pattern first.
    assert_eq!(
        got[1..],
        [("two-host", "credential provider two".into()), ("one-glob", "credential provider one".into())]
    );
    let notes: Vec<&str> = found.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("bad"), "{notes:?}");
    assert!(notes[1].contains("provider two is ignored") && notes[1].contains("the port is not a number"), "{notes:?}");
}
