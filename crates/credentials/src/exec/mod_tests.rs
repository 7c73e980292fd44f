//! Tests of [`super::Providers`]: loading, several providers at once, what is known without asking.

use std::fs;

use futures::future::join_all;
use serde_json::json;

use super::test_support::{ProviderFixture, answer, pod};
use super::*;

#[test]
fn invalid_configurations_do_not_load() {
    let mut bench = ProviderFixture::new();
    bench.answering("p", &["r.example"], &answer("Image", None, "r.example"));
    bench.load();
    let config = bench.path().join("config");
    let error =
        |bin_dir: &Path| Providers::load(&config, bin_dir, bench.options.clone()).expect_err("refused").to_string();

    let nowhere = bench.path().join("nowhere");
    assert_eq!(error(&nowhere), format!("plugin binary directory {} did not exist", nowhere.display()));
    let bin = tempfile::tempdir().expect("a directory");
    let program = bin.path().join("p");
    assert_eq!(error(bin.path()), format!("plugin binary executable {} did not exist", program.display()));
    fs::write(&program, "").expect("written");
    let inspecting = format!("error inspecting binary executable {}: ", program.display());
    assert_eq!(error(bin.path()), format!("{inspecting}permission denied"));
    fs::remove_file(&program).expect("removed");
    fs::create_dir(&program).expect("made");
    assert_eq!(error(bin.path()), format!("{inspecting}is a directory"));
}

#[test]
fn invalid_configurations_are_refused() {
    let mut bench = ProviderFixture::new();
    bench.add("p", &["r.example"], "")["defaultCacheDuration"] = json!("-1s");
    assert_eq!(
        bench.try_load().expect_err("refused").to_string(),
        "failed to validate credential provider config: providers.defaultCacheDuration: Invalid value: -1s: \
         defaultCacheDuration must be greater than or equal to 0"
    );
    let mut bench = ProviderFixture::new();
    bench.add("p", &["r.example"], "")["tokenAttributes"] =
        json!({"serviceAccountTokenAudience": "a", "cacheType": "Token", "requireServiceAccount": true});
    bench.options.service_account_tokens = false;
    assert!(bench.try_load().expect_err("refused").to_string().contains("feature gate is disabled"));
}

// upstream: plugin/TestRegisterCredentialProviderPlugin/successful registration
// upstream: plugin/TestRegisterCredentialProviderPlugin/duplicate registration should panic
#[test]
fn registration() {
    let mut bench = ProviderFixture::new();
    bench.answering("test-provider", &["r.example"], &answer("Image", None, "r.example"));
    assert_eq!(format!("{:?}", bench.load()), "Providers([\"test-provider\"])");
    bench.answering("test-provider", &["s.example"], &answer("Image", None, "s.example"));
    assert_eq!(
        bench.try_load().expect_err("refused").to_string(),
        "duplicate provider name \"test-provider\" found in configuration file(s)"
    );
}

/// The kubelet builds a keyring for each pod; in imagelet the pod is an argument of a look-up.
// upstream: plugin/TestNewExternalCredentialProviderDockerKeyring/no providers registered
// upstream: plugin/TestNewExternalCredentialProviderDockerKeyring/multiple providers registered
// upstream: plugin/TestNewExternalCredentialProviderDockerKeyring/feature gate disabled - pod information should be empty
// upstream: plugin/TestNewExternalCredentialProviderDockerKeyring/feature gate enabled - pod information should be set
#[tokio::test]
async fn provider_request_describes_the_pod() {
    // There is no such thing as a configuration without providers.
    assert!(
        ProviderFixture::new()
            .try_load()
            .expect_err("refused")
            .to_string()
            .ends_with("at least 1 item in plugins is required")
    );
    let mut bench = ProviderFixture::new();
    for name in ["enabled-provider-1", "enabled-provider-2"] {
        bench.answering(name, &["*.example"], &answer("Image", None, "*.example"));
    }
    let providers = bench.load();
    assert_eq!(providers.would_ask("r.example/a", &pod(&[])), ["enabled-provider-1", "enabled-provider-2"]);
    providers.provide("r.example/a", &pod(&[("a", "b")])).await;
    let request = bench.request("enabled-provider-1");
    assert_eq!(request.as_object().map(serde_json::Map::len), Some(3), "{request}");
    bench.add("with-token", &["*.example"], "")["tokenAttributes"] =
        json!({"serviceAccountTokenAudience": "aud", "cacheType": "Token", "requireServiceAccount": true});
    let tokens = super::test_support::Tokens::of(&[Ok("token")]);
    bench.options.tokens = Some(Arc::clone(&tokens) as Arc<dyn TokenSource>);
    bench.load().provide("r.example/a", &pod(&[])).await;
    assert_eq!(bench.request("with-token")["serviceAccountToken"], "token");
    assert_eq!(tokens.asked(), ["ns/sa-name sa-uid for aud and pod pod-uid"]);
}

// upstream: plugin/TestExternalCredentialProviderKeyringLookupNoProviders
#[tokio::test]
async fn lookups() {
    let image = "test.registry.io/image";
    let token = json!({"serviceAccountTokenAudience": "a", "cacheType": "Token", "requireServiceAccount": true});
    let account = |provider: &str| format!("credential provider {provider} for service account ns/sa-name");
    let mut empty = answer("Image", None, "x");
    empty["auth"] = json!({});
    let cases = [
        ("no provider is for the image", vec![("p", "other.example", false, None)], vec![]),
        (
            "upstream: plugin/TestExternalCredentialProviderKeyringLookupWithProviders/single provider with config",
            vec![("p", "test.registry.io", false, None)],
            vec!["credential provider p".to_owned()],
        ),
        (
            "upstream: plugin/TestExternalCredentialProviderKeyringLookupWithProviders/single provider with service account coordinates",
            vec![("p", "test.registry.io", true, None)],
            vec![account("p")],
        ),
        (
            "upstream: plugin/TestExternalCredentialProviderKeyringLookupWithProviders/multiple providers",
            vec![("q", "test.registry.io", true, None), ("p", "*.registry.io", true, None)],
            vec![account("q"), account("p")],
        ),
        (
            "upstream: plugin/TestExternalCredentialProviderKeyringLookupWithProviders/provider with empty config",
            vec![("p", "test.registry.io", false, Some(&empty))],
            vec![],
        ),
    ];
    for (name, entries, want) in cases {
        let mut bench = ProviderFixture::new();
        for (provider, pattern, with_token, instead) in &entries {
            let good = answer("Image", None, pattern);
            let entry = bench.answering(provider, &[pattern], instead.unwrap_or(&good));
            if *with_token {
                entry["tokenAttributes"] = token.clone();
            }
        }
        bench.options.tokens = Some(super::test_support::Tokens::of(&[Ok("t1"), Ok("t2")]));
        let provided = bench.load().provide(image, &pod(&[])).await;
        let sources: Vec<String> = provided.entries.iter().map(|entry| entry.source.to_string()).collect();
        assert_eq!(sources, want, "{name}");
        assert!(provided.notes.is_empty(), "{name}: {:?}", provided.notes);
    }
}

// upstream: plugin/TestExternalCredentialProviderKeyringLookupConcurrency
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_lookups_at_once() {
    let mut bench = ProviderFixture::new();
    bench.answering("p", &["test.registry.io"], &answer("Registry", None, "test.registry.io"));
    let providers = bench.load();
    let tracker = tokio_util::task::TaskTracker::new();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let providers = providers.clone();
            tracker.spawn(async move {
                for _ in 0..5 {
                    let provided = providers.provide("test.registry.io/image", &Requester::default()).await;
                    assert_eq!(provided.entries.len(), 1);
                }
            })
        })
        .collect();
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
    // Callers during the run share it, and later callers get the cached answer. There is no gap between the two.
    assert_eq!(bench.runs("p").len(), 1);
}

/// A provider that fails does not affect the others.
#[tokio::test]
async fn providers_run_in_configured_order_and_failures_are_noted() {
    let mut bench = ProviderFixture::new();
    bench.answering(
        "slow",
        &["r.example"],
        &json!({
            "kind": "CredentialProviderResponse",
            "apiVersion": super::test_support::V1,
            "cacheKeyType": "Image",
            "auth": {"z.example": {}, "a.example": {}, "r.example": {"username": "u", "password": "p"}},
        }),
    );
    bench.add("broken", &["r.example"], "exit 1");
    bench.answering("other", &["s.example"], &answer("Image", None, "s.example"));
    bench.answering("last", &["r.example"], &answer("Image", None, "r.example/a"));
    let providers = bench.load();
    let provided = providers.provide("r.example/a", &Requester::default()).await;
    let locations: Vec<&str> = provided.entries.iter().map(|e| e.location.as_str()).collect();
    assert_eq!(locations, ["a.example", "r.example", "z.example", "r.example/a"]);
    assert_eq!(
        provided.notes,
        [Note::new("error execing credential provider plugin broken for image r.example/a: exit status 1")]
    );
    assert!(bench.runs("other").is_empty());

    // What the caches hold is known without asking; the rest would be asked.
    let (known, would_ask) = providers.peek("r.example/a", &Requester::default());
    assert_eq!((known.entries, would_ask), (provided.entries, vec!["broken".to_owned()]));
    assert_eq!(bench.runs("slow").len(), 1);
}

#[test]
fn environments() {
    let text = |pairs: &[(OsString, OsString)]| {
        pairs.iter().map(|(n, v)| format!("{}={}", n.display(), v.display())).collect::<Vec<_>>().join(" ")
    };
    let os = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| (n.into(), v.into())).collect::<Vec<_>>();
    let plain =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    let system = [("HOME", "/root"), ("PATH", "/usr/bin")];
    let key = [("SUPER_SECRET_STRONG_ACCESS_KEY", "123456789")];
    let with_key = [system[0], system[1], ("SUPER_SECRET_STRONG_ACCESS_KEY", "1111")];
    type Pairs<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Pairs<'_>, Pairs<'_>, &str); 5] = [
        (
            "upstream: plugin/Test_ExecPluginEnvVars/positive append system env vars",
            &system,
            &key,
            "HOME=/root PATH=/usr/bin SUPER_SECRET_STRONG_ACCESS_KEY=123456789",
        ),
        (
            "upstream: plugin/Test_ExecPluginEnvVars/positive no env vars provided in plugin",
            &system,
            &[],
            "HOME=/root PATH=/usr/bin",
        ),
        (
            "upstream: plugin/Test_ExecPluginEnvVars/positive no system env vars but env vars are provided in plugin",
            &[],
            &key,
            "SUPER_SECRET_STRONG_ACCESS_KEY=123456789",
        ),
        ("upstream: plugin/Test_ExecPluginEnvVars/positive no system or plugin provided env vars", &[], &[], ""),
        (
            "upstream: plugin/Test_ExecPluginEnvVars/positive plugin provided vars takes priority",
            &with_key,
            &key,
            "HOME=/root PATH=/usr/bin SUPER_SECRET_STRONG_ACCESS_KEY=1111 SUPER_SECRET_STRONG_ACCESS_KEY=123456789",
        ),
    ];
    for (name, system, provider, want) in cases {
        assert_eq!(text(&environment(&os(system), &plain(provider))), want, "{name}");
    }
    let secrets =
        hidden(&os(&[("A_TOKEN", "12345"), ("my_password", "hunter2"), ("PATH", "/usr/bin"), ("KEY", "abc")]));
    assert_eq!(secrets, [Secret::new("12345"), Secret::new("hunter2")]);
}

/// Arguments and environment reach the program, the later value holds.
#[tokio::test]
async fn arguments_and_environment() {
    let mut bench = ProviderFixture::new();
    let entry = bench.add("p", &["r.example"], "echo \"$VALUE $*\" >\"$DIR/seen\"");
    entry["args"] = json!(["get-credentials", "--v=5", "two words"]);
    entry["env"] = json!([{"name": "VALUE", "value": "configured"}]);
    bench.options.environment.push(("VALUE".into(), "inherited".into()));
    bench.load().provide("r.example/a", &Requester::default()).await;
    let seen = fs::read_to_string(bench.path().join("seen")).expect("written");
    assert_eq!(seen, "configured get-credentials --v=5 two words\n");
}

#[test]
fn debug_shows_no_environment() {
    let mut bench = ProviderFixture::new();
    bench.options.environment.push(("A".into(), "swordfish".into()));
    let entry = bench.add("p", &["r.example"], "");
    entry["env"] = json!([{"name": "B", "value": "swordfish"}]);
    entry["args"] = json!(["--password=swordfish"]);
    let shown = format!("{:?} {:?}", bench.load(), bench.options);
    assert!(!shown.contains("swordfish"), "{shown}");
}

/// The keyring narrows what providers answer to the image, most specific first, and passes their notes on.
#[tokio::test]
async fn providers_in_a_keyring() {
    let mut bench = ProviderFixture::new();
    let mut wide = answer("Image", None, "r.example");
    wide["auth"] = json!({
        "r.example": {"username": "wide", "password": "1"},
        "r.example/team": {"username": "narrow", "password": "2"},
        "r.example/tea": {"username": "beside", "password": "3"},
        "s.example": {"username": "elsewhere", "password": "4"},
        "not a host": {"username": "nowhere", "password": "swordfish"},
    });
    bench.answering("p", &["*.example"], &wide);
    bench.add("broken", &["*.example"], "exit 1");
    let providers = Some(bench.load());
    let keyring = crate::Keyring::new(crate::KeyringOptions { providers, ..Default::default() });
    let users = |candidates: &[crate::Candidate]| {
        candidates.iter().map(|c| format!("{} from {}", c.auth.username, c.source)).collect::<Vec<_>>()
    };
    let image = oci::Reference::parse("r.example/team/app:1.0").expect("a name");
    let requester = Requester::default();

    let before = keyring.preview(&image, &requester).await.expect("a name");
    assert!(before.candidates.is_empty() && bench.runs("p").is_empty());
    assert_eq!(before.would_ask, ["credential provider p", "credential provider broken"]);

    let found = keyring.candidates(&image, &requester).await.expect("a name");
    let want = ["narrow from credential provider p", "wide from credential provider p"];
    assert_eq!(users(&found.candidates), want);
    assert_eq!(bench.request("p")["image"], "r.example/team/app");
    let notes: Vec<String> = found.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes.iter().any(|note| note.ends_with("r.example/team/app: exit status 1")), "{notes:?}");
    assert!(notes.iter().all(|note| !note.contains("swordfish") && !note.contains("not a host")), "{notes:?}");

    let after = keyring.preview(&image, &requester).await.expect("a name");
    assert_eq!(
        (users(&after.candidates), after.would_ask),
        (want.map(str::to_owned).to_vec(), vec!["credential provider broken".to_owned()])
    );
    assert_eq!(bench.runs("p").len(), 1);
}
