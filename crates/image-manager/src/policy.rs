//! [`PullPolicy`], and what the API server fills in where a manifest has none.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PullPolicy {
    /// Pulled every time, so that the registry decides who may use the image and what a tag means.
    Always,
    /// Pulled when it is absent.
    IfNotPresent,
    /// Never pulled: it must be present by other means.
    Never,
}

/// A policy of this name does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown pull policy {0:?}: it is one of Always, IfNotPresent and Never")]
pub struct UnknownPullPolicy(pub String);

impl PullPolicy {
    /// The policy of an image for which none is given: `Always` for the tag `latest`, given or by default, otherwise
    /// `IfNotPresent`. A digest alone is `IfNotPresent`; with `latest` and a digest the tag decides, as in the API server.
    /// A text that is not an image name is `IfNotPresent`; it fails later, because of its name.
    #[must_use]
    pub fn default_for(image: &str) -> Self {
        match oci::parse_image_name(image) {
            Ok(name) if name.tag == "latest" => Self::Always,
            _ => Self::IfNotPresent,
        }
    }

    /// The name as manifests write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl fmt::Display for PullPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PullPolicy {
    type Err = UnknownPullPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPullPolicy> {
        [Self::Always, Self::IfNotPresent, Self::Never]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| UnknownPullPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_api_server() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let cases = [
            ("busybox".to_owned(), PullPolicy::Always),
            ("busybox:latest".to_owned(), PullPolicy::Always),
            ("localhost:5000/busybox".to_owned(), PullPolicy::Always),
            ("busybox:1.37".to_owned(), PullPolicy::IfNotPresent),
            ("busybox:latest-glibc".to_owned(), PullPolicy::IfNotPresent),
            (format!("busybox@{digest}"), PullPolicy::IfNotPresent),
            (format!("busybox:1.37@{digest}"), PullPolicy::IfNotPresent),
            (format!("busybox:latest@{digest}"), PullPolicy::Always),
            ("NOT A NAME".to_owned(), PullPolicy::IfNotPresent),
        ];
        for (image, want) in cases {
            assert_eq!(PullPolicy::default_for(&image), want, "{image}");
        }
    }

    #[test]
    fn names_are_exact() {
        for policy in [PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(serde_json::to_string(&policy).expect("a word"), format!("\"{policy}\""));
        }
        for text in ["", "always", "Sometimes", " Never"] {
            assert_eq!(text.parse::<PullPolicy>(), Err(UnknownPullPolicy(text.to_owned())));
        }
    }
}
