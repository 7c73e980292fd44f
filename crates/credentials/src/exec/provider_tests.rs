//! Tests of one provider: when it is asked, how its answer is used, how long it is cached, and which callers share a run.
//! The providers are real scripts.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{join, join_all};
use serde_json::{Value, json};

use super::super::test_support::{ProviderFixture, Tokens, WAIT, answer, pod};
use super::super::{Provided, Providers};
use super::*;
use crate::Origin;
use crate::test_support::{alive, until};

/// An entry in words.
fn words(provided: &Provided) -> Vec<String> {
    let entry = |e: &ProvidedEntry| {
        format!("{} {}:{} from {}", e.location, e.auth.username, e.auth.password.expose(), e.source)
    };
    provided.entries.iter().map(entry).chain(provided.notes.iter().map(|n| format!("note: {n}"))).collect()
}

fn attributes(cache_type: &str, required: bool, keys: &[&str]) -> Value {
    json!({
        "serviceAccountTokenAudience": "audience",
        "cacheType": cache_type,
        "requireServiceAccount": required,
        "requiredServiceAccountAnnotationKeys": keys,
        "optionalServiceAccountAnnotationKeys": ["domain.io/optional"],
    })
}

#[tokio::test]
async fn images_that_match() {
    let cases = [
        (
            "upstream: plugin/Test_ProvideWithCoordinates/exact image match, with Registry cache key",
            "Registry",
            "test.registry.io",
            "test.registry.io/foo/bar",
        ),
        (
            "upstream: plugin/Test_ProvideWithCoordinates/exact image match, with Image cache key",
            "Image",
            "test.registry.io/foo/bar",
            "test.registry.io/foo/bar",
        ),
        (
            "upstream: plugin/Test_ProvideWithCoordinates/exact image match, with Global cache key",
            "Global",
            "test.registry.io",
            "test.registry.io",
        ),
        (
            "upstream: plugin/Test_ProvideWithCoordinates/wild card image match, with Registry cache key",
            "Registry",
            "*.registry.io:8080",
            "test.registry.io:8080/foo",
        ),
        (
            "upstream: plugin/Test_ProvideWithCoordinates/wild card image match, with Image cache key",
            "Image",
            "*.*.registry.io",
            "foo.bar.registry.io/foo/bar",
        ),
        (
            "upstream: plugin/Test_ProvideWithCoordinates/wild card image match, with Global cache key",
            "Global",
            "*.registry.io",
            "test.registry.io",
        ),
    ];
    for (name, kind, pattern, image) in cases {
        let mut bench = ProviderFixture::new();
        bench.answering("p", &[pattern], &answer(kind, None, pattern));
        let providers = bench.load();
        let want = [format!("{pattern} user:password from credential provider p")];
        for round in ["asked", "cached"] {
            assert_eq!(words(&providers.provide(image, &Requester::default()).await), want, "{name}, {round}");
            assert_eq!(bench.runs("p").len(), 1, "{name}, {round}");
        }
        let other = providers.provide("other.example/foo", &Requester::default()).await;
        assert_eq!(words(&other), [""; 0], "{name}");
        let request = bench.request("p");
        assert_eq!((request["image"].as_str(), request.get("serviceAccountToken")), (Some(image), None), "{name}");
    }
}

#[tokio::test]
async fn service_accounts() {
    struct Case {
        name: &'static str,
        attributes: Value,
        pod: Requester,
        token: Result<&'static str, &'static str>,
        answer: Value,
        want: &'static [&'static str],
        runs: usize,
    }
    let good = || answer("Registry", None, "test.registry.io");
    let echo = || {
        let mut echo = good();
        echo["auth"]["test.registry.io"]["password"] = json!("token");
        echo
    };
    let annotated = || pod(&[("domain.io/annotation", "value"), ("domain.io/optional", "o"), ("other", "x")]);
    let key = ["domain.io/annotation"];
    let cases = [
        Case {
            name: "upstream: plugin/Test_ProvideWithCoordinates/service account name required, but empty",
            attributes: attributes("ServiceAccount", true, &key),
            pod: Requester::default(),
            token: Ok("token"),
            answer: good(),
            want: &[],
            runs: 0,
        },
        Case {
            name: "upstream: plugin/Test_ProvideWithCoordinates/required annotations are missing",
            attributes: attributes("ServiceAccount", true, &key),
            pod: pod(&[("domain.io/optional", "o")]),
            token: Ok("token"),
            answer: good(),
            want: &[],
            runs: 0,
        },
        Case {
            name: "upstream: plugin/Test_ProvideWithCoordinates/token cannot be had",
            attributes: attributes("ServiceAccount", true, &key),
            pod: annotated(),
            token: Err("forbidden"),
            answer: good(),
            want: &["note: credential provider p: failed to get service account token ns/sa-name: forbidden"],
            runs: 0,
        },
        Case {
            name: "upstream: plugin/Test_ProvideWithCoordinates/token echoed as the password, cache type is not Token",
            attributes: attributes("ServiceAccount", true, &key),
            pod: annotated(),
            token: Ok("token"),
            answer: echo(),
            want: &["note: credential provider p: it returned the service account token as the password for image \
                 \"test.registry.io/foo\", which is not allowed when service account cache type is not set to 'Token'"],
            runs: 1,
        },
        Case {
            name: "upstream: plugin/Test_ProvideWithCoordinates/service account coordinates are returned",
            attributes: attributes("ServiceAccount", true, &key),
            pod: annotated(),
            token: Ok("token"),
            answer: good(),
            want: &["test.registry.io user:password from credential provider p for service account ns/sa-name"],
            runs: 1,
        },
        Case {
            name: "the token as the password where each has answers of its own",
            attributes: attributes("Token", true, &key),
            pod: annotated(),
            token: Ok("token"),
            answer: echo(),
            want: &["test.registry.io user:token from credential provider p for service account ns/sa-name"],
            runs: 1,
        },
        Case {
            name: "no service account where none is required",
            attributes: attributes("Token", false, &[]),
            pod: Requester::default(),
            token: Ok("token"),
            answer: good(),
            want: &["test.registry.io user:password from credential provider p"],
            runs: 1,
        },
    ];
    for case in cases {
        let mut bench = ProviderFixture::new();
        bench.answering("p", &["test.registry.io"], &case.answer)["tokenAttributes"] = case.attributes;
        let tokens = Tokens::of(&[case.token]);
        bench.options.tokens = Some(Arc::clone(&tokens) as Arc<dyn TokenSource>);
        let provided = bench.load().provide("test.registry.io/foo", &case.pod).await;
        assert_eq!(words(&provided), case.want, "{}", case.name);
        assert_eq!(bench.runs("p").len(), case.runs, "{}", case.name);
        if case.runs == 1 && case.pod.service_account.is_some() {
            let request = bench.request("p");
            assert_eq!(request["serviceAccountToken"], "token", "{}", case.name);
            let sent = json!({"domain.io/annotation": "value", "domain.io/optional": "o"});
            assert_eq!(request["serviceAccountAnnotations"], sent, "{}", case.name);
            assert_eq!(tokens.asked(), ["ns/sa-name sa-uid for audience and pod pod-uid"], "{}", case.name);
        }
    }
}

// upstream: plugin/TestRequiredAnnotationNotFoundErr/required annotation not found
// upstream: plugin/TestRequiredAnnotationNotFoundErr/other error
#[test]
fn requested_annotations_are_sent() {
    let wanted = TokenUse {
        audience: String::new(),
        per_token: false,
        account_required: true,
        required_annotations: vec!["a".into()],
        optional_annotations: vec!["b".into()],
    };
    let of = |pairs: &[(&str, &str)]| annotations(&pod(pairs).service_account.expect("has one"), &wanted);
    assert_eq!(of(&[("b", "2")]), Err("required annotation a not found".to_owned()));
    assert_eq!(of(&[("a", "1"), ("c", "3")]), Ok(BTreeMap::from([("a".into(), "1".into())])));
    assert_eq!(of(&[("a", ""), ("b", "2")]).map(|found| found.len()), Ok(2));
}

#[tokio::test]
async fn no_token_is_requested_while_a_cached_answer_is_valid() {
    for (cache_type, asked) in [("ServiceAccount", 1), ("Token", 2)] {
        let mut bench = ProviderFixture::new();
        let entry = bench.answering("p", &["r.example"], &answer("Registry", None, "r.example"));
        entry["tokenAttributes"] = attributes(cache_type, true, &[]);
        let tokens = Tokens::of(&[Ok("one"), Ok("two")][..asked]);
        bench.options.tokens = Some(Arc::clone(&tokens) as Arc<dyn TokenSource>);
        let providers = bench.load();
        for _ in 0..2 {
            assert_eq!(providers.provide("r.example/a", &pod(&[])).await.entries.len(), 1, "{cache_type}");
        }
        assert_eq!((tokens.asked().len(), bench.runs("p").len()), (asked, asked), "{cache_type}");
        // Another account has answers of its own.
        let mut other = pod(&[]);
        other.service_account.as_mut().expect("has one").uid = "another".into();
        let provided = providers.provide("r.example/a", &other).await;
        assert!(provided.entries.is_empty() && provided.notes[0].text.ends_with("used up"), "{cache_type}");
    }
}

#[tokio::test]
async fn service_account_is_read_from_the_api_server() {
    let mut bench = ProviderFixture::new();
    let entry = bench.answering("p", &["r.example"], &answer("Registry", None, "r.example"));
    entry["tokenAttributes"] = attributes("ServiceAccount", true, &["domain.io/annotation"]);
    let tokens = Tokens::of(&[Ok("one"), Ok("two")]);
    bench.options.tokens = Some(Arc::clone(&tokens) as Arc<dyn TokenSource>);
    let providers = bench.load();
    let mut of_server = pod(&[]);
    let account = of_server.service_account.as_mut().expect("has one");
    *account = ServiceAccount { origin: Origin::ApiServer, uid: String::new(), ..account.clone() };
    assert_eq!(providers.would_ask("r.example/a", &of_server), ["p"], "its annotations are not known here");
    let absent = [
        "note: credential provider p: failed to get service account ns/sa-name: serviceaccounts \"sa-name\" not found",
    ];
    assert_eq!(words(&providers.provide("r.example/a", &of_server).await), absent);
    let set = |uid: &str, annotations: &[(&str, &str)]| {
        let mut read = pod(annotations).service_account.expect("has one");
        uid.clone_into(&mut read.uid);
        *tokens.account.lock() = Some(read);
    };
    set("u1", &[("other", "x")]);
    assert!(words(&providers.provide("r.example/a", &of_server).await).is_empty(), "an annotation is missing");
    // Another uid or another annotation has answers of its own.
    for (uid, value, runs) in [("u1", "v1", 1), ("u1", "v1", 1), ("u1", "v2", 2)] {
        set(uid, &[("domain.io/annotation", value)]);
        let provided = providers.provide("r.example/a", &of_server).await;
        assert_eq!((provided.entries.len(), bench.runs("p").len()), (1, runs), "{:?}", provided.notes);
        assert_eq!(bench.request("p")["serviceAccountAnnotations"], json!({"domain.io/annotation": value}));
        let Source::ServiceAccount { account, .. } = &provided.entries[0].source else { panic!("of an account") };
        assert_eq!(account.uid, uid);
    }
    assert_eq!(tokens.asked(), vec!["ns/sa-name u1 for audience and pod pod-uid"; 2]);
    assert_eq!(
        words(&providers.provide("r.example/a", &Requester::default()).await),
        [""; 0],
        "no account, no question"
    );
}

#[tokio::test]
async fn token_attributes_without_a_token_source_are_refused() {
    let mut bench = ProviderFixture::new();
    let entry = bench.answering("p", &["r.example"], &answer("Registry", None, "r.example"));
    entry["tokenAttributes"] = attributes("Token", false, &[]);
    let providers = bench.load();
    let want = ["note: credential provider p: failed to get service account token ns/sa-name: there is nothing here \
                 that makes such tokens"];
    assert_eq!(words(&providers.provide("r.example/a", &pod(&[])).await), want);
    assert_eq!(providers.provide("r.example/a", &Requester::default()).await.entries.len(), 1);
}

#[tokio::test]
async fn answers_are_cached_for_their_duration() {
    // (what the answer says, the default, how much later it is asked again, runs by then)
    let cases = [
        ("upstream: plugin/Test_NoCacheResponse/", Some("0"), "10m", 0, 2),
        ("null and a default", None, "10m", 600, 1),
        ("null, after the default", None, "10m", 601, 2),
        ("null and no default", None, "0s", 0, 2),
        ("its own duration", Some("1m"), "10m", 60, 1),
        ("after its own duration", Some("1m"), "10m", 61, 2),
        ("a duration and no default", Some("1h"), "0s", 3600, 1),
        ("a duration below nothing", Some("-1m"), "10m", 0, 2),
    ];
    for (name, duration, default, later, runs) in cases {
        let mut bench = ProviderFixture::new();
        let entry = bench.answering("p", &["*.registry.io"], &answer("Global", duration, "*.registry.io"));
        entry["defaultCacheDuration"] = json!(default);
        let providers = bench.load();
        for _ in 0..2 {
            let provided = providers.provide("test.registry.io/foo/bar", &Requester::default()).await;
            assert_eq!(words(&provided), ["*.registry.io user:password from credential provider p"], "{name}");
            bench.later(Duration::from_secs(later));
        }
        assert_eq!(bench.runs("p").len(), runs, "{name}");
    }
}

#[tokio::test]
async fn cached_answers_apply_to_their_key() {
    // (kind, runs after another image of the registry, and after one of another registry)
    for (kind, same, other) in [("Image", 2, 3), ("Registry", 1, 2), ("Global", 1, 1)] {
        let mut bench = ProviderFixture::new();
        bench.answering("p", &["*.example", "r.example:5000"], &answer(kind, None, "*.example"));
        let providers = bench.load();
        for (image, runs) in [("r.example/a", 1), ("r.example/a", 1), ("r.example/b", same), ("s.example/a", other)] {
            providers.provide(image, &Requester::default()).await;
            assert_eq!(bench.runs("p").len(), runs, "{kind} {image}");
        }
    }
}

// upstream: plugin/Test_ProvideParallel/provide for registry 1
// upstream: plugin/Test_ProvideParallel/provide for registry 2
// upstream: plugin/Test_ProvideParallel/provide for registry 3
// upstream: plugin/Test_ProvideParallel/provide for registry 4
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_registries_at_once() {
    let registries = ["test1.registry.io", "test2.registry.io", "test3.registry.io", "test4.registry.io"];
    let mut bench = ProviderFixture::new();
    bench.answering("p", &registries, &answer("Registry", Some("1m"), "test.registry.io"));
    let providers = bench.load();
    let asked = registries.iter().flat_map(|registry| {
        let providers = &providers;
        (0..5).map(move |n| async move { providers.provide(&format!("{registry}/{n}"), &Requester::default()).await })
    });
    for provided in join_all(asked).await {
        assert_eq!(words(&provided), ["test.registry.io user:password from credential provider p"]);
    }
    // From now on the registries' answers hold.
    let runs = bench.runs("p").len();
    assert_eq!(providers.provide("test3.registry.io/new", &Requester::default()).await.entries.len(), 1);
    assert_eq!(bench.runs("p").len(), runs);
}

/// A provider that waits until the test says go.
fn waiting() -> ProviderFixture {
    let mut bench = ProviderFixture::new();
    let answer = answer("Image", None, "r.example");
    bench.add("p", &["r.example"], &format!("{WAIT}\ncat <<'END'\n{answer}\nEND"));
    bench
}

async fn five_at_once(bench: &ProviderFixture, providers: &Providers, runs: usize) {
    let requester = pod(&[]);
    // All five have asked before the scripts go on: they are polled in one go.
    let five = join_all((0..5).map(|_| providers.provide("r.example/a", &requester)));
    let go = async {
        until(|| bench.runs("p").len() == runs).await;
        bench.go();
    };
    let (five, ()) = join(five, go).await;
    for provided in five {
        assert_eq!(words(&provided).len(), 1);
        assert_eq!(provided.entries.len(), 1, "{:?}", provided.notes);
    }
    assert_eq!(bench.runs("p").len(), runs);
}

// upstream: plugin/TestSingleflightProvide
#[tokio::test]
async fn concurrent_callers_share_one_run() {
    let bench = waiting();
    five_at_once(&bench, &bench.load(), 1).await;

    // With one token for all, and with one for each.
    for (tokens, runs) in [(["same"; 5], 1), (["a", "b", "c", "d", "e"], 5)] {
        let mut bench = ProviderFixture::new();
        let answer = answer("Image", None, "r.example");
        // Each run has a request of its own to read.
        let entry = bench.add("p", &["r.example"], &format!("{WAIT}\ncat <<'END'\n{answer}\nEND"));
        entry["tokenAttributes"] = attributes("Token", true, &[]);
        bench.options.tokens = Some(Tokens::of(&tokens.map(Ok)));
        five_at_once(&bench, &bench.load(), runs).await;
    }
}

#[tokio::test]
async fn shared_run_outlives_its_first_caller() {
    let bench = waiting();
    let providers = bench.load();
    let requester = Requester::default();
    let mut first = Box::pin(providers.provide("r.example/a", &requester));
    let mut second = Box::pin(providers.provide("r.example/a", &requester));
    tokio::select! {
        _ = &mut first => panic!("it waits"),
        _ = &mut second => panic!("it waits"),
        () = until(|| bench.runs("p").len() == 1) => {}
    }
    drop(first);
    bench.go();
    assert_eq!(second.await.entries.len(), 1);
    assert_eq!(bench.runs("p").len(), 1);
}

#[tokio::test]
async fn run_without_waiters_is_cancelled() {
    let bench = waiting();
    let providers = bench.load();
    let requester = Requester::default();
    for round in 0..2 {
        let mut both =
            Box::pin(join(providers.provide("r.example/a", &requester), providers.provide("r.example/a", &requester)));
        tokio::select! {
            _ = &mut both => panic!("it waits"),
            () = until(|| bench.runs("p").len() == round + 1) => {}
        }
        drop(both);
        until(|| bench.runs("p").iter().all(|number| !alive(*number))).await;
    }
    // A cancelled run does not block later callers.
    bench.go();
    assert_eq!(providers.provide("r.example/a", &requester).await.entries.len(), 1);
    assert!(providers.inner.providers[0].flights.is_empty());
}

#[tokio::test]
async fn failure_is_shared_and_not_cached() {
    let mut bench = ProviderFixture::new();
    bench.add("p", &["r.example"], &format!("{WAIT}\nexit 3"));
    let providers = bench.load();
    let requester = Requester::default();
    let both = join(providers.provide("r.example/a", &requester), providers.provide("r.example/a", &requester));
    let go = async {
        until(|| bench.runs("p").len() == 1).await;
        bench.go();
    };
    let ((one, other), ()) = join(both, go).await;
    let want = ["note: error execing credential provider plugin p for image r.example/a: exit status 3"];
    assert_eq!((words(&one), words(&other)), (want.map(str::to_owned).to_vec(), want.map(str::to_owned).to_vec()));
    bench.replace("p", &format!("cat <<'END'\n{}\nEND", answer("Image", None, "r.example")));
    assert_eq!(providers.provide("r.example/a", &requester).await.entries.len(), 1);
}

#[tokio::test]
async fn failures_name_the_provider_and_quote_no_answer() {
    let image = "r.example/a";
    let failed = format!("error execing credential provider plugin p for image {image}");
    let decode = "credential provider p: error decoding credential provider plugin response from stdout".to_owned();
    let mut bad_kind = answer("Sometimes", None, "r.example");
    bad_kind["auth"]["r.example"]["password"] = json!("swordfish");
    let print = |text: &str| format!("cat <<'END'\n{text}\nEND");
    let good = answer("Image", None, "r.example").to_string();
    let cases = [
        (
            "garbage",
            "echo swordfish".to_owned(),
            "credential provider p: error reading GVK from response: it is not a JSON object with kind and apiVersion"
                .to_owned(),
        ),
        ("an unknown field", print(&good.replace("cacheKeyType", "swordfish")), decode.clone()),
        (
            "an answer and garbage",
            format!("{}\necho swordfish", print(&good)),
            "credential provider p: error reading GVK from response: it is not a JSON object with kind and apiVersion"
                .to_owned(),
        ),
        (
            "another version",
            print(&good.replace("/v1", "/v1beta1")),
            "credential provider p: apiVersion from credential plugin response did not match expected \
             apiVersion:credentialprovider.kubelet.k8s.io/v1, actual \
             apiVersion:credentialprovider.kubelet.k8s.io/v1beta1"
                .to_owned(),
        ),
        (
            "no kind of key",
            print(&bad_kind.to_string()),
            "credential provider p: credential provider plugin did not return a valid cacheKeyType".to_owned(),
        ),
        (
            "an exit code",
            "echo swordfish; echo 'the vault is locked' >&2; exit 4".to_owned(),
            format!("{failed}: exit status 4: the vault is locked"),
        ),
        (
            "a secret in the complaint",
            format!("{}\necho \"password refused, $KEEP_SECRET\" >&2; exit 1", print(&good)),
            format!("{failed}: exit status 1: <hidden> refused, <hidden>"),
        ),
        ("a signal", "kill -KILL $$".to_owned(), format!("{failed}: signal 9")),
        (
            "endless output",
            "while :; do echo swordfishswordfishswordfishswordfish; done".to_owned(),
            format!("{failed}: printed more than 1048576 bytes and was killed"),
        ),
    ];
    for (name, body, want) in cases {
        let mut bench = ProviderFixture::new();
        bench.add("p", &["r.example"], &body)["env"] = json!([{"name": "KEEP_SECRET", "value": "swordfish"}]);
        let provided = bench.load().provide(image, &Requester::default()).await;
        assert_eq!(words(&provided), [format!("note: {want}")], "{name}");
    }
}

#[tokio::test]
async fn long_stderr_becomes_one_short_line() {
    let mut bench = ProviderFixture::new();
    bench.add(
        "p",
        &["r.example"],
        "i=0; while [ $i -lt 20000 ]; do echo \"line $i of a complaint\" >&2; i=$((i+1)); done; exit 1",
    );
    let provided = bench.load().provide("r.example/a", &Requester::default()).await;
    let note = &provided.notes[0].text;
    assert!(note.contains("exit status 1: line 0 of a complaint line 1 of") && note.len() < 1000, "{note}");
    assert!(!note.contains('\n'));
}

#[tokio::test]
async fn hanging_provider_is_killed() {
    let mut bench = ProviderFixture::new();
    bench.add("p", &["r.example"], "sleep 1000 & echo $! >\"$DIR/child\"; wait");
    bench.options.timeout = Duration::from_secs(2);
    let provided = bench.load().provide("r.example/a", &Requester::default()).await;
    let want =
        "note: error execing credential provider plugin p for image r.example/a: timed out after 2s and was killed";
    assert_eq!(words(&provided), [want]);
    let child = std::fs::read_to_string(bench.path().join("child")).expect("written");
    let child: i32 = child.trim().parse().expect("a number");
    until(|| !alive(child) && !alive(bench.runs("p")[0])).await;
}

#[tokio::test]
async fn provider_that_ignores_its_request_succeeds() {
    let mut bench = ProviderFixture::new();
    let good = answer("Image", None, "r.example");
    bench.answering("p", &["r.example"], &good)["tokenAttributes"] = attributes("Token", true, &[]);
    bench.replace("p", &format!("exec 0<&-; cat <<'END'\n{good}\nEND"));
    // More than a pipe holds.
    let token = "t".repeat(300_000);
    bench.options.tokens = Some(Tokens::of(&[Ok(&token)]));
    let provided = bench.load().provide("r.example/a", &pod(&[])).await;
    assert_eq!(words(&provided), ["r.example user:password from credential provider p for service account ns/sa-name"]);
}

#[tokio::test]
async fn overlong_annotations_are_refused() {
    let mut bench = ProviderFixture::new();
    bench.answering("p", &["r.example"], &answer("Image", None, "r.example"))["tokenAttributes"] =
        attributes("ServiceAccount", true, &["big"]);
    bench.options.tokens = Some(Tokens::of(&[Ok("token")]));
    let big = "x".repeat(60_000);
    let provided = bench.load().provide("r.example/a", &pod(&[("big", &big), ("domain.io/optional", &big)])).await;
    let note = &provided.notes[0].text;
    assert!(
        note.starts_with("credential provider p: ") && note.ends_with("longer than a cache key can hold"),
        "{note}"
    );
    assert!(provided.entries.is_empty() && bench.runs("p").is_empty());
}

/// The metrics show the time between the readings of the clock before and after a run.
#[tokio::test]
async fn runs_and_failures_are_counted() {
    let mut bench = ProviderFixture::new();
    bench.add("p", &["r.example"], "exit 1");
    bench.answering("q", &["r.example"], &answer("Image", None, "r.example"));
    let calls = Arc::new(AtomicUsize::new(0));
    let (start, counted) = ((bench.options.clock)(), Arc::clone(&calls));
    bench.options.clock = Arc::new(move || {
        start + Duration::from_millis(u64::try_from(counted.fetch_add(1, Ordering::Relaxed)).expect("few"))
    });
    let providers = bench.load();
    for _ in 0..2 {
        providers.provide("r.example/a", &Requester::default()).await;
    }
    let mut registry = prometheus_client::registry::Registry::default();
    providers.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
    for line in [
        "kubelet_credential_provider_plugin_errors_total{plugin_name=\"p\"} 2".to_owned(),
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"p\"} 2".to_owned(),
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"q\"} 1".to_owned(),
        format!("kubelet_credential_provider_config_info{{hash=\"{}\"}} 1", providers.config_hash()),
    ] {
        assert!(text.contains(&line), "{line}\nis not in\n{text}");
    }
    assert!(!text.contains("errors_total{plugin_name=\"q\"}"), "{text}");
}
