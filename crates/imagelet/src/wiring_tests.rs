//! From settings to options: what each mode has by default, and what is taken from where.

use std::path::Path;

use super::*;

fn config(text: &str) -> Config {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    let head = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n";
    std::fs::write(file.path(), format!("{head}{text}")).expect("written");
    Config::load(&Environment::default(), Some(file.path()), Vec::new()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn limits_that_are_not_set_are_those_of_the_mode() {
    use Mode::{Agent, OneShot};
    // serialize, max_parallel, qps, burst
    let cases = [
        ("", Agent, (false, Some(5), 5.0, 10)),
        ("", OneShot, (false, None, 0.0, 10)),
        ("maxParallelImagePulls: 1\n", Agent, (false, Some(1), 5.0, 10)),
        ("maxParallelImagePulls: 2\n", Agent, (false, Some(2), 5.0, 10)),
        ("maxParallelImagePulls: 2\n", OneShot, (false, Some(2), 0.0, 10)),
        ("serializeImagePulls: true\n", OneShot, (true, None, 0.0, 10)),
        ("serializeImagePulls: false\n", Agent, (false, Some(5), 5.0, 10)),
        ("serializeImagePulls: true\n", Agent, (true, Some(5), 5.0, 10)),
        ("registryPullQPS: 0\nregistryBurst: 0\n", Agent, (false, Some(5), 0.0, 10)),
        ("registryPullQPS: 7\nregistryBurst: 3\n", OneShot, (false, None, 7.0, 3)),
    ];
    for (text, mode, want) in cases {
        let got = puller_options(&config(text), mode);
        assert_eq!((got.serialize, got.max_parallel, got.qps, got.burst), want, "{text:?} {mode:?}");
    }
    let got = puller_options(&config(""), Agent);
    assert_eq!((got.progress_deadline, got.minimum_rate, got.deadline), (Some(Duration::from_secs(300)), None, None));
    let text = "imagePullProgressDeadline: 0s\nimagePullMinimumRate: 1Ki\nimagePullDeadline: 1h\n";
    let got = puller_options(&config(text), Agent);
    assert_eq!(
        (got.progress_deadline, got.minimum_rate, got.deadline),
        (None, Some(1024), Some(Duration::from_secs(3600)))
    );
}

#[test]
fn intents_are_kept_for_as_many_pods_as_the_node_holds_and_records_for_more() {
    let cases = [
        ("", 220),
        ("maxPods: 500\n", 1000),
        ("maxPods: 5000\n", 1024),
        ("maxPods: 10\nmaxParallelImagePulls: 40\n", 80),
    ];
    for (text, intents) in cases {
        let options = records_options(&config(text), &Metrics::new()).expect("options");
        assert_eq!((options.max_intents, options.max_records), (intents, 10_000), "{text}");
    }
    for policy in ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"] {
        let text = format!("imagePullCredentialsVerificationPolicy: {policy}\nroot: /data\n");
        let options = records_options(&config(&text), &Metrics::new()).expect("options");
        assert_eq!((options.policy.name(), options.directory.as_path()), (policy, Path::new("/data/image_manager")));
    }
}

#[test]
fn node_files_are_where_the_kubelet_has_them() {
    let environment =
        Environment { home: Some("/people/u".into()), working: Some("/work".into()), ..Environment::default() };
    let shown = |text: &str, mode| {
        let NodeFiles { search, legacy } = node_files(&config(text), &environment, mode);
        let list = |paths: Vec<PathBuf>| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(":");
        (list(search), list(legacy))
    };
    let want = |search: &str, legacy: &str| (search.to_owned(), legacy.to_owned());
    assert_eq!(
        shown("root: /data\n", Mode::Agent),
        want("/data:/work:/people/u/.docker:/.docker", "/data:/work:/people/u:/")
    );
    assert_eq!(shown("root: /data\n", Mode::OneShot), want("/data:/people/u/.docker:/.docker", "/data:/people/u:/"));
    let text = "credentials: {dockerConfigPaths: [/a, /b]}\n";
    assert_eq!(shown(text, Mode::Agent), want("/a:/b", "/a:/b"));
}

#[tokio::test]
async fn the_root_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("temporary directory");
    let root = directory.path().join("a/root");
    make_root(root.clone()).await.expect("made");
    assert_eq!(std::fs::metadata(&root).expect("there").permissions().mode() & 0o777, 0o700);
    make_root(root).await.expect("it may be there already");
    std::fs::write(directory.path().join("file"), "").expect("written");
    let failure = make_root(directory.path().join("file/root")).await.expect_err("refused");
    assert!(failure.lines()[0].starts_with("make /"), "{failure:?}");
}
