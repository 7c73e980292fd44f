//! Kubelets' configurations: which fields are taken and with which meaning, which are ignored, which are refused.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::NamedFiles;
use crate::config::setting::{Given, SETTINGS};
use crate::environment::Environment;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Loads a kubelet's file, together with one of ours.
fn load_with(kubelet: &str, own: &str, given: Given) -> Result<Config, String> {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (theirs, ours) = (directory.path().join("kubelet.yaml"), directory.path().join("own.yaml"));
    std::fs::write(&theirs, kubelet).expect("written");
    let head = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\nkubeletConfig: kubelet.yaml\n";
    std::fs::write(&ours, format!("{head}{own}")).expect("written");
    Config::load(&Environment::default(), &NamedFiles::of(&ours), given)
        .map_err(|error| error.to_string().replace(&format!("{}/", directory.path().display()), ""))
}

fn load(kubelet: &str) -> Result<Config, String> {
    load_with(&format!("{HEAD}{kubelet}"), "", Vec::new())
}

fn setting(field: &str) -> &'static Setting {
    of_field(field).unwrap_or_else(|| panic!("{field} is no setting"))
}

#[test]
fn a_constant_is_named_if_the_kubelets_value_is_another() {
    let fields = ["containerLogMaxWorkers", "httpCheckFrequency", "syncFrequency", "containerLogMonitorInterval"];
    let (same, zero, other) = (["1", "20s", "60s", "10s"], ["0", "0s", "0s", "0s"], ["2", "5s", "10s", "1m"]);
    let text = |values: [&str; 4]| fields.iter().zip(values).map(|(f, v)| format!("{f}: {v}\n")).collect::<String>();
    for values in [same, zero] {
        assert_eq!(load(&text(values)).expect("taken").notes, Vec::<String>::new(), "{values:?}");
    }
    let notes = load(&text(other)).expect("taken").notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    for field in fields {
        let rule = removed::of_field(field).expect("removed").now;
        assert!(notes[0].contains(&format!("{field} ({rule})")), "{notes:?}");
    }
}

#[test]
fn what_is_taken_exists_on_both_sides() {
    assert!(taken(RESTARTS).is_some());
    let taken: Vec<&str> = SETTINGS.iter().filter(|s| s.kubelet.is_some()).map(|s| s.field).collect();
    assert_eq!(taken.len(), 28);
    for field in taken {
        let name = field.split('.').next().unwrap_or_default();
        assert!(FIELDS.iter().any(|(field, _)| *field == name), "{name}");
    }
    assert!(FIELDS.is_sorted_by_key(|(name, _)| name), "in the order of the alphabet");
}

#[test]
fn a_real_file_is_read_and_ignored_fields_are_named_in_one_line() {
    let config = load(
        "authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /a}}\n\
         cgroupDriver: systemd\nclusterDNS: [10.96.0.10]\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n\
         crashLoopBackOff: {maxContainerRestartPeriod: 90s}\nevictionHard: {imagefs.available: 20%, memory.available: 100Mi, pid.available: 5%}\nfileCheckFrequency: 0s\n\
         imageGCHighThresholdPercent: 90\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 0s\nnodeStatusMaxImages: 0\nlogging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}}, verbosity: 0}\n\
         memorySwap: {}\nmaxParallelImagePulls: 5\nmaxPods: 250\nregistryBurst: 20\nregistryPullQPS: 0\n\
         resolvConf: \"\"\nruntimeRequestTimeout: 0s\nserializeImagePulls: false\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 2}]\n\
         staticPodPath: ~\nstaticPodURL: http://config/pods\nstaticPodURLHeader: {Authorization: [Bearer s3cret], X: [a, b]}\n\
         syncFrequency: 0s\n",
    )
    .expect("taken");
    assert_eq!((config.pulls.max_parallel, config.pulls.serialize), (Some(5), Some(false)));
    assert_eq!((config.pulls.qps, config.pulls.burst, config.max_pods), (Some(0), Some(20), 250));
    assert_eq!(config.runtime_request_timeout, Duration::from_secs(120), "zero is the default");
    assert_eq!((config.gc.high, config.gc.low, config.status_max_images), (90, 0, 0), "zeros that mean something");
    assert_eq!(config.gc.min_age.as_secs(), 120, "one that does not");
    assert_eq!(setting("evictionHard").shown(&config), "imagefs.available<20%,memory.available<100Mi,pid.available<5%");
    let socket = Some("unix:///run/containerd/containerd.sock");
    assert_eq!(config.container_runtime_endpoint.as_deref(), socket);
    assert_eq!(config.image_service_endpoint.as_deref(), socket, "the kubelet's images are where its containers are");
    let [note, constants] = config.notes.as_slice() else { panic!("two lines: {:?}", config.notes) };
    assert!(
        constants.ends_with(": staticPodURLHeader (staticPodURL is fetched without further headers)"),
        "{constants}"
    );
    assert!(!constants.contains("s3cret"), "{constants}");
    assert!(
        note.ends_with(
            "kubelet.yaml: passed over, as it does not concern imagelet: authentication, cgroupDriver, \
             evictionHard.memory.available, evictionHard.pid.available, fileCheckFrequency, logging, memorySwap, \
             shutdownGracePeriodByPodPriority"
        ),
        "{note}"
    );
    assert_eq!(config.pods.cluster_dns, ["10.96.0.10".parse::<std::net::IpAddr>().expect("an address")]);
    assert_eq!(config.pods.longest_restart_delay, Duration::from_secs(90));
    assert_eq!((&config.pods.resolv_conf, config.pods.manifests.is_some()), (&None, true));
    assert_eq!(config.pods.url.as_deref(), Some("http://config/pods"));
    assert!(config.origins["maxPods"].to_string().ends_with("kubelet.yaml:17"), "{}", config.origins["maxPods"]);
    assert!(!config.origins.contains_key("runtimeRequestTimeout"));
}

#[test]
fn fields_without_a_setting_of_their_own_keep_their_meaning() {
    let hard = "evictionHard: {imagefs.available: 1Gi}\n";
    let shown = |text: &str| setting("evictionHard").shown(&load(text).expect("taken"));
    assert_eq!(shown(hard), "imagefs.available<1Gi");
    assert_eq!(
        shown(&format!("{hard}mergeDefaultEvictionSettings: true\n")),
        "imagefs.available<1Gi,imagefs.inodesFree<5%,nodefs.available<10%,nodefs.inodesFree<5%"
    );
    assert_eq!(load("nodeStatusMaxImages: -1\n").expect("taken").status_max_images, -1);
    for (text, want) in [
        (
            "nodeStatusMaxImages: -2\n",
            "invalid configuration: nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater (kubelet.yaml:3)",
        ),
        (
            "nodeStatusMaxImages: all\n",
            "configuration kubelet.yaml:3: nodeStatusMaxImages: \"all\" is not allowed, must be a whole number",
        ),
        (
            "mergeDefaultEvictionSettings: 1\n",
            "configuration kubelet.yaml:3: mergeDefaultEvictionSettings: 1 is not allowed, must be true or false",
        ),
    ] {
        assert_eq!(load(text).expect_err(text), want);
    }
}

#[test]
fn json_is_taken_too() {
    let text = format!("{{\"apiVersion\": \"{API_VERSION}\",\n\"kind\": \"{KIND}\",\n\"maxPods\": 7}}");
    let config = load_with(&text, "", Vec::new()).expect("taken");
    assert_eq!(config.max_pods, 7);
    assert!(config.notes.is_empty());
}

#[test]
fn it_counts_less_than_everything_else() {
    let kubelet =
        format!("{HEAD}maxPods: 1\nregistryBurst: 2\nregistryPullQPS: 3\nimageServiceEndpoint: unix:///k.sock\n");
    let given = vec![
        (setting("registryBurst"), Origin::Variable("IMAGELET_REGISTRY_BURST"), "20".to_owned()),
        (setting("imageServiceEndpoint"), Origin::Flag("image-endpoint"), String::new()),
    ];
    let config = load_with(&kubelet, "registryPullQPS: 30\n", given).expect("taken");
    assert_eq!((config.max_pods, config.pulls.burst, config.pulls.qps), (1, Some(20), Some(30)));
    assert_eq!(config.image_service_endpoint, None, "the empty endpoint is the embedded store");
    let from = |field: &str| config.origins[field].to_string();
    assert!(from("maxPods").ends_with("kubelet.yaml:3"), "{}", from("maxPods"));
    assert!(from("registryPullQPS").ends_with("own.yaml:4"), "{}", from("registryPullQPS"));
    assert_eq!(from("registryBurst"), "IMAGELET_REGISTRY_BURST");
    assert!(config.kubelet_config.is_some_and(|path| path.is_absolute() && path.ends_with("kubelet.yaml")));
}

#[test]
fn a_flag_names_the_file_as_well() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), format!("{HEAD}maxPods: 9\n")).expect("written");
    let path = file.path().display().to_string();
    let given = vec![(setting("kubeletConfig"), Origin::Flag("kubelet-config"), path)];
    let config = load_with("", "", given).expect("the file of the flag, not the one of our file");
    assert_eq!(config.max_pods, 9);
}

#[test]
fn the_gate_of_verification() {
    let config = load("featureGates: {KubeletEnsureSecretPulledImages: false, ImageVolume: true}\n").expect("taken");
    assert_eq!(config.verification.policy, "NeverVerify");
    assert!(config.notes.is_empty());
    let config = load("featureGates: {KubeletEnsureSecretPulledImages: true}\n").expect("taken");
    assert_eq!(config.verification.policy, "NeverVerifyPreloadedImages");
    let error = load(
        "imagePullCredentialsVerificationPolicy: AlwaysVerify\nfeatureGates: {KubeletEnsureSecretPulledImages: false}\n",
    );
    assert_eq!(
        error.expect_err("refused"),
        "invalid configuration: `imagePullCredentialsVerificationPolicy` must not be set if \
         KubeletEnsureSecretPulledImages feature gate is not enabled (kubelet.yaml:3)"
    );
}

#[test]
fn what_is_refused() {
    let cases = [
        (
            "registryPullQps: 3\n",
            "configuration kubelet.yaml:3: KubeletConfiguration has no field \"registryPullQps\"; did you mean \
             registryPullQPS?",
        ),
        (
            "maxParalelImagePulls: 3\n",
            "configuration kubelet.yaml:3: KubeletConfiguration has no field \"maxParalelImagePulls\"; did you mean \
             maxParallelImagePulls?",
        ),
        ("frobnicate: 3\n", "configuration kubelet.yaml:3: KubeletConfiguration has no field \"frobnicate\""),
        (
            "authentication:\n  webhook:\n    enable: true\n",
            "configuration kubelet.yaml:5: KubeletConfiguration has no field \"authentication.webhook.enable\"; did you \
             mean authentication.webhook.enabled?",
        ),
        (
            "reservedMemory:\n- numaNode: 0\n- numaNod: 0\n",
            "configuration kubelet.yaml:5: KubeletConfiguration has no field \"reservedMemory.numaNod\"; did you mean \
             reservedMemory.numaNode?",
        ),
        ("tracing: 3\n", "configuration kubelet.yaml:3: tracing: a map was expected, not 3"),
        (
            "registerWithTaints: {}\n",
            "configuration kubelet.yaml:3: registerWithTaints: a list was expected, not a map",
        ),
        ("maxPods: many\n", "kubelet.yaml:3: maxPods: \"many\" is not allowed, must be a whole number"),
        (
            "maxPods: -1\n",
            "invalid configuration: maxPods (--max-pods) -1 must not be a negative number (kubelet.yaml:3)",
        ),
        (
            "maxParallelImagePulls: 0\n",
            "invalid configuration: maxParallelImagePulls 0 must be a positive number (kubelet.yaml:3)",
        ),
        (
            "featureGates: {KubeletEnsureSecretPulledImages: maybe}\n",
            "configuration kubelet.yaml:3: featureGates.KubeletEnsureSecretPulledImages: \"maybe\" is not allowed, must be \
             true or false",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(load(text).expect_err(text), want);
    }
    let error = load_with("apiVersion: v1\nkind: Pod\n", "", Vec::new()).expect_err("refused");
    assert_eq!(
        error,
        "configuration kubelet.yaml:1: apiVersion: \"v1\" is not allowed, must be kubelet.config.k8s.io/v1beta1"
    );
    let missing = Path::new("/nowhere/kubelet.yaml");
    let given = vec![(setting("kubeletConfig"), Origin::Flag("kubelet-config"), missing.display().to_string())];
    let error = load_with("", "", given).expect_err("refused");
    assert!(error.starts_with("read configuration /nowhere/kubelet.yaml: No such file"), "{error}");
}
