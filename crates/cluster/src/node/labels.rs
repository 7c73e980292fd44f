//! [`Label`]: labels that a node gives itself, checked as the kubelet checks `--node-labels`, and those that every node has. Pure.
//! Called by the configuration and by [`super::register`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Labels below `kubernetes.io` and `k8s.io` that a node may set of itself, by the kubelet's list.
const KUBELET_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
/// Prefixes of further ones.
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// A label, written `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// A name of up to 63 characters; in front of it, if there is one, a DNS domain and a slash.
    pub key: String,
    /// Empty, or up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at each end.
    pub value: String,
}

/// Reason for which a text is not a label that a node may have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Without `=`.
    #[error("{0}: a label is written KEY=VALUE")]
    NoValue(String),
    /// The key is no qualified name, as Kubernetes wants keys of labels.
    #[error("{0}: this is no name of a label")]
    Key(String),
    /// The value is none that a label may have.
    #[error("{key}: {value:?} is no value of a label")]
    Value {
        /// Key of the label.
        key: String,
        /// Refused value.
        value: String,
    },
    /// The key is below `kubernetes.io` or `k8s.io`, and not in the list that the kubelet allows for `--node-labels`.
    #[error("{0}: a node may not give itself this label of kubernetes.io or k8s.io")]
    Reserved(String),
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let (key, value) = text.split_once('=').ok_or_else(|| LabelError::NoValue(text.to_owned()))?;
        if !is_qualified_name(key) {
            return Err(LabelError::Key(key.to_owned()));
        }
        if !value.is_empty() && !is_name(value) {
            return Err(LabelError::Value { key: key.to_owned(), value: value.to_owned() });
        }
        if is_reserved(key) {
            return Err(LabelError::Reserved(key.to_owned()));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// Returns true for up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at each end.
pub(super) fn is_name(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| ends(c) || matches!(c, '-' | '_' | '.');
    text.len() <= 63 && text.starts_with(ends) && text.ends_with(ends) && text.chars().all(inner)
}

/// Returns true for a name, optionally below a domain and a slash.
pub(super) fn is_qualified_name(text: &str) -> bool {
    let part = |part: &str| {
        let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(ends) && part.ends_with(ends) && part.chars().all(|c| ends(c) || c == '-')
    };
    match text.split_once('/') {
        Some((domain, name)) => domain.len() <= 253 && domain.split('.').all(part) && is_name(name),
        None => is_name(text),
    }
}

/// Returns true for a key below `kubernetes.io` or `k8s.io` that a node may not set.
fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let below = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let ours = KUBELET_LABELS.contains(&key)
        || key == "failure-domain.beta.kubernetes.io/region"
        || KUBELET_PREFIXES.iter().any(|prefix| below(prefix));
    (below("kubernetes.io") || below("k8s.io")) && !ours
}

/// Returns the labels of a Node at its creation: those that every node has, overridden by those of the configuration.
pub(super) fn initial(hostname: &str, own: &[Label]) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> =
        defaults(hostname).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    labels.extend(own.iter().map(|label| (label.key.clone(), label.value.clone())));
    labels
}

fn defaults(hostname: &str) -> [(&'static str, String); 5] {
    let (os, arch) = ("linux".to_owned(), architecture().to_owned());
    [
        ("beta.kubernetes.io/arch", arch.clone()),
        ("beta.kubernetes.io/os", os.clone()),
        ("kubernetes.io/arch", arch),
        ("kubernetes.io/hostname", hostname.to_owned()),
        ("kubernetes.io/os", os),
    ]
}

/// Returns the labels to set on an existing Node: as in the kubelet, only differing well-known ones.
pub(super) fn missing(
    initial: &BTreeMap<String, String>,
    there: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let known = |key: &str| KUBELET_LABELS.contains(&key) || key == "failure-domain.beta.kubernetes.io/region";
    let differs = |key: &str, value: &str| there.get(key).is_none_or(|old| old != value);
    let chosen = initial.iter().filter(|(key, value)| known(key) && differs(key, value));
    chosen.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the architecture as Go names it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked_as_by_the_kubelet() {
        for (text, want) in [
            ("a=b", Ok("a=b")),
            ("rack.example/row-1=7_x.y", Ok("rack.example/row-1=7_x.y")),
            ("empty=", Ok("empty=")),
            ("topology.kubernetes.io/zone=a", Ok("topology.kubernetes.io/zone=a")),
            ("node.kubernetes.io/x=a", Ok("node.kubernetes.io/x=a")),
            ("foo.kubelet.kubernetes.io/x=a", Ok("foo.kubelet.kubernetes.io/x=a")),
            ("mykubernetes.io/x=a", Ok("mykubernetes.io/x=a")),
            ("a", Err(LabelError::NoValue("a".into()))),
            ("-a=b", Err(LabelError::Key("-a".into()))),
            ("A.example/x=b", Err(LabelError::Key("A.example/x".into()))),
            ("a/b/c=d", Err(LabelError::Key("a/b/c".into()))),
            ("a=b c", Err(LabelError::Value { key: "a".into(), value: "b c".into() })),
            ("node-role.kubernetes.io/x=", Err(LabelError::Reserved("node-role.kubernetes.io/x".into()))),
            (
                "node-restriction.kubernetes.io/x=1",
                Err(LabelError::Reserved("node-restriction.kubernetes.io/x".into())),
            ),
            ("k8s.io/x=1", Err(LabelError::Reserved("k8s.io/x".into()))),
        ] {
            let got = text.parse::<Label>().map(|label| label.to_string());
            assert_eq!(got, want.map(str::to_owned), "{text}");
        }
        let long = format!("{}=x", "a".repeat(64));
        assert!(long.parse::<Label>().is_err());
    }

    #[test]
    fn a_new_node_has_the_usual_labels_and_its_own() {
        let own = ["zone=a", "kubernetes.io/os=plan9"].map(|text| text.parse().expect("a label"));
        let labels = initial("host-1", &own);
        let arch = architecture();
        let want = [
            ("beta.kubernetes.io/arch", arch),
            ("beta.kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", arch),
            ("kubernetes.io/hostname", "host-1"),
            ("kubernetes.io/os", "plan9"),
            ("zone", "a"),
        ];
        assert_eq!(labels.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>(), want);
    }

    #[test]
    fn an_existing_node_gets_well_known_labels_only() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
        for (name, initial, there, want) in [
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/make sure default labels exist",
                map(&[(host, "h"), (zone, "z")]),
                map(&[("other", "x")]),
                map(&[(host, "h"), (zone, "z")]),
            ),
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/not panic when existing node has nil labels",
                map(&[(host, "h")]),
                map(&[]),
                map(&[(host, "h")]),
            ),
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/make sure default labels are up to date",
                map(&[(host, "new")]),
                map(&[(host, "old")]),
                map(&[(host, "new")]),
            ),
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/make sure existing labels do not get deleted",
                map(&[(host, "h")]),
                map(&[(host, "h"), ("please-persist", "foo")]),
                map(&[]),
            ),
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/make sure existing labels do not get deleted when initial node has no opinion",
                map(&[]),
                map(&[(host, "h"), (zone, "z"), ("please-persist", "foo")]),
                map(&[]),
            ),
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/backfill required for new stable labels for os/arch/zones/regions/instance-type",
                map(&[
                    (host, "h"),
                    (zone, "z"),
                    ("failure-domain.beta.kubernetes.io/zone", "z"),
                    ("topology.kubernetes.io/region", "r"),
                    ("failure-domain.beta.kubernetes.io/region", "r"),
                    ("node.kubernetes.io/instance-type", "i"),
                    ("beta.kubernetes.io/instance-type", "i"),
                    ("kubernetes.io/os", "linux"),
                    ("beta.kubernetes.io/os", "linux"),
                ]),
                map(&[
                    (host, "h"),
                    ("failure-domain.beta.kubernetes.io/zone", "z"),
                    ("failure-domain.beta.kubernetes.io/region", "r"),
                    ("beta.kubernetes.io/instance-type", "i"),
                    ("beta.kubernetes.io/os", "linux"),
                ]),
                map(&[
                    (zone, "z"),
                    ("topology.kubernetes.io/region", "r"),
                    ("node.kubernetes.io/instance-type", "i"),
                    ("kubernetes.io/os", "linux"),
                ]),
            ),
            (
                "upstream: nodestatus/TestUpdateDefaultLabels/no update needed",
                map(&[(host, "h")]),
                map(&[(host, "h")]),
                map(&[]),
            ),
            (
                "other labels are left alone",
                map(&[(host, "h"), ("x", "new")]),
                map(&[(host, "h"), ("x", "old")]),
                map(&[]),
            ),
        ] {
            assert_eq!(missing(&initial, &there), want, "{name}");
        }
    }
}
