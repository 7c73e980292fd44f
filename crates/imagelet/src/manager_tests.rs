//! From settings to options: the defaults of each mode, and the source of each option.

use std::path::Path;

use super::*;
use crate::environment::AuthPlaces;

fn config(text: &str) -> Config {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    let head = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n";
    std::fs::write(file.path(), format!("{head}{text}")).expect("written");
    Config::load(&Environment::default(), &crate::config::NamedFiles::of(file.path()), Vec::new())
        .unwrap_or_else(|e| panic!("{e}\n{text}"))
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
    assert_eq!(got.progress_deadline, Some(Duration::from_secs(300)));
    assert_eq!(got.pull_wait, Duration::from_secs(30));
    let got = puller_options(&config("imagePullProgressDeadline: 0s\n"), Agent);
    assert_eq!(got.progress_deadline, None);
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
fn node_files_are_where_the_kubelet_has_them_and_for_people_where_their_tools_have_them() {
    let plain = Environment { home: Some("/people/u".into()), working: Some("/work".into()), ..Environment::default() };
    let with = |auth: AuthPlaces| Environment { auth, ..plain.clone() };
    let shown = |text: &str, environment: &Environment, mode| {
        let files = node_files(&config(text), environment, mode);
        assert_eq!(files.every, mode != Mode::Agent && !text.contains("dockerConfigPaths"));
        let list = |paths: Vec<PathBuf>| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(":");
        [list(files.paths), list(files.search), list(files.legacy)].join(" ")
    };
    let (root, legacy) = ("root: /data\n", "/data:/people/u:/");
    let agent = " /data:/work:/people/u/.docker:/.docker /data:/work:/people/u:/".to_owned();
    let docker_config = || Some("/dc".into());
    assert_eq!(shown(root, &plain, Mode::Agent), agent);
    let all =
        with(AuthPlaces { auth_file: Some("/f".into()), docker_config: docker_config(), ..AuthPlaces::default() });
    assert_eq!(shown(root, &all, Mode::Agent), agent, "the variables of a person are not the node's");
    for mode in [Mode::OneShot, Mode::Explain] {
        let want =
            "/run/containers/0/auth.json:/people/u/.config/containers/auth.json /data:/people/u/.docker:/.docker";
        assert_eq!(shown(root, &plain, mode), format!("{want} {legacy}"));
        let xdg = AuthPlaces {
            runtime_dir: Some("/run/user/7".into()),
            config_home: Some("/conf".into()),
            docker_config: docker_config(),
            ..AuthPlaces::default()
        };
        let want = "/run/user/7/containers/auth.json:/conf/containers/auth.json:/people/u/.config/containers/auth.json";
        assert_eq!(shown(root, &with(xdg), mode), format!("{want} /data:/dc:/.docker {legacy}"));
        assert_eq!(shown(root, &all, mode), format!("/f /data:/.docker {legacy}"));
    }
    let text = "credentials: {dockerConfigPaths: [/a, /b]}\n";
    assert_eq!(shown(text, &all, Mode::Agent), "/a:/b  /a:/b");
    assert_eq!(shown(text, &all, Mode::OneShot), "/a:/b  /a:/b");
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
