//! Runs `imagelet gc` and related commands for the tests of garbage collection, and reads their answers.

use serde_json::Value;

use super::cli::Imagelet;

impl Imagelet {
    /// Sets no minimum age: an image that was pulled a moment ago may be collected.
    pub(crate) fn hasty(self) -> Self {
        self.global("--minimum-image-ttl-duration", "0s")
    }

    /// A command's answer as JSON; it must end well.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}:\n{text}"))
    }

    /// The plan of `gc --dry-run`.
    #[track_caller]
    pub(crate) fn plan(&self, args: &[&str]) -> Value {
        self.json(&[&["gc", "--dry-run"], args].concat())
    }

    /// The report of `gc`.
    #[track_caller]
    pub(crate) fn collect(&self, args: &[&str]) -> Value {
        self.json(&[&["gc"], args].concat())
    }
}

/// First names of the images that a plan removes, in its order, without the registry.
pub(crate) fn going(plan: &Value) -> Vec<String> {
    images(plan).iter().filter(|image| image["decision"] == "remove").map(title).collect()
}

/// First names of the images that a collection removed, in order, without the registry.
pub(crate) fn removed_names(done: &Value) -> Vec<String> {
    done["removed"].as_array().expect("a list of removed images").iter().map(title).collect()
}

/// The row of an image in a plan, by its name without the registry.
#[track_caller]
pub(crate) fn row<'a>(plan: &'a Value, name: &str) -> &'a Value {
    images(plan).iter().find(|image| title(image) == name).unwrap_or_else(|| panic!("no {name} in {plan:#}"))
}

/// The decision of a plan about an image: `remove`, or the word for why it stays.
#[track_caller]
pub(crate) fn decision<'a>(plan: &'a Value, name: &str) -> &'a str {
    row(plan, name)["decision"].as_str().expect("a word")
}

/// A number of an answer.
#[track_caller]
pub(crate) fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {value:#}"))
}

fn images(plan: &Value) -> &[Value] {
    plan["images"].as_array().expect("a list of images")
}

fn title(image: &Value) -> String {
    let name = image["names"][0].as_str().unwrap_or_default();
    name.split_once('/').map_or(name, |(_, name)| name).to_owned()
}
