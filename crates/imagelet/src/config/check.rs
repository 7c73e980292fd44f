//! Validation across settings, and the kubelet's own validation after all files are read, with its wording. Pure. Called by
//! [`super::Config::load`].

use image_manager::Allowlist;
use image_service::{PullEngine, UnsupportedImages};

use super::eviction;
use super::form::{MOST, POLICIES};
use super::model::Config;
use super::spelling::go_duration;

/// Returns all errors, one line each, with the place where the value was set.
pub(super) fn findings(config: &Config) -> Vec<String> {
    let mut findings = Vec::new();
    let mut found = |field: &str, message: String| {
        let origin = config.origins.get(field).map(|origin| format!(" ({origin})")).unwrap_or_default();
        findings.push(format!("invalid configuration: {message}{origin}"));
    };
    let negative = "must not be a negative number";
    if config.max_pods < 0 {
        found("maxPods", format!("maxPods (--max-pods) {} {negative}", config.max_pods));
    }
    if let Some(burst @ ..0) = config.pulls.burst {
        found("registryBurst", format!("registryBurst (--registry-burst) {burst} {negative}"));
    }
    if let Some(qps @ ..0) = config.pulls.qps {
        found("registryPullQPS", format!("registryPullQPS (--registry-qps) {qps} {negative}"));
    }
    for (field, value) in [
        ("registryPullQPS", config.pulls.qps),
        ("registryBurst", config.pulls.burst),
        ("maxParallelImagePulls", config.pulls.max_parallel),
        ("maxPods", Some(config.max_pods)),
        ("nodeStatusMaxImages", Some(config.status_max_images)),
    ] {
        if let Some(value) = value.filter(|value| *value > MOST) {
            found(field, format!("{field} {value} must not be larger than {MOST}"));
        }
    }
    match (config.pulls.serialize, config.pulls.max_parallel) {
        (_, Some(number @ ..=0)) => {
            found("maxParallelImagePulls", format!("maxParallelImagePulls {number} must be a positive number"));
        }
        (Some(true), Some(2..)) => found(
            "maxParallelImagePulls",
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to \
             false"
                .to_owned(),
        ),
        _ => {}
    }
    verification(config, &mut found);
    status_page(config, &mut found);
    collection(config, &mut found);
    if config.fleet.in_cluster && config.fleet.kubeconfig.is_some() {
        found("fleet.inCluster", "fleet.inCluster and fleet.kubeconfig are two identities: set one of them".to_owned());
    }
    if config.admin_socket.is_none() {
        let opened = [("adminGroup", config.admin_group.is_some()), ("adminOthersRead", config.admin_others_read)];
        for (name, _) in opened.into_iter().filter(|(_, is_set)| *is_set) {
            let why = "only the owner may enter the root, where the socket is otherwise";
            found(name, format!("{name} is set and adminSocket is not: {why}; /run/imagelet/admin.sock is usual"));
        }
    }
    if config.engine.unsupported_images == UnsupportedImages::Runtime {
        let name = "unsupportedImages";
        if config.engine.signature_policy.is_some() {
            found(name, format!("{name} is runtime and signaturePolicy is set: the runtime would not ask the policy"));
        }
        if config.pull_engine == PullEngine::Embedded {
            found(name, format!("{name} is runtime and pullEngine is embedded: the runtime would pull"));
        }
    }
    let (one, other) = ("imageCredentialProviderConfig", "imageCredentialProviderBinDir");
    match (&config.credentials.provider_config, &config.credentials.provider_bin_dir) {
        (Some(_), None) => found(one, format!("{one} is set and {other} is not: the providers' programs lie there")),
        (None, Some(_)) => found(other, format!("{other} is set and {one} is not: it says which providers there are")),
        _ => {}
    }
    findings
}

/// Validates the readers of the status page.
fn status_page(config: &Config, found: &mut impl FnMut(&str, String)) {
    let page = &config.status_page;
    if let Some(address) = page.address.filter(|address| !address.ip().is_loopback())
        && page.token_file.is_none()
    {
        let message =
            format!("statusAddress {address} is no loopback address: statusTokenFile must say who may read the page");
        found("statusAddress", message);
    }
}

/// Validates thresholds, ages and numbers of garbage collection.
fn collection(config: &Config, found: &mut impl FnMut(&str, String)) {
    let (high, low) = (config.gc.high, config.gc.low);
    let (high_is, low_is) = (
        format!("imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"),
        format!("imageGCLowThresholdPercent (--image-gc-low-threshold) {low}"),
    );
    // If both are set, the lower one is reported, since the kubelet names the lower one first.
    let low_field = |config: &Config| match config.origins.contains_key("imageGCLowThresholdPercent") {
        true => "imageGCLowThresholdPercent",
        false => "imageGCHighThresholdPercent",
    };
    if !(0..=100).contains(&high) {
        found("imageGCHighThresholdPercent", format!("{high_is} must be between 0 and 100, inclusive"));
    }
    if !(0..=100).contains(&low) {
        found("imageGCLowThresholdPercent", format!("{low_is} must be between 0 and 100, inclusive"));
    }
    if low >= high {
        found(low_field(config), format!("{low_is} must be less than {high_is}"));
    }
    let (least, most) = (config.gc.min_age, config.gc.max_age);
    if least.is_negative() {
        found("imageMinimumGCAge", format!("imageMinimumGCAge {} must not be negative", go_duration(least)));
    }
    if most.is_negative() {
        found("imageMaximumGCAge", format!("imageMaximumGCAge {} must not be negative", go_duration(most)));
    }
    if most.is_positive() && most <= least {
        let (most, least) = (go_duration(most), go_duration(least));
        let message = format!("imageMaximumGCAge {most} must be greater than imageMinimumGCAge {least}");
        found("imageMaximumGCAge", message);
    }
    if config.status_max_images < -1 {
        let number = config.status_max_images;
        let message = format!("nodeStatusMaxImages (--node-status-max-images) {number} must be -1 or greater");
        found("nodeStatusMaxImages", message);
    }
    for message in eviction::findings(&config.eviction) {
        found("evictionHard", message);
    }
}

/// Validates `imagePullCredentialsVerificationPolicy` and its allowlist.
fn verification(config: &Config, found: &mut impl FnMut(&str, String)) {
    let (policy, allowlist) = (&config.verification.policy, &config.verification.allowlist);
    let [a, b, c, d] = POLICIES;
    if !POLICIES.contains(&policy.as_str()) {
        let field = "imagePullCredentialsVerificationPolicy";
        found(
            field,
            format!("option {policy:?} specified for {field}. Valid options are {a:?}, {b:?}, {c:?} or {d:?}"),
        );
    }
    let field = "preloadedImagesVerificationAllowlist";
    if !allowlist.is_empty() && policy != c {
        let message = format!("can't set `{field}` if `imagePullCredentialsVerificationPolicy` is not {c:?}");
        found(field, message);
    } else if let Err(error) = Allowlist::parse(allowlist) {
        found(field, format!("invalid image pattern in `{field}`: {error}"));
    }
}
