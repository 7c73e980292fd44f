//! The table of settings: one row gives the field of the file, the flag, the variable, the help text, the check and
//! how the value is shown. What is not in this table does not exist. Called by [`crate::config`] alone.

mod access;
mod collection;
mod engine;
mod node;
mod pods;
mod pulls;

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::Config;
use super::value::{Raw, Wrong};

/// One row.
pub(crate) struct Setting {
    /// Field of the configuration file, as KubeletConfiguration spells it where it has it. A dot goes into a map.
    pub(crate) field: &'static str,
    /// The long flag, without dashes.
    pub(crate) flag: &'static str,
    /// The environment variable: `IMAGELET_` and the flag in capitals.
    pub(crate) variable: &'static str,
    /// The short flag, as crictl has it.
    pub(crate) short: Option<char>,
    /// What a value looks like, for the help text. Empty for switches.
    pub(crate) value_name: &'static str,
    /// Of a list: what separates its values in a variable; the flag may be given again.
    pub(crate) list: Option<char>,
    /// What it is about.
    pub(crate) group: Group,
    /// For `--help`.
    pub(crate) help: &'static str,
    /// Checks a value and puts it into the configuration.
    pub(crate) apply: fn(&mut Config, Raw<'_>) -> Result<(), Wrong>,
    /// What is in force.
    pub(crate) show: fn(&Config) -> Value,
}

impl Setting {
    /// The help text without the default, and the default, where there is one: the one that the text names, otherwise
    /// the value in `defaults`.
    pub(crate) fn help_and_default(&self, defaults: &Config) -> (&'static str, Option<String>) {
        if let Some((text, rest)) = self.help.split_once(" [default: ") {
            return (text, rest.strip_suffix(']').map(str::to_owned));
        }
        (self.help, Some(self.shown(defaults)).filter(|text| !text.is_empty()))
    }

    /// Whether a value of it must not be shown.
    pub(crate) fn is_secret(&self) -> bool {
        self.field == "staticPodURLHeader"
    }

    /// The value in force in one line; empty where there is none.
    pub(crate) fn shown(&self, config: &Config) -> String {
        match (self.show)(config) {
            Value::Null => String::new(),
            Value::String(text) => text,
            Value::Array(list) => {
                let separator = self.list.map(String::from).unwrap_or_default();
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(&separator)
            }
            Value::Object(map) => {
                let pairs = map.iter().map(|(key, value)| format!("{key}<{}", value.as_str().unwrap_or_default()));
                pairs.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        }
    }
}

/// What a setting is about: a heading of the help text and of the reference page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Node,
    Pods,
    Pulls,
    Credentials,
    Collection,
    Engine,
    Logging,
}

impl Group {
    /// The heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Node => "The node",
            Self::Pods => "Pods",
            Self::Pulls => "Pulls",
            Self::Credentials => "Credentials",
            Self::Collection => "Garbage collection",
            Self::Engine => "The embedded engine",
            Self::Logging => "The log",
        }
    }
}

/// Every setting, in the order in which help and `imagelet config` show them.
pub(crate) static SETTINGS: LazyLock<Vec<&'static Setting>> = LazyLock::new(|| {
    [node::ROWS, pods::ROWS, pulls::ROWS, access::ROWS, collection::ROWS, engine::ROWS].into_iter().flatten().collect()
});

fn word<T: Copy + PartialEq>(words: &[(&str, T)], value: T) -> Value {
    words.iter().find(|(_, v)| *v == value).map_or(Value::Null, |(name, _)| json!(name))
}
