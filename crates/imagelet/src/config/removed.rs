//! Settings that no longer exist, each with the rule that replaced it. A configuration, a variable or a flag with such a name is
//! refused with this sentence; a kubelet's configuration file may still have the kubelet's fields among them, and a note names the
//! constant if the file asks for another value. Called by [`super::Config::load`], [`super::kubelet`] and [`super::names`].

use std::time::Duration;

use super::value::Raw;

/// A setting that was removed.
pub(crate) struct Removed {
    /// Field of the configuration file.
    pub(crate) field: &'static str,
    /// The flag, without dashes.
    pub(crate) flag: &'static str,
    /// Sentence about the present rule.
    pub(crate) now: &'static str,
    /// The constant, for a field of KubeletConfiguration.
    constant: Option<Constant>,
}

/// Value that replaced a field of KubeletConfiguration.
#[derive(Clone, Copy)]
enum Constant {
    Duration(Duration),
    Count(i64),
    /// No value: the field is not supported.
    Unset,
}

const fn own(field: &'static str, flag: &'static str, now: &'static str) -> Removed {
    Removed { field, flag, now, constant: None }
}

const fn kubelets(field: &'static str, flag: &'static str, now: &'static str, constant: Constant) -> Removed {
    Removed { field, flag, now, constant: Some(constant) }
}

const fn seconds(seconds: u64) -> Constant {
    Constant::Duration(Duration::from_secs(seconds))
}

const PROGRESS: &str = "a pull is given up when it makes no progress for imagePullProgressDeadline";

const CERTIFICATE: &str = "the files status-page/tls.crt and status-page/tls.key in the root are the status page's certificate and key, if they exist";

/// The settings that were removed.
pub(crate) const REMOVED: &[Removed] = &[
    own(
        "checkDiskSpace",
        "check-disk-space",
        "a pull whose compressed layers do not fit on the disk is always refused",
    ),
    own("containerGC.maximum", "maximum-dead-containers", "the newest ended instance of each container stays"),
    own(
        "containerGC.maximumPerContainer",
        "maximum-dead-containers-per-container",
        "the newest ended instance of each container stays",
    ),
    own("containerGC.minimumAge", "minimum-container-ttl-duration", "ended containers have no minimum age"),
    kubelets("containerLogMaxWorkers", "container-log-max-workers", "one log is rotated at a time", Constant::Count(1)),
    kubelets(
        "containerLogMonitorInterval",
        "container-log-monitor-interval",
        "the sizes of logs are checked every 10s",
        seconds(10),
    ),
    own(
        "credentials.anonymousFallback",
        "credential-anonymous-fallback",
        "a pull whose credentials were all refused fails",
    ),
    own(
        "credentials.providerTimeout",
        "credential-provider-timeout",
        "a credential provider has 1m to answer, and a docker credential helper 30s",
    ),
    kubelets("httpCheckFrequency", "http-check-frequency", "staticPodURL is fetched every 20s", seconds(20)),
    own(
        "imageGC.minimumCopies",
        "image-gc-minimum-copies",
        "imageGC.keep and `imagelet pin` name the images that stay",
    ),
    own("imageGC.onFullDisk", "image-gc-on-full-disk", "a pull that runs out of space always has images collected"),
    own("imageGC.order", "image-gc-order", "images whose removal does the least harm are always removed first"),
    own(
        "imageGC.protectPrePulled",
        "image-gc-protect-pre-pulled",
        "an image that was pulled ahead of its use is collected after all others for 1h",
    ),
    own("imagePullBackOff.max", "image-pull-back-off-max", "a pod waits for 5m at most"),
    own("imagePullDeadline", "image-pull-deadline", PROGRESS),
    own("imagePullMinimumRate", "image-pull-minimum-rate", PROGRESS),
    own("limits.imageBytes", "limit-image-bytes", "the limit of an image is always 256Gi"),
    own("limits.inflateRatio", "limit-inflate-ratio", "the limit of a layer's inflation is always 1500"),
    own("limits.layerBytes", "limit-layer-bytes", "the limit of a layer is always 64Gi"),
    own("limits.layerEntries", "limit-layer-entries", "the limit of a layer is always 2500000 entries"),
    own(
        "maxParallelImagePullsPerRegistry",
        "max-parallel-image-pulls-per-registry",
        "maxParallelImagePulls limits the pulls from all registries together",
    ),
    own(
        "maxParallelLayers",
        "max-parallel-layers",
        "four layers of an image are fetched at the same time, within pullMemory",
    ),
    own(
        "mergeDefaultEvictionSettings",
        "merge-default-eviction-settings",
        "evictionHard names every signal that has a threshold",
    ),
    own(
        "nodeStatusMaxImages",
        "node-status-max-images",
        "a node's status names its 50 largest images; a kubelet's file may set another number",
    ),
    own("parallelRanges", "parallel-ranges", "large layers are fetched over several connections where that is faster"),
    own("registryPullWait", "registry-pull-wait", "a pull that registryPullQPS delays waits for 30s at most"),
    own(
        "resumeTransfers",
        "resume-transfers",
        "an interrupted pull leaves its complete layers, and of the others what came over a slow line",
    ),
    own(
        "serviceAccountTokenDirectory",
        "service-account-token-dir",
        "tokens are in the directory tokens of secretsDirectory",
    ),
    own("shareFiles", "share-files", "images share whole layers only"),
    own(
        "sharedContent",
        "shared-content",
        "a pull uses layers of another repository after its own registry confirmed each",
    ),
    kubelets(
        "staticPodURLHeader",
        "manifest-url-header",
        "staticPodURL is fetched without further headers",
        Constant::Unset,
    ),
    own("statusClientCAFile", "status-client-ca-file", "statusTokenFile has the token of the status page's readers"),
    own("statusTLSCertFile", "status-tls-cert-file", CERTIFICATE),
    own("statusTLSPrivateKeyFile", "status-tls-private-key-file", CERTIFICATE),
    kubelets("syncFrequency", "sync-frequency", "a pod is synced every 1m without an event", seconds(60)),
];

/// Returns the removed setting of a field.
pub(super) fn of_field(field: &str) -> Option<&'static Removed> {
    REMOVED.iter().find(|removed| removed.field == field)
}

impl Removed {
    /// Returns the environment variable of the former flag.
    pub(super) fn variable(&self) -> String {
        format!("IMAGELET_{}", self.flag.replace('-', "_").to_uppercase())
    }

    /// Returns true for a field that KubeletConfiguration has.
    pub(super) fn is_kubelets(&self) -> bool {
        self.constant.is_some()
    }

    /// Returns true if a kubelet's file asks for the value that is the constant.
    pub(super) fn agrees(&self, value: Raw<'_>) -> bool {
        match self.constant {
            Some(Constant::Duration(constant)) => value.is_duration(constant),
            Some(Constant::Count(constant)) => value.is_number(constant),
            Some(Constant::Unset) | None => false,
        }
    }
}

/// Returns the line for a name that was removed.
pub(super) fn refusal(name: &str, removed: &Removed) -> String {
    format!("{name} was removed: {}", removed.now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::setting::SETTINGS;

    #[test]
    fn removed_settings_are_sorted_and_no_setting_has_their_names() {
        assert!(REMOVED.is_sorted_by_key(|removed| removed.field));
        for removed in REMOVED {
            let has_name = |setting: &&crate::config::setting::Setting| {
                setting.field == removed.field || setting.flag == removed.flag
            };
            assert!(!SETTINGS.iter().any(|setting| has_name(&setting)), "{}", removed.field);
        }
        assert_eq!((SETTINGS.len(), REMOVED.len()), (75, 35));
    }
}
