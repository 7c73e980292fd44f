//! Back-off over the admin endpoint: plain data, the same on both sides. Decides nothing. Called
//! by the routes and by `imagelet backoff`.

use image_manager::{BackoffEntry, BackoffSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer of a process without an image manager: a kubelet in front of it decides by itself when to pull again.
pub(super) const NO_BACKOFF_HERE: &str =
    "this process keeps no back-off: the client that pulls through its socket decides when to try again";

/// Response of `GET /v1/backoff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackoffList {
    /// Images that are in back-off for a pod.
    pub entries: Vec<WaitingImage>,
    /// Reason for an empty list, if it is not obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An image whose pulls for a pod are delayed because earlier pulls failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingImage {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// The image as it was requested.
    pub image: String,
    /// Host of the image's registry.
    pub registry: String,
    /// The cause of the last failed pull, in one word.
    pub cause: String,
    /// Number of consecutive failed pulls.
    pub failures: u32,
    /// Length of the back-off window.
    pub window_milliseconds: u64,
    /// Remaining time of the window; with 0, the next request pulls the image.
    pub remaining_milliseconds: u64,
    /// Reason and message of the last failure.
    pub message: String,
}

impl From<BackoffEntry> for WaitingImage {
    fn from(entry: BackoffEntry) -> Self {
        let milliseconds = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            namespace: entry.namespace,
            pod: entry.name,
            uid: entry.uid,
            image: entry.image,
            registry: entry.registry,
            cause: entry.cause.to_string(),
            failures: entry.failures,
            window_milliseconds: milliseconds(entry.window),
            remaining_milliseconds: milliseconds(entry.remaining),
            message: entry.message,
        }
    }
}

/// Response of `POST /v1/backoff/reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResetCount {
    /// Number of entries that were reset.
    pub reset: usize,
    /// Reason for an empty list, if it is not obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whose back-off is meant, from the query of a request: exactly one of these.
pub(super) fn selector(query: &str) -> Result<BackoffSelector, String> {
    let mut chosen = None;
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let empty = || format!("{key} has no value");
        let selector = match &*key {
            "all" if value == "true" || value.is_empty() => BackoffSelector::All,
            "all" => return Err("all: must be true".to_owned()),
            "image" | "pod" | "uid" | "registry" if value.is_empty() => return Err(empty()),
            "image" => BackoffSelector::Image(value.into_owned()),
            "uid" => BackoffSelector::Uid(value.into_owned()),
            "registry" => BackoffSelector::Registry(value.into_owned()),
            "pod" => pod(&value)?,
            _ => return Err(format!("unknown parameter {key:?}; known: all, image, pod, uid, registry")),
        };
        if chosen.replace(selector).is_some() {
            return Err("more than one of all, image, pod, uid and registry".to_owned());
        }
    }
    chosen.ok_or_else(|| "one of all, image, pod, uid and registry is needed".to_owned())
}

/// The query that means this.
pub fn query(selector: &BackoffSelector) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    match selector {
        BackoffSelector::All => query.append_pair("all", "true"),
        BackoffSelector::Image(image) => query.append_pair("image", image),
        BackoffSelector::Pod { namespace, name } => query.append_pair("pod", &format!("{namespace}/{name}")),
        BackoffSelector::Uid(uid) => query.append_pair("uid", uid),
        BackoffSelector::Registry(registry) => query.append_pair("registry", registry),
    };
    query.finish()
}

/// A pod by name, with its namespace or without: `default`.
pub fn pod(text: &str) -> Result<BackoffSelector, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(format!("{text:?} is no pod: NAMESPACE/NAME, or NAME in the namespace default"));
    }
    Ok(BackoffSelector::Pod { namespace: namespace.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_survive_the_way() {
        let all = [
            BackoffSelector::All,
            BackoffSelector::Image("r.example:5000/a b/c@sha256:00?&=%2F".into()),
            BackoffSelector::Pod { namespace: "shop".into(), name: "web-1".into() },
            BackoffSelector::Uid("0-1".into()),
            BackoffSelector::Registry("r.example:5000".into()),
        ];
        for selector in all {
            assert_eq!(selector_of(&query(&selector)), Ok(selector.clone()), "{selector:?}");
        }
        assert_eq!(selector_of("image=a/b:1"), Ok(BackoffSelector::Image("a/b:1".into())), "as a person writes it");
        let web = BackoffSelector::Pod { namespace: "default".into(), name: "web".into() };
        assert_eq!(selector_of("pod=web"), Ok(web));
    }

    fn selector_of(query: &str) -> Result<BackoffSelector, String> {
        selector(query)
    }

    #[test]
    fn nothing_is_reset_by_mistake() {
        let cases = [
            ("", "one of all, image, pod, uid and registry is needed"),
            ("image=a&pod=b", "more than one of all, image, pod, uid and registry"),
            ("image=a&image=b", "more than one of all, image, pod, uid and registry"),
            ("all=false", "all: must be true"),
            ("image=", "image has no value"),
            ("pod=a/b/c", "\"a/b/c\" is no pod: NAMESPACE/NAME, or NAME in the namespace default"),
            ("pod=/b", "\"/b\" is no pod: NAMESPACE/NAME, or NAME in the namespace default"),
            ("imgae=a", "unknown parameter \"imgae\"; known: all, image, pod, uid, registry"),
        ];
        for (query, want) in cases {
            assert_eq!(selector(query), Err(want.to_owned()), "{query}");
        }
    }
}
