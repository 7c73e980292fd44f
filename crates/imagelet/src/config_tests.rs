//! Tables of configurations: which are accepted, which are refused and with which message.

use std::path::Path;
use std::time::Duration;

use store::LayerFormat;
use tracing_subscriber::filter::LevelFilter;

use super::setting::{SETTINGS, Setting};
use super::settings::access::Credentials;
use super::settings::pulls::{BackOff, Pulls};
use super::*;
use crate::exit::{Code, Failure};

const HEAD: &str = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n";

fn load(text: &str, given: Given) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
    let replaced = file.path().to_owned();
    Config::load(&Environment::default(), &NamedFiles::of(file.path()), given).map_err(|error| match error {
        ConfigError::Shape { line, message, .. } => ConfigError::Shape { path: "c.yaml".into(), line, message },
        ConfigError::Value { origin: Origin::File { path, line }, field, value, allowed } => {
            assert_eq!(path, replaced);
            ConfigError::Value { origin: Origin::File { path: "c.yaml".into(), line }, field, value, allowed }
        }
        other => other,
    })
}

fn setting(field: &str) -> &'static Setting {
    of_field(field).expect("a known field")
}

#[test]
fn the_kubelet_validates_in_these_words() {
    let cases: [(&str, &[&str]); 23] = [
        ("registryPullQPS: -1\n", &["registryPullQPS (--registry-qps) -1 must not be a negative number (c.yaml:3)"]),
        ("registryBurst: -1\n", &["registryBurst (--registry-burst) -1 must not be a negative number (c.yaml:3)"]),
        ("maxPods: -1\n", &["maxPods (--max-pods) -1 must not be a negative number (c.yaml:3)"]),
        ("maxPods: 5000000000\n", &["maxPods 5000000000 must not be larger than 2147483647 (c.yaml:3)"]),
        ("maxParallelImagePulls: 0\n", &["maxParallelImagePulls 0 must be a positive number (c.yaml:3)"]),
        (
            "serializeImagePulls: true\nmaxParallelImagePulls: 2\n",
            &[
                "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to \
               false (c.yaml:4)",
            ],
        ),
        (
            "imagePullCredentialsVerificationPolicy: Sometimes\n",
            &[
                "option \"Sometimes\" specified for imagePullCredentialsVerificationPolicy. Valid options are \"NeverVerify\", \
               \"NeverVerifyPreloadedImages\", \"NeverVerifyAllowlistedImages\" or \"AlwaysVerify\" (c.yaml:3)",
            ],
        ),
        (
            "preloadedImagesVerificationAllowlist: [a.example/x]\n",
            &["can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVerificationPolicy` is not \
               \"NeverVerifyAllowlistedImages\" (c.yaml:3)"],
        ),
        (
            "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n\
             preloadedImagesVerificationAllowlist: [a.example/x:1]\n",
            &[
                "invalid image pattern in `preloadedImagesVerificationAllowlist`: neither tag nor digest is accepted in an \
               image reference: a.example/x:1 (c.yaml:4)",
            ],
        ),
        (
            "imageCredentialProviderConfig: /p\n",
            &[
                "imageCredentialProviderConfig is set and imageCredentialProviderBinDir is not: the providers' programs lie \
               there (c.yaml:3)",
            ],
        ),
        (
            "imageCredentialProviderBinDir: /p\n",
            &[
                "imageCredentialProviderBinDir is set and imageCredentialProviderConfig is not: it says which providers \
               there are (c.yaml:3)",
            ],
        ),
        ("serializeImagePulls: true\nmaxParallelImagePulls: 1\n", &[]),
        (
            "imageGCHighThresholdPercent: 101\n",
            &[
                "imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive (c.yaml:3)",
            ],
        ),
        (
            "imageGCLowThresholdPercent: -1\n",
            &[
                "imageGCLowThresholdPercent (--image-gc-low-threshold) -1 must be between 0 and 100, inclusive (c.yaml:3)",
            ],
        ),
        (
            "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 70\n",
            &[
                "imageGCLowThresholdPercent (--image-gc-low-threshold) 70 must be less than imageGCHighThresholdPercent \
               (--image-gc-high-threshold) 70 (c.yaml:4)",
            ],
        ),
        (
            "imageGCHighThresholdPercent: 70\n",
            &[
                "imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than imageGCHighThresholdPercent \
               (--image-gc-high-threshold) 70 (c.yaml:3)",
            ],
        ),
        (
            "imageMinimumGCAge: -1m\nimageMaximumGCAge: -90s\n",
            &[
                "imageMinimumGCAge -1m0s must not be negative (c.yaml:3)",
                "imageMaximumGCAge -1m30s must not be negative (c.yaml:4)",
            ],
        ),
        ("imageMaximumGCAge: 1m\n", &["imageMaximumGCAge 1m0s must be greater than imageMinimumGCAge 2m0s (c.yaml:3)"]),
        (
            "evictionHard: {imagefs.free: 1Gi, nodefs.available: 101%, memory.available: 1Gi}\n",
            &[
                "unsupported eviction signal imagefs.free (c.yaml:3)",
                "eviction percentage threshold nodefs.available must be <= 100%: 101% (c.yaml:3)",
            ],
        ),
        (
            "registryBurst: -1\nmaxParallelImagePulls: -3\n",
            &[
                "registryBurst (--registry-burst) -1 must not be a negative number (c.yaml:3)",
                "maxParallelImagePulls -3 must be a positive number (c.yaml:4)",
            ],
        ),
        ("unsupportedImages: runtime\n", &[]),
        ("unsupportedImages: refuse\nsignaturePolicy: /policy.json\npullEngine: embedded\n", &[]),
        (
            "unsupportedImages: runtime\nsignaturePolicy: /policy.json\npullEngine: embedded\n",
            &[
                "unsupportedImages is runtime and signaturePolicy is set: the runtime would not ask the policy (c.yaml:3)",
                "unsupportedImages is runtime and pullEngine is embedded: the runtime would pull (c.yaml:3)",
            ],
        ),
    ];
    for (text, want) in cases {
        let lines = match load(&format!("{HEAD}{text}"), Vec::new()) {
            Ok(_) => Vec::new(),
            Err(ConfigError::Invalid(lines)) => lines,
            Err(other) => panic!("{text}: {other}"),
        };
        let placed = |line: String| {
            let (message, place) = line.rsplit_once(" (").expect("a place");
            let (_, number) = place.rsplit_once(':').expect("a line number");
            format!("{message} (c.yaml:{number}")
        };
        let lines: Vec<String> = lines.into_iter().map(placed).collect();
        let want: Vec<String> = want.iter().map(|line| format!("invalid configuration: {line}")).collect();
        assert_eq!(lines, want, "{text}");
    }
}

#[test]
fn every_field_is_taken() {
    let text = format!(
        "{HEAD}root: /srv/images\nimageServiceEndpoint: unix:///run/x.sock\npullEngine: embedded\nruntimeLayers: dir\n\
         containerRuntimeEndpoint: unix:///run/y.sock\nruntimeRequestTimeout: 1m30s\n\
         staticPodPath: /pods.d\nstaticPodURL: https://config.example/pods\n\
         documentsDirectory: /documents\nnodeName: edge-1\n\
         nodeIP: [10.0.0.1, 'fd00::1']\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\nresolvConf: /run/resolv.conf\n\
         kubeconfig: /k\nbootstrapKubeconfig: /b\nnodeLabels: [rack=7]\nregisterWithTaints: [a=b:NoExecute]\nproviderID: lab://1\nport: 7\nclientCAFile: /ca\nfleet: {{kubeconfig: /f, namespace: images}}\n\
         podCgroup: /pods\nseccompDefault: true\ncrashLoopBackOff: {{maxContainerRestartPeriod: 1m}}\ncontainerLogMaxSize: 50M\n\
         containerLogMaxFiles: 3\n\
         registryConfigPaths: [/a, /b]\n\
         allowedRegistryTargets: [10.0.0.0/8, 'http://storage.example:9000']\nmaxPods: 30\nlisten: unix:///l.sock\nadminSocket: /run/a.sock\nadminGroup: wheel\nadminOthersRead: true\nmetricsAddress: 127.0.0.1:9\nmetricsPrefix: imagelet\n\
         statusAddress: '[::]:10260'\nstatusTokenFile: /token\n\
         tracing: {{endpoint: 'localhost:4317', samplingRatePerMillion: 5}}\n\
         serializeImagePulls: false\nmaxParallelImagePulls: 4\nregistryPullQPS: 7\n\
         registryBurst: 8\n\
         imagePullProgressDeadline: 3s\nmaxPullBandwidth: 10Mi\n\
         imagePullBackOff: {{initial: 1s}}\n\
         imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n\
         preloadedImagesVerificationAllowlist: [a.example/x, b.example/*]\n\
         imageCredentialProviderConfig: p.yaml\nimageCredentialProviderBinDir: /bin\n\
         credentials: {{dockerConfigPaths: [/c, d]}}\n\
         secretsDirectory: /s\n\
         imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\nimageMinimumGCAge: 3m\nimageMaximumGCAge: 24h\n\
         imageGC: {{enabled: true, keep: [a.example/*, 'b.example/x;weight=2'],\n  \
         sandboxImage: pause}}\n\
         evictionHard: {{imagefs.available: 1Gi, memory.available: 100Mi}}\n\
         evictionPressureTransitionPeriod: 1m\n\
         podLogsDir: /logs\npullMemory: 16Mi\n\
         platform: linux/arm64\nsignaturePolicy: /policy.json\ndurability: relaxed\nkeepBlobs: true\nlayerFormat: dir\n\
         logging:\n  format: json\n  level: debug\n"
    );
    let config = load(&text, Vec::new()).expect("taken");
    let unset = SETTINGS.iter().filter(|s| !config.origins.contains_key(s.field)).map(|s| s.field);
    // The last two are not for use with others that are set here.
    assert_eq!(
        unset.collect::<Vec<_>>(),
        ["kubeletConfig", "fleet.inCluster", "unsupportedImages"],
        "these have tests of their own"
    );
    let defaults = Config::defaults(&Environment::default());
    let same = SETTINGS.iter().filter(|s| s.show(&config) == s.show(&defaults)).map(|s| s.field);
    assert_eq!(
        same.collect::<Vec<_>>(),
        ["kubeletConfig", "fleet.inCluster", "unsupportedImages"],
        "a value that is not the default arrives"
    );
    assert_eq!(config.root, Path::new("/srv/images"));
    assert_eq!(config.runtime_request_timeout, Duration::from_secs(90));
    assert_eq!(config.registry_config_paths, [Path::new("/a"), Path::new("/b")]);
    let targets: Vec<String> = config.allowed_registry_targets.iter().map(ToString::to_string).collect();
    assert_eq!(targets, ["10.0.0.0/8", "http://storage.example:9000"]);
    let second = Duration::from_secs;
    let pulls = Pulls {
        serialize: Some(false),
        max_parallel: Some(4),
        qps: Some(7),
        burst: Some(8),
        progress_deadline: second(3),
        bandwidth: 10 << 20,
    };
    assert_eq!(config.pulls, pulls);
    let back_off = BackOff { initial: second(1) };
    assert_eq!(config.back_off, back_off);
    assert_eq!(config.verification.allowlist, ["a.example/x", "b.example/*"]);
    let Credentials { docker_config_paths, provider_config, .. } = &config.credentials;
    assert!(docker_config_paths.as_ref().is_some_and(|p| p[0] == Path::new("/c") && p[1].is_absolute()));
    assert!(
        provider_config.as_ref().is_some_and(|p| p.is_absolute() && p.ends_with("p.yaml")),
        "from the file's place"
    );
    let engine = config.engine.options();
    assert_eq!((engine.max_parallel_layers, engine.store.durability), (4, Durability::Relaxed));
    assert!(engine.ranges.per_blob > 1);
    assert_eq!(engine.memory, 16 << 20);
    assert_eq!((engine.keep_blobs, engine.store.layer_format), (true, LayerFormat::Dir));
    assert_eq!((config.log_format, config.log_level), (LogFormat::Json, LevelFilter::DEBUG));
    assert_eq!(engine.platform.to_string(), "linux/arm64");
    assert_eq!(engine.signature_policy.as_deref(), Some(Path::new("/policy.json")));
    let layer = &engine.store.limits;
    assert_eq!((layer.layer_bytes, layer.entries), (64 << 30, 2_500_000), "the former default is the bound");
    assert_eq!((engine.limits.image_bytes, engine.limits.inflate_ratio), (256 << 30, 1500));
    assert_eq!(config.gc.keep, ["a.example/*", "b.example/x;weight=2"]);
    assert_eq!(
        config.notes,
        ["evictionHard (LINE): passed over, as it does not concern imagelet: memory.available"
            .replace("LINE", &config.origins["evictionHard"].to_string())]
    );
    let shown = setting("evictionHard").shown(&config);
    assert_eq!(shown, "imagefs.available<1Gi,memory.available<100Mi");
    let given = vec![(setting("evictionHard"), Origin::Flag("eviction-hard"), shown.clone())];
    assert_eq!(setting("evictionHard").shown(&load(HEAD, given).expect("as it was shown")), shown);
}

#[test]
fn the_later_word_counts() {
    let text = format!("{HEAD}root: /from-file\ndurability: relaxed\npullMemory: 64Mi\n");
    let given = vec![
        (setting("root"), Origin::Flag("root"), "/from-flag".to_owned()),
        (setting("durability"), Origin::Variable("IMAGELET_DURABILITY"), "full".to_owned()),
    ];
    let config = load(&text, given).expect("taken");
    assert_eq!((config.root.to_str(), config.engine.durability), (Some("/from-flag"), Durability::Full));
    assert_eq!(config.engine.memory, 64 << 20);
    assert_eq!(config.origins["root"].to_string(), "--root");
    assert_eq!(config.origins["durability"].to_string(), "IMAGELET_DURABILITY");
    assert!(config.origins["pullMemory"].to_string().ends_with(":5"));
}

#[test]
fn what_is_refused() {
    let cases = [
        (
            "containerLogMaxFiles: 1\n",
            "c.yaml:3: containerLogMaxFiles: 1 is not allowed, must be a whole number from 2 to 1000",
        ),
        ("maxPods: 1.5\n", "c.yaml:3: maxPods: 1.5 is not allowed, must be a whole number"),
        (
            "pullMemory: 1Ki\n",
            "c.yaml:3: pullMemory: \"1Ki\" is not allowed, must be a number of bytes such as 64Gi, from 4Mi to 1Ti",
        ),
        (
            "containerLogMaxSize: 1Pi\n",
            "c.yaml:3: containerLogMaxSize: \"1Pi\" is not allowed, must be a number of bytes such as 10Mi, from 4Ki to 1Ti",
        ),
        (
            "imageMinimumGCAge: 1000h 1m\n",
            "c.yaml:3: imageMinimumGCAge: \"1000h 1m\" is not allowed, must be a duration such as 90s or 2m30s, up to 8784h",
        ),
        (
            "metricsAddress: localhost\n",
            "c.yaml:3: metricsAddress: \"localhost\" is not allowed, must be an address and port such as 127.0.0.1:9095 (invalid \
             socket address syntax)",
        ),
        (
            "platform: linux\n",
            "c.yaml:3: platform: \"linux\" is not allowed, must be a platform such as linux/arm64 (invalid platform \
             \"linux\": want os/architecture[/variant], for example linux/arm64)",
        ),
        ("durability: fast\n", "c.yaml:3: durability: \"fast\" is not allowed, must be one of full, relaxed"),
        ("serializeImagePulls: 1\n", "c.yaml:3: serializeImagePulls: 1 is not allowed, must be true or false"),
        (
            "\nimagePullProgressDeadline: 120\n",
            "c.yaml:4: imagePullProgressDeadline: 120 is not allowed, must be a duration such as 90s or 2m30s, from 0s to 24h",
        ),
        (
            "evictionHard: {imagefs.available: 5}\n",
            "c.yaml:3: evictionHard: a map is not allowed, must be a map of texts",
        ),
        (
            "imageGC: {keep: ['a b']}\n",
            "c.yaml:3: imageGC.keep: a list is not allowed, must be a pattern such as registry.example/base/*, or one with a \
             weight, such as registry.example/big/**;weight=4 (image pattern \"a b\": there is white space in it)",
        ),
        (
            "staticPodURL: ftp://x\n",
            "c.yaml:3: staticPodURL: \"ftp://x\" is not allowed, must be an address such as https://config.example/pods (ftp \
             is no scheme for it)",
        ),
        (
            "nodeIP: [0.0.0.0]\n",
            "c.yaml:3: nodeIP: a list is not allowed, must be a list of IP addresses of this node (not 0.0.0.0, which is \
             unspecified)",
        ),
        (
            "nodeName: Edge_1\n",
            "c.yaml:3: nodeName: \"Edge_1\" is not allowed, must be a name of lower case letters, digits, `-` and `.` (it is \
             no name of a host in lower case)",
        ),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 10m}\n",
            "c.yaml:3: crashLoopBackOff.maxContainerRestartPeriod: \"10m\" is not allowed, must be a duration such as 90s or \
             2m30s, from 1s to 5m",
        ),
        ("root: ''\n", "c.yaml:3: root: \"\" is not allowed, must be a path"),
        ("root: /a\nroot: /b\n", "configuration c.yaml:4: the key \"root\" stands twice"),
    ];
    for (text, want) in cases {
        let error = load(&format!("{HEAD}{text}"), Vec::new()).expect_err(text);
        assert_eq!(error.to_string(), want);
        assert_eq!(Failure::from(error).code(), Code::Config);
    }
}

#[test]
fn unknown_fields_are_named_with_those_that_were_meant() {
    let cases = [
        ("pullMemry: 3\n", "unknown field \"pullMemry\"; did you mean pullMemory"),
        ("logging: {sink: x}\n", "unknown field \"logging.sink\"; did you mean logging."),
        ("qqq: off\n", "unknown field \"qqq\"; `imagelet config` shows all fields"),
    ];
    for (text, want) in cases {
        let error = load(&format!("{HEAD}{text}"), Vec::new()).expect_err(text).to_string();
        assert!(error.starts_with(&format!("configuration c.yaml:3: {want}")) && error.len() < 200, "{error}");
    }
}

#[test]
fn removed_settings_are_refused_with_the_rule_that_replaced_them() {
    for removed in removed::REMOVED {
        let text = match removed.field.split_once('.') {
            None => format!("{HEAD}{}: 1\n", removed.field),
            Some((outer, inner)) => format!("{HEAD}{outer}: {{{inner}: 1}}\n"),
        };
        let error = load(&text, Vec::new()).expect_err(removed.field);
        let want = format!("configuration c.yaml:3: field {:?} was removed: {}", removed.field, removed.now);
        assert_eq!(error.to_string(), want);
        assert_eq!(Failure::from(error).code(), Code::Config);
        let variable = format!("IMAGELET_{}", removed.flag.replace('-', "_").to_uppercase());
        let unknown = names::UnknownVariables::among(std::slice::from_ref(&variable), Default::default);
        let error = unknown.refuse_misspelt().expect_err(&variable).to_string();
        assert_eq!(error, format!("variable {variable} was removed: {}", removed.now));
    }
}

#[test]
fn the_head_is_checked() {
    let cases = [
        ("root: /a\n", "configuration c.yaml: apiVersion is missing, must be imagelet.dev/v1alpha1"),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
            "configuration c.yaml:1: apiVersion: \"kubelet.config.k8s.io/v1beta1\" is not allowed, must be imagelet.dev/v1alpha1",
        ),
        ("", "configuration c.yaml: 0 documents instead of one"),
        ("- a\n", "configuration c.yaml:1: "),
    ];
    for (text, want) in cases {
        let error = load(text, Vec::new()).expect_err(text).to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

#[test]
fn every_error_is_reported_at_once() {
    let text = format!("{HEAD}durability: fast\npullMemry: 3\nregistryBurst: -1\n");
    let given = vec![(setting("containerLogMaxFiles"), Origin::Flag("container-log-max-files"), "x".to_owned())];
    let error = load(&text, given).expect_err("refused");
    let failure = Failure::from(error);
    let places =
        ["durability: \"fast\"", "unknown field", "--container-log-max-files", "registryBurst (--registry-burst) -1"];
    assert_eq!((failure.code(), failure.lines().len()), (Code::Config, places.len()), "{failure:?}");
    for (line, place) in failure.lines().iter().zip(places) {
        assert!(line.contains(place), "{line}");
    }
}

#[test]
fn drop_ins_count_more_than_the_file_and_are_as_strict() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, drop_ins) = (directory.path().join("c.yaml"), directory.path().join("c.yaml.d"));
    std::fs::create_dir(&drop_ins).expect("made");
    let write = |path: &Path, text: &str| std::fs::write(path, format!("{HEAD}{text}")).expect("written");
    write(&file, "root: /a\nregistryConfigPaths: [/a, /b]\nimageGC: {sandboxImage: one, enabled: true}\nmaxPods: 1\n");
    write(&drop_ins.join("10-one.yaml"), "registryConfigPaths: [sub]\nimageGC: {sandboxImage: two}\nmaxPods: 2\n");
    write(&drop_ins.join("20-two.conf"), "maxPods: 3\n");
    let load = |files: &NamedFiles| Config::load(&Environment::default(), files, Vec::new());
    let config = load(&NamedFiles::of(&file)).expect("loads");
    assert_eq!((config.root.as_path(), config.max_pods, config.gc.sandbox_image.as_str()), (Path::new("/a"), 3, "two"));
    assert_eq!(config.registry_config_paths, [drop_ins.join("sub")], "a list takes the place of the earlier one");
    assert_eq!(setting("imageGC.enabled").shown(&config), "true", "maps are merged by field");
    assert!(config.origins["maxPods"].to_string().ends_with("c.yaml.d/20-two.conf:3"));
    // A named directory replaces the one next to the file, and must exist.
    let other = NamedFiles { directory: Some(directory.path().join("other")), ..NamedFiles::of(&file) };
    let error = load(&other).expect_err("refused").to_string();
    assert!(error.starts_with("read configuration ") && error.contains("/other: No such file"), "{error}");
    std::fs::create_dir(directory.path().join("other")).expect("made");
    assert_eq!(load(&other).expect("loads").max_pods, 1);
    std::fs::write(drop_ins.join("30.yaml"), "root: /b\n").expect("written");
    write(&drop_ins.join("40.yaml"), "rot: /b\n");
    let error = load(&NamedFiles::of(&file)).expect_err("refused").to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with("30.yaml: apiVersion is missing, must be imagelet.dev/v1alpha1"));
    assert!(lines[1].contains("40.yaml:3: unknown field \"rot\"; did you mean root?"), "{error}");
}

#[test]
fn numbers_out_of_the_schemas_range_are_refused() {
    let mut numbers = 0;
    for setting in SETTINGS.iter().filter(|setting| setting.schema.get("type").is_some_and(|kind| kind == "integer")) {
        let schema = &setting.schema;
        let (outer, inner) = setting.field.split_once('.').unwrap_or((setting.field, ""));
        let bounds = [("minimum", -1), ("maximum", 1)]
            .map(|(bound, step)| (schema.get(bound).and_then(serde_json::Value::as_i64), step));
        for (bound, step) in bounds.into_iter().filter_map(|(bound, step)| Some((bound?, step))) {
            let number = bound + step;
            let value = if inner.is_empty() { number.to_string() } else { format!("{{{inner}: {number}}}") };
            let error = load(&format!("{HEAD}{outer}: {value}\n"), Vec::new()).expect_err(setting.field).to_string();
            assert!(error.contains(setting.field), "{error}");
            numbers += 1;
        }
    }
    assert!(numbers >= 18, "{numbers}");
}

#[test]
fn a_named_file_must_exist() {
    let error = Config::load(&Environment::default(), &NamedFiles::of(Path::new("/nowhere/c.yaml")), Vec::new());
    let error = error.expect_err("refused");
    assert!(error.to_string().starts_with("read configuration /nowhere/c.yaml: No such file"), "{error}");
}

#[test]
fn a_wrong_flag_is_usage_and_a_wrong_variable_is_configuration() {
    let flag = vec![(setting("containerLogMaxFiles"), Origin::Flag("container-log-max-files"), "x".to_owned())];
    let failure = Failure::from(load(HEAD, flag).expect_err("refused"));
    let want = "--container-log-max-files: \"x\" is not allowed, must be a whole number from 2 to 1000";
    assert_eq!((failure.code(), failure.lines()), (Code::Usage, [want.to_owned()].as_slice()));
    let variable = vec![(setting("root"), Origin::Variable("IMAGELET_ROOT"), String::new())];
    let failure = Failure::from(load(HEAD, variable).expect_err("refused"));
    assert_eq!(failure.lines(), ["IMAGELET_ROOT: \"\" is not allowed, must be a path"]);
    assert_eq!(failure.code(), Code::Config);
}

#[test]
fn names_follow_one_rule() {
    for setting in SETTINGS.iter() {
        let want = format!("IMAGELET_{}", setting.flag.replace('-', "_").to_uppercase());
        assert_eq!(setting.variable, want);
    }
}

#[test]
fn the_example_shows_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/config.yaml");
    let root = Environment { privileged: true, ..Environment::default() };
    let (example, defaults) =
        (Config::load(&root, &NamedFiles::of(&path), Vec::new()).expect("loads"), Config::defaults(&root));
    let text = std::fs::read_to_string(path).expect("read above");
    for setting in SETTINGS.iter() {
        assert_eq!(setting.show(&example), setting.show(&defaults), "{}", setting.field);
        let field = setting.field.rsplit('.').next().unwrap_or_default();
        assert!(text.contains(&format!("{field}:")), "{} is not in the example", setting.field);
    }
}
