//! [`ImageConfig`]: the document whose digest is the image id. Only the fields that a node reads are typed; the rest
//! survives a round trip.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::{self, Fields, null_as_default, other, string_map, strings};
use crate::{Digest, Platform};

/// The reason why bytes are not an image config.
#[derive(Debug, thiserror::Error)]
#[error("not an image config: {0}")]
pub struct ConfigError(#[from] serde_json::Error);

/// An image config (image specification, or Docker schema 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Time of creation, RFC 3339, as the builder wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Operating system, architecture and variant.
    #[serde(flatten)]
    pub platform: Platform,
    /// The defaults for running it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub config: RunConfig,
    /// The layers by diff id.
    pub rootfs: RootFs,
    /// Everything else.
    #[serde(flatten, deserialize_with = "other::<_, ImageConfig>")]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// The `config` object of an image config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunConfig {
    /// `user[:group]`, by name or number.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub user: String,
    /// Environment as `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strings")]
    pub env: Vec<String>,
    /// Entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strings")]
    pub entrypoint: Vec<String>,
    /// Arguments, or the command where there is no entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strings")]
    pub cmd: Vec<String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub working_dir: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "string_map")]
    pub labels: BTreeMap<String, String>,
    /// Everything else.
    #[serde(flatten, deserialize_with = "other::<_, RunConfig>")]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// The `rootfs` object of an image config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub kind: String,
    /// Digests of the uncompressed layers, lowest first.
    #[serde(default, deserialize_with = "null_as_default")]
    pub diff_ids: Vec<Digest>,
    /// Everything else.
    #[serde(flatten, deserialize_with = "other::<_, RootFs>")]
    pub other: serde_json::Map<String, serde_json::Value>,
}

impl Fields for ImageConfig {
    const FIELDS: &'static [&'static str] =
        &["created", "architecture", "os", "variant", "config", "rootfs", "history"];
}

impl Fields for RunConfig {
    const FIELDS: &'static [&'static str] = &["User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Labels"];
}

impl Fields for RootFs {
    const FIELDS: &'static [&'static str] = &["type", "diff_ids"];
}

impl ImageConfig {
    /// Parses the raw bytes of a config blob.
    ///
    /// # Errors
    /// [`ConfigError`] when they are not JSON of this shape.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        Ok(json::from_slice(bytes)?)
    }

    /// The user that the image runs as, in CRI's two forms: a uid where the part before the colon is a number within
    /// the range of a uid, otherwise the name. An absent user is `(None, "")`.
    #[must_use]
    pub fn uid_or_username(&self) -> (Option<i64>, String) {
        let user = self.config.user.split(':').next().unwrap_or_default();
        match user.parse::<i64>() {
            Ok(uid) if (0..=i64::from(i32::MAX)).contains(&uid) => (Some(uid), String::new()),
            _ => (None, user.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        let cases = [
            ("", (None, "")),
            ("1002", (Some(1002), "")),
            ("www-data", (None, "www-data")),
            ("1003:1004", (Some(1003), "")),
            ("www-data:1004", (None, "www-data")),
            // Beyond int32 a runtime could wrap it around to root (CVE-2024-40635): it stays a name, which resolves to
            // no user.
            ("4294967296", (None, "4294967296")),
            ("-1", (None, "-1")),
        ];
        for (user, want) in cases {
            let text = format!(r#"{{"os":"linux","architecture":"amd64","config":{{"User":"{user}"}},"rootfs":{{}}}}"#);
            let config = ImageConfig::parse(text.as_bytes()).expect("parses");
            assert_eq!(config.uid_or_username(), (want.0, want.1.to_owned()), "{user}");
        }
    }

    #[test]
    fn unknown_fields_survive() {
        let text = r#"{"created":"2024-01-01T00:00:00Z","os":"linux","architecture":"arm64","variant":"v8","config":{"Healthcheck":{"Test":["NONE"]}},"rootfs":{"type":"layers","diff_ids":[]},"history":[{"comment":"x"}],"moby.buildkit.x":1}"#;
        let config = ImageConfig::parse(text.as_bytes()).expect("parses");
        assert_eq!(config.platform.variant.as_deref(), Some("v8"));
        let back = serde_json::to_value(&config).expect("serialises");
        let want: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(back, want);
    }

    #[test]
    fn null_config_is_empty() {
        let config = ImageConfig::parse(
            br#"{"os":"linux","architecture":"amd64","config":null,"rootfs":{"type":"layers","diff_ids":null}}"#,
        );
        assert_eq!(config.expect("parses").config, RunConfig::default());
    }

    #[test]
    fn null_is_absent_in_every_optional_field() {
        let text = r#"{"created":null,"os":null,"architecture":null,"variant":null,"history":null,
            "config":{"User":null,"Env":["A=1",null],"Entrypoint":null,"Cmd":null,"WorkingDir":null,"Labels":{"a":null}},
            "rootfs":{"type":null,"diff_ids":null}}"#;
        let config = ImageConfig::parse(text.as_bytes()).expect("parses");
        assert_eq!(
            (config.config.env, config.config.labels["a"].as_str()),
            (vec!["A=1".to_owned(), String::new()], "")
        );
        assert_eq!((config.platform.os.as_str(), config.rootfs.kind.as_str()), ("", ""));
    }

    #[test]
    fn invalid_utf8_is_shown_as_replaced() {
        let text = b"{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":{\"diff_ids\":[]},\"history\":[{\"comment\":\"\xff\"}],
            \"config\":{\"Env\":[\"A=\xc3\"],\"Labels\":{\"a\":\"\\ud83d\",\"b\\udc00\":\"c\"}}}";
        let config = ImageConfig::parse(text).expect("parses");
        assert_eq!(config.config.env, ["A=\u{fffd}"]);
        assert_eq!((config.config.labels["a"].as_str(), config.config.labels["b\u{fffd}"].as_str()), ("\u{fffd}", "c"));
    }

    /// A container would run as another user than the one that is checked, or with other layers.
    #[test]
    fn ambiguous_keys_are_refused() {
        let config = |top: &str, run: &str, rootfs: &str| {
            format!(
                r#"{{"os":"linux","architecture":"amd64"{top},"config":{{"User":"1000"{run}}},"rootfs":{{"diff_ids":[]{rootfs}}}}}"#
            )
        };
        assert!(ImageConfig::parse(config("", r#","Onbuild":1,"user.x":2"#, "").as_bytes()).is_ok());
        for text in [
            config("", r#","user":"0""#, ""),
            config("", r#","User":"0""#, ""),
            config("", r#","entryPoint":["sh"]"#, ""),
            config(r#","OS":"windows""#, "", ""),
            config(r#","os":"windows""#, "", ""),
            config(r#","Config":{"User":"0"}"#, "", ""),
            config(r#","RootFS":{}"#, "", ""),
            config("", "", r#","Diff_IDs":[]"#),
            config("", "", r#","diff_ids":[]"#),
        ] {
            assert!(ImageConfig::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
