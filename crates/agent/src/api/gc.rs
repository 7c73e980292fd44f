//! Garbage collection over the admin endpoint: plain data, the same on both sides, and the JSON output of the
//! commands. Decides nothing. Called by the routes, by [`crate::collection`] and by the commands.

use std::time::Duration;

use image_manager::gc::{Pattern, PatternError, PlannedImage, RemovedImage};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request to collect: one goal, or none for a round by the thresholds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectRequest {
    /// Bytes that are to be free on the image file system.
    pub until_free: Option<u64>,
    /// Collects images that have not been used for this many seconds.
    pub older_than_seconds: Option<u64>,
    /// Everything unused.
    pub all_unused: bool,
    /// Instead of the configured minimum age.
    pub min_age_seconds: Option<u64>,
}

impl CollectRequest {
    /// The minimum age, where one is asked for.
    pub fn min_age(&self) -> Option<Duration> {
        self.min_age_seconds.map(Duration::from_secs)
    }

    /// The query of a request to the endpoint.
    pub fn query(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let numbers = [
            ("untilFree", self.until_free),
            ("olderThanSeconds", self.older_than_seconds),
            ("minAgeSeconds", self.min_age_seconds),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                query.append_pair(name, &value.to_string());
            }
        }
        if self.all_unused {
            query.append_pair("allUnused", "true");
        }
        query.finish()
    }

    /// The request of a query.
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        let mut request = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let number = || value.parse::<u64>().map_err(|_| format!("{key}: {value:?} is no whole number"));
            match &*key {
                "untilFree" => request.until_free = Some(number()?),
                "olderThanSeconds" => request.older_than_seconds = Some(number()?),
                "minAgeSeconds" => request.min_age_seconds = Some(number()?),
                "allUnused" if value == "true" => request.all_unused = true,
                "allUnused" => return Err("allUnused: must be true".to_owned()),
                _ => return Err(format!("unknown parameter {key:?}")),
            }
        }
        let goals = [request.until_free.is_some(), request.older_than_seconds.is_some(), request.all_unused];
        if goals.into_iter().filter(|given| *given).count() > 1 {
            return Err("more than one of untilFree, olderThanSeconds and allUnused".to_owned());
        }
        Ok(request)
    }
}

/// Response of `GET /v1/gc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectedTarget {
    /// Endpoint whose images are collected; empty for the embedded store.
    pub images: String,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskUsage {
    /// Mount point of the file system.
    pub path: String,
    /// Total bytes.
    pub capacity_bytes: u64,
    /// Available bytes.
    pub available_bytes: u64,
    /// Used bytes in percent, computed as the kubelet does.
    pub used_percent: u64,
    /// Total inodes; 0 on file systems with dynamic inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Used inodes in percent; 0 on file systems with dynamic inodes.
    pub inodes_used_percent: u64,
}

/// A file system before and after a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskChange {
    /// File system before the collection.
    pub before: DiskUsage,
    /// File system after the collection. In a plan, only the byte counts differ.
    pub after: DiskUsage,
}

/// Response of `GET /v1/gc/plan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectPlan {
    /// Bytes to free.
    pub wanted_bytes: u64,
    /// Bytes that would be freed.
    pub frees_bytes: u64,
    /// True if `freesBytes` is exact.
    pub exact: bool,
    /// Disk usage in percent above which collection starts.
    pub high_threshold_percent: i32,
    /// The image file system before and after the collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskChange>,
    /// All images: first those to remove, in order, then the others.
    pub images: Vec<PlannedImage>,
    /// Bytes by which the plan misses its goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingSpace>,
}

/// Shortfall of a collection, with the images that were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingSpace {
    /// Bytes.
    pub bytes: u64,
    /// Images that are kept, grouped by reason.
    pub kept: Vec<KeptImages>,
}

/// Images that are kept for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptImages {
    /// Rule that keeps the images.
    pub decision: String,
    /// Number of images.
    pub images: usize,
    /// Total size; shared layers count for each image.
    pub size_bytes: u64,
}

impl MissingSpace {
    /// Returns the missing bytes, and why these images stay; `None` if nothing is missing.
    pub fn of(bytes: u64, images: &[PlannedImage]) -> Option<Self> {
        let mut kept: Vec<KeptImages> = Vec::new();
        for image in images.iter().filter(|image| !image.is_removed()) {
            let known = kept.iter().position(|reason| reason.decision == image.decision);
            let index = known.unwrap_or_else(|| {
                kept.push(KeptImages { decision: image.decision.clone(), ..KeptImages::default() });
                kept.len() - 1
            });
            kept[index].images += 1;
            kept[index].size_bytes = kept[index].size_bytes.saturating_add(image.size_bytes);
        }
        kept.sort_by(|a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.decision.cmp(&b.decision)));
        (bytes > 0).then_some(Self { bytes, kept })
    }
}

/// Response of `POST /v1/gc/collect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectReport {
    /// The removed images, in order.
    pub removed: Vec<RemovedImage>,
    /// Bytes to free.
    pub wanted_bytes: u64,
    /// Bytes that were freed.
    pub freed_bytes: u64,
    /// True if `freedBytes` is exact; otherwise it was measured on the file system.
    pub exact: bool,
    /// Disk usage in percent above which collection starts.
    pub high_threshold_percent: i32,
    /// Pulled records removed together with their images.
    pub pruned_records: usize,
    /// The image file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskChange>,
    /// The error of the collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Bytes by which the collection missed its goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingSpace>,
}

/// Response of `GET` and `POST /v1/gc/containers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectedContainers {
    /// In a plan, all leftovers; after a collection, the removed ones.
    pub items: Vec<Leftover>,
    /// Errors, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A container, a sandbox, or a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// `container`, `sandbox`, `logs` or `link`.
    pub kind: String,
    /// Id of the container or sandbox; of logs and links the name in their directory.
    pub id: String,
    /// Name of the container; empty for everything else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `NAMESPACE/NAME` of the pod; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// UID of the pod; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// Creation time, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// `remove`, or the rule that keeps it.
    pub decision: String,
    /// Human-readable reason for the decision.
    pub why: String,
}

impl Leftover {
    /// Returns true if the item would be removed, or was.
    pub fn is_removed(&self) -> bool {
        self.decision == "remove"
    }

    /// The item of a row.
    pub fn new(kind: &str, row: &kuberuntime::container_gc::GcRow) -> Self {
        Self {
            kind: kind.to_owned(),
            id: row.id.clone(),
            name: row.name.clone(),
            pod: row.pod.clone(),
            pod_uid: row.pod_uid.clone(),
            created_at: row.created_at,
            decision: row.verdict.word().to_owned(),
            why: row.verdict.to_string(),
        }
    }
}

/// A pin with the images that it protects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// Pattern of image names, as given.
    pub pattern: String,
    /// Images on the node that the pattern protects from collection.
    pub images: Vec<NamedImage>,
    /// Of a pin that was made or taken away: whether it was not there before, or was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
}

/// An image protected by a pin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedImage {
    /// Image ID as reported by the runtime.
    pub id: String,
    /// Names of the image, tags first.
    pub names: Vec<String>,
}

impl Pin {
    /// A pin with the images that it holds.
    pub fn new(pattern: &Pattern, images: &[cri_api::Image]) -> Self {
        let names = |image: &cri_api::Image| image.repo_tags.iter().chain(&image.repo_digests).cloned().collect();
        let held = images.iter().map(|image| NamedImage { id: image.id.clone(), names: names(image) }).collect();
        Self { pattern: pattern.to_string(), images: held, changed: false }
    }
}

/// Response of all routes about pins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pins {
    /// All pins; in the response to a change, only the pins of the request.
    pub pins: Vec<Pin>,
}

/// The query that names patterns.
pub fn patterns_query(patterns: &[Pattern]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(patterns.iter().map(|pattern| ("pattern", pattern.as_str())));
    query.finish()
}

/// The patterns that a query names, at least one.
pub(crate) fn patterns(query: &str) -> Result<Vec<Pattern>, String> {
    let mut patterns = Vec::new();
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if key != "pattern" {
            return Err(format!("unknown parameter {key:?}; known: pattern"));
        }
        patterns.push(Pattern::parse(&value).map_err(|error: PatternError| error.to_string())?);
    }
    if patterns.is_empty() { Err("pattern is needed".to_owned()) } else { Ok(patterns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way() {
        let all = [
            CollectRequest::default(),
            CollectRequest { until_free: Some(u64::MAX), min_age_seconds: Some(0), ..CollectRequest::default() },
            CollectRequest { older_than_seconds: Some(7), ..CollectRequest::default() },
            CollectRequest { all_unused: true, ..CollectRequest::default() },
        ];
        for request in all {
            assert_eq!(CollectRequest::parse(&request.query()), Ok(request.clone()), "{request:?}");
        }
        let cases = [
            ("untilFree=1&allUnused=true", "more than one of untilFree, olderThanSeconds and allUnused"),
            ("untilFree=many", "untilFree: \"many\" is no whole number"),
            ("minAgeSeconds=-1", "minAgeSeconds: \"-1\" is no whole number"),
            ("allUnused=false", "allUnused: must be true"),
            ("all=true", "unknown parameter \"all\""),
        ];
        for (query, want) in cases {
            assert_eq!(CollectRequest::parse(query), Err(want.to_owned()), "{query}");
        }
        let patterns_of = |texts: &[&str]| -> Vec<Pattern> {
            texts.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect()
        };
        let list = patterns_of(&["registry.example/a b".replace(' ', "%").as_str(), "busybox:1"]);
        assert_eq!(patterns(&patterns_query(&list)), Ok(list));
        assert_eq!(patterns(""), Err("pattern is needed".to_owned()));
        assert_eq!(patterns("pattern="), Err("image pattern \"\": it is empty".to_owned()));
    }

    #[test]
    fn missing_space_is_explained_by_the_kept_images() {
        let image = |decision: &str, size_bytes| PlannedImage {
            decision: decision.to_owned(),
            size_bytes,
            ..PlannedImage::default()
        };
        let images = [image("remove", 100), image("pinned", 5), image("in-use", 7), image("pinned", 1)];
        let missing = MissingSpace::of(3, &images).expect("something is");
        let kept: Vec<_> = missing.kept.iter().map(|k| (k.decision.as_str(), k.images, k.size_bytes)).collect();
        assert_eq!((missing.bytes, kept), (3, vec![("in-use", 1, 7), ("pinned", 2, 6)]));
        assert_eq!(MissingSpace::of(0, &images), None);
    }
}
