//! [`Platform`]: its normal form, and the order in which a node prefers the manifests of an index.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{Fields, null_as_default, other};

/// Operating system, architecture and variant, as in an image index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// CPU architecture by its Go name, for example `amd64`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub architecture: String,
    /// Operating system by its Go name, for example `linux`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub os: String,
    /// Variant of the architecture, for example `v7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// The reason why a text is no platform.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid platform {0:?}: want os/architecture[/variant], for example linux/arm64")]
pub struct PlatformError(String);

impl Fields for Platform {
    const FIELDS: &'static [&'static str] = &["architecture", "os", "variant"];
}

/// Reads the platform of a descriptor, an object of its own.
pub(crate) fn nested_platform<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Platform>, D::Error> {
    #[derive(Deserialize)]
    struct Nested {
        #[serde(flatten)]
        platform: Platform,
        #[serde(flatten, deserialize_with = "other::<_, Platform>")]
        _other: serde_json::Map<String, serde_json::Value>,
    }
    Ok(Option::<Nested>::deserialize(deserializer)?.map(|nested| nested.platform))
}

impl Platform {
    /// A platform of these three parts; an empty variant is none.
    #[must_use]
    pub fn new(os: &str, architecture: &str, variant: &str) -> Self {
        Self {
            architecture: architecture.into(),
            os: os.into(),
            variant: (!variant.is_empty()).then(|| variant.into()),
        }
    }

    /// The platform that this program was built for. ARM variants are the lowest that the build can run on.
    #[must_use]
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" => ("ppc64le", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Self::new(std::env::consts::OS, architecture, variant)
    }

    /// Normalizes other spellings: `x86_64` is `amd64`, `aarch64` is `arm64`, arm64 without variant is v8 and v8 is not
    /// written, arm without variant is v7, amd64 v1 is amd64.
    #[must_use]
    pub fn normalized(&self) -> Self {
        let os = match self.os.to_ascii_lowercase().as_str() {
            "macos" => "darwin".to_owned(),
            other => other.to_owned(),
        };
        let variant = self.variant.as_deref().unwrap_or_default().to_ascii_lowercase();
        let variant = match variant.as_str() {
            "5" | "6" | "7" | "8" | "9" => format!("v{variant}"),
            _ => variant,
        };
        let (architecture, variant) = match self.architecture.to_ascii_lowercase().as_str() {
            "i386" | "i486" | "i586" | "i686" | "x86" | "386" => ("386".to_owned(), String::new()),
            "x86_64" | "x86-64" | "amd64" => {
                ("amd64".to_owned(), if variant == "v1" { String::new() } else { variant })
            }
            "aarch64" | "arm64" => {
                let variant = if matches!(variant.as_str(), "" | "v8" | "v8.0") { String::new() } else { variant };
                ("arm64".to_owned(), variant)
            }
            "armhf" => ("arm".to_owned(), "v7".to_owned()),
            "armel" => ("arm".to_owned(), "v6".to_owned()),
            "arm" => ("arm".to_owned(), if variant.is_empty() { "v7".to_owned() } else { variant }),
            other => (other.to_owned(), variant),
        };
        Self::new(&os, &architecture, &variant)
    }

    /// The platforms that a node of this one can run, best first: amd64 vN down to v1 and then 386, arm v8 down to v5,
    /// arm64 vX.Y downwards and then arm v8 and below.
    #[must_use]
    pub fn runnable(&self) -> Vec<Self> {
        let me = self.normalized();
        let variant = me.variant.as_deref().unwrap_or_default();
        let make = |arch: &str, variant: &str| Self::new(&me.os, arch, variant);
        let arm_from = |top: u32| (5..=top).rev().map(|v| make("arm", &format!("v{v}"))).collect::<Vec<_>>();
        match me.architecture.as_str() {
            "amd64" => {
                let top: u32 = variant.strip_prefix('v').and_then(|v| v.parse().ok()).unwrap_or(1).clamp(1, 9);
                let mut out: Vec<_> = (2..=top).rev().map(|v| make("amd64", &format!("v{v}"))).collect();
                out.extend([make("amd64", ""), make("386", "")]);
                out
            }
            "arm" => arm_from(variant.strip_prefix('v').and_then(|v| v.parse().ok()).unwrap_or(7).clamp(5, 8)),
            "arm64" => {
                let (major, minor) = match variant.strip_prefix('v').map(|v| v.split_once('.').unwrap_or((v, "0"))) {
                    Some((major, minor)) => (major.parse().unwrap_or(8), minor.parse().unwrap_or(0)),
                    None => (8_u32, 0_u32),
                };
                let mut out = Vec::new();
                let spell = |major: u32, minor: u32| match (major, minor) {
                    (8, 0) => String::new(),
                    (_, 0) => format!("v{major}"),
                    _ => format!("v{major}.{minor}"),
                };
                if major >= 9 {
                    out.extend((0..=minor.min(9)).rev().map(|m| make("arm64", &spell(9, m))));
                    // Armv9.m has everything of Armv8.(m+5).
                    out.extend((0..=(minor + 5).min(9)).rev().map(|m| make("arm64", &spell(8, m))));
                } else {
                    out.extend((0..=minor.min(9)).rev().map(|m| make("arm64", &spell(8, m))));
                }
                out.extend(arm_from(8));
                out
            }
            _ => vec![me.clone()],
        }
    }

    /// The rank of `other` among the platforms that run here: 0 is best, `None` does not run.
    #[must_use]
    pub fn rank(&self, other: &Self) -> Option<usize> {
        let other = other.normalized();
        self.runnable().iter().position(|p| *p == other)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let parts: Vec<&str> = text.split('/').collect();
        let good =
            |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !(2..=3).contains(&parts.len()) || !parts.iter().all(good) {
            return Err(PlatformError(text.to_owned()));
        }
        Ok(Self::new(parts[0], parts[1], parts.get(2).copied().unwrap_or_default()).normalized())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(text: &str) -> Platform {
        let mut parts = text.split('/');
        let mut next = || parts.next().unwrap_or_default();
        Platform::new(next(), next(), next())
    }

    #[test]
    fn ranks() {
        let cases = [
            ("linux/amd64", "linux/amd64", Some(0)),
            ("linux/amd64", "linux/x86_64", Some(0)),
            ("linux/amd64", "linux/amd64/v1", Some(0)),
            ("linux/amd64", "linux/amd64/v2", None),
            ("linux/amd64/v3", "linux/amd64/v2", Some(1)),
            ("linux/amd64", "linux/386", Some(1)),
            ("linux/arm64", "linux/arm64/v8", Some(0)),
            ("linux/arm64", "linux/arm/v7", Some(2)),
            ("linux/arm64/v9.1", "linux/arm64/v8.6", Some(2)),
            ("linux/arm/v7", "linux/arm", Some(0)),
            ("linux/arm/v6", "linux/arm/v7", None),
            ("linux/arm/v7", "linux/arm/v5", Some(2)),
            ("linux/amd64", "windows/amd64", None),
            ("linux/amd64", "unknown/unknown", None),
            ("linux/riscv64", "linux/riscv64", Some(0)),
        ];
        for (host, image, want) in cases {
            assert_eq!(p(host).rank(&p(image)), want, "{image} on {host}");
        }
    }

    #[test]
    fn texts() {
        assert_eq!("linux/aarch64".parse::<Platform>().expect("parses").to_string(), "linux/arm64");
        assert_eq!("linux/arm".parse::<Platform>().expect("parses").to_string(), "linux/arm/v7");
        for bad in ["linux", "", "linux/", "a/b/c/d", "linux/amd 64"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }
}
