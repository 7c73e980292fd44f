//! Converts a kubelet's configuration into one of ours: the fields that settings declare as the kubelet's, and the reasons why others are
//! left out. Decides nothing else; reads one file. Called by `imagelet config migrate`.

use std::path::Path;

use serde_json::Value;

use super::super::error::ConfigError;
use super::super::model::Config;
use super::super::setting::{SETTINGS, Setting};
use super::super::{check, eviction, show};
use super::{STATUS_IMAGES, apply};
use crate::environment::Environment;

/// A configuration of ours, and the kubelet's fields that are not in it.
#[derive(Debug)]
pub(crate) struct Migration {
    /// The file.
    pub(crate) document: Value,
    /// Fields with the reason why they are left out.
    pub(crate) left_out: Vec<(String, &'static str)>,
}

/// Returns the configuration of a kubelet's file, or all of its errors.
pub(crate) fn migrate(environment: &Environment, path: &Path) -> Result<Migration, ConfigError> {
    let mut config = Config::defaults(environment);
    let mut errors = Vec::new();
    let unused = apply(&mut config, path, &mut errors);
    let findings = check::findings(&config);
    if !findings.is_empty() {
        errors.push(ConfigError::Invalid(findings));
    }
    ConfigError::all(errors)?;
    let mut left_out: Vec<_> = unused.passed_over.into_iter().map(|name| (name.clone(), reason(&name))).collect();
    left_out.extend(unused.zero.into_iter().map(|name| (name, "it is zero, which stands for the default")));
    left_out.extend(unused.constants);
    if config.origins.contains_key(STATUS_IMAGES) {
        left_out.push((STATUS_IMAGES.to_owned(), "imagelet takes it from a kubelet's file alone (`kubeletConfig`)"));
    }
    let taken = SETTINGS.iter().filter(|setting| config.origins.contains_key(setting.field));
    left_out.sort();
    let foreign = eviction::passed_over(&config.eviction);
    let fields = config.fields();
    let value = |setting: &Setting| match setting.value_in(&fields) {
        Value::Object(mut map) => {
            map.retain(|signal, _| !foreign.contains(&signal.as_str()));
            Value::Object(map)
        }
        value => value,
    };
    let document = show::document_of(taken.into_iter().map(|setting| (setting.field, value(setting))));
    Ok(Migration { document, left_out })
}

/// Reasons, each with the prefixes of the field names that it applies to.
const REASONS: &[(&str, &[&str])] = &[
    (
        "it is about the kubelet's server; that of imagelet has `port` and `clientCAFile`",
        &[
            "address",
            "authentication",
            "authorization",
            "enableContention",
            "enableDebug",
            "enableProfiling",
            "enableServer",
            "enableSystemLog",
            "healthz",
            "readOnlyPort",
            "serverTLS",
            "streaming",
            "tls",
        ],
    ),
    (
        "imagelet takes the place of no part of the kubelet that shares out CPUs, memory, devices or swap, or reserves them",
        &[
            "cgroup",
            "cpu",
            "draManager",
            "enforceNode",
            "failCgroup",
            "failSwap",
            "kubeReserved",
            "kubeletCgroups",
            "localStorage",
            "memory",
            "podPids",
            "podsPerCore",
            "qosReserved",
            "reserved",
            "singleProcess",
            "systemCgroups",
            "systemReserved",
            "topology",
        ],
    ),
    ("imagelet knows hard thresholds of disks alone", &["eviction", "kernelMemcg"]),
    ("it is about the kubelet's own log and traces", &["logging", "tracing", "showHidden"]),
    (
        "it is about the kubelet's connection to the API server; imagelet's is in docs/cluster.md",
        &["configMapAndSecret", "contentType", "event", "kubeAPI", "node", "registerNode", "rotateCertificates"],
    ),
    (
        "imagelet has a default of its own for it, and writes each taint as one text (docs/cluster.md)",
        &["registerWithTaints"],
    ),
    ("imagelet does not delay the shutdown of the machine", &["shutdown"]),
];

fn reason(name: &str) -> &'static str {
    let fits = |(_, starts): &&(&str, &[&str])| starts.iter().any(|start| name.starts_with(start));
    REASONS.iter().find(fits).map_or("imagelet has nothing that it would change", |(reason, _)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NamedFiles;
    use crate::config::setting::of_field;

    #[test]
    fn the_new_file_says_the_same_as_the_old_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let (theirs, ours) = (directory.path().join("kubelet.yaml"), directory.path().join("ours.yaml"));
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\nimageGCHighThresholdPercent: 90\n\
                    imageMinimumGCAge: 0s\nevictionHard: {memory.available: 100Mi, imagefs.available: 5%}\n\
                    staticPodPath: manifests\nstaticPodURLHeader: {Authorization: [s3cret]}\nnodeStatusMaxImages: 7\ncgroupDriver: systemd\n\
                    crashLoopBackOff: {maxContainerRestartPeriod: 60s}\nvolumePluginDir: /v\n\
                    featureGates: {KubeletEnsureSecretPulledImages: false}\n";
        std::fs::write(&theirs, text).expect("written");
        let environment = Environment::default();
        let migration = migrate(&environment, &theirs).expect("migrated");
        let written = serde_saphyr::to_string(&migration.document).expect("YAML");
        assert!(!written.contains("s3cret"), "{written}");
        std::fs::write(&ours, &written).expect("written");
        let new = Config::load(&environment, &NamedFiles::of(&ours), Vec::new()).expect("taken");
        let kubelet = of_field("kubeletConfig").expect("a setting");
        let given = vec![(kubelet, crate::config::Origin::Flag("kubelet-config"), theirs.display().to_string())];
        let none = NamedFiles::of(&directory.path().join("empty.yaml"));
        std::fs::write(
            directory.path().join("empty.yaml"),
            format!("apiVersion: {}\nkind: {}\n", super::super::super::API_VERSION, super::super::super::KIND),
        )
        .expect("written");
        let old = Config::load(&environment, &none, given).expect("taken");
        for setting in SETTINGS.iter().filter(|setting| !["kubeletConfig", "evictionHard"].contains(&setting.field)) {
            assert_eq!(setting.show(&new), setting.show(&old), "{}\n{written}", setting.field);
        }
        assert_eq!(migration.document["evictionHard"], serde_json::json!({"imagefs.available": "5%"}));
        let left: Vec<&str> = migration.left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            left,
            [
                "cgroupDriver",
                "evictionHard.memory.available",
                "imageMinimumGCAge",
                "nodeStatusMaxImages",
                "staticPodURLHeader",
                "volumePluginDir"
            ]
        );
        assert!(migration.left_out[1].1.contains("hard thresholds of disks"), "{:?}", migration.left_out);
    }
}
