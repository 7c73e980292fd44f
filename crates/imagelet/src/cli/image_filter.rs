//! Filters of `imagelet images`, with the meanings of podman and docker. Pure but for [`details`], which asks for the configs of
//! images. Called by `images`.

use std::collections::HashMap;

use base::GoDuration;
use cri_api::{Image, ImageSpec, ImageStatus};
use futures::StreamExt as _;
use globset::{GlobBuilder, GlobMatcher};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde_json::Value;

use crate::exit::{Failure, Outcome};
use crate::images::Images;

/// Conditions of `-f`. References are alternatives; all other conditions must hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    references: Vec<GlobMatcher>,
    labels: Vec<(String, Option<String>)>,
    dangling: Option<bool>,
    pinned: Option<bool>,
    /// Images by name or id.
    pub(super) before: Vec<String>,
    pub(super) since: Vec<String>,
    until: Vec<Timestamp>,
}

/// Facts in the config of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) created: Option<Timestamp>,
    labels: HashMap<String, String>,
}

/// The range of creation times, both ends excluded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) after: Option<Timestamp>,
    pub(super) before: Option<Timestamp>,
}

impl Filters {
    /// Parses `KEY=VALUE` of every `-f`.
    pub(super) fn parse(texts: &[String], now: Timestamp) -> Outcome<Self> {
        let mut filters = Self::default();
        for text in texts {
            let wrong = |why: &str| Failure::usage(format!("--filter {text:?}: {why}"));
            let (key, value) = text.split_once('=').ok_or_else(|| wrong("it must be KEY=VALUE"))?;
            let flag = || match value {
                "true" | "1" => Ok(Some(true)),
                "false" | "0" => Ok(Some(false)),
                _ => Err(wrong("the value must be true or false")),
            };
            match key {
                "reference" => {
                    let pattern = GlobBuilder::new(value).literal_separator(true).build();
                    let pattern = pattern.map_err(|error| wrong(&format!("it is no pattern: {}", error.kind())))?;
                    filters.references.push(pattern.compile_matcher());
                }
                "label" => {
                    let (key, value) = value.split_once('=').map_or((value, None), |(k, v)| (k, Some(v.to_owned())));
                    filters.labels.push((key.to_owned(), value));
                }
                "dangling" => filters.dangling = flag()?,
                "pinned" => filters.pinned = flag()?,
                "before" => filters.before.push(value.to_owned()),
                "since" | "after" => filters.since.push(value.to_owned()),
                "until" => filters.until.push(time(value, now).ok_or_else(|| {
                    wrong("it must be a time such as 2026-01-31T12:00:00Z, a date, seconds since 1970, or 24h for a day ago")
                })?),
                _ => {
                    let keys = "reference, label, dangling, pinned, before, since and until";
                    return Err(wrong(&format!("there is no such key, but {keys}")));
                }
            }
        }
        Ok(filters)
    }

    /// Returns true if a filter needs the configs of images.
    pub(super) fn need_details(&self) -> bool {
        !(self.labels.is_empty() && self.before.is_empty() && self.since.is_empty() && self.until.is_empty())
    }

    /// Returns true if a filter selects names.
    pub(super) fn choose_names(&self) -> bool {
        !self.references.is_empty()
    }

    /// Returns true if one of the references matches this name. As in podman, a pattern is compared with the whole name, with the name
    /// without its domain, with the name without its path, and with each of them without tag or digest.
    pub(super) fn mean(&self, name: &str) -> bool {
        let (repository, rest) = repository_and_rest(name);
        let path = repository.split_once('/').map_or(repository, |(_, path)| path);
        let last = repository.rsplit_once('/').map_or(repository, |(_, last)| last);
        [repository, path, last]
            .iter()
            .flat_map(|part| [(*part).to_owned(), format!("{part}{rest}")])
            .any(|candidate| self.references.iter().any(|pattern| pattern.is_match(&candidate)))
    }

    /// Returns true if the image matches all filters. `span` is the range of `before` and `since`.
    pub(super) fn fit(&self, image: &Image, details: &Details, span: Span) -> bool {
        let mut names = image.repo_tags.iter().chain(&image.repo_digests);
        let has_label = |(key, value): &(String, Option<String>)| {
            details.labels.get(key).is_some_and(|own| value.as_ref().is_none_or(|value| value == own))
        };
        let is_within = |created: Timestamp| {
            span.after.is_none_or(|bound| created > bound)
                && span.before.is_none_or(|bound| created < bound)
                && self.until.iter().all(|bound| created < *bound)
        };
        let needs_time = span.after.is_some() || span.before.is_some() || !self.until.is_empty();
        (self.references.is_empty() || names.any(|name| self.mean(name)))
            && self.labels.iter().all(has_label)
            && self.dangling.is_none_or(|wanted| image.repo_tags.is_empty() == wanted)
            && self.pinned.is_none_or(|wanted| image.pinned == wanted)
            && (!needs_time || details.created.is_some_and(is_within))
    }
}

/// Splits a name into `repository` and `:tag` or `@digest`.
pub(super) fn repository_and_rest(name: &str) -> (&str, &str) {
    let end = name.find('@').or_else(|| {
        // A colon before the last slash belongs to a port.
        name.rfind(':').filter(|colon| name.rfind('/').is_none_or(|slash| slash < *colon))
    });
    name.split_at(end.unwrap_or(name.len()))
}

/// Parses a time as docker does: an age, a time with its zone, a time or a date in UTC, or seconds since 1970.
fn time(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(ago) = GoDuration::parse_unsigned(text).filter(|_| text != "0") {
        return now.checked_sub(jiff::SignedDuration::try_from(ago).ok()?).ok();
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return Timestamp::from_second(seconds).ok();
    }
    text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Returns facts from the configs of these images, by image id.
pub(super) async fn details(images: &Images, listed: &[Image]) -> HashMap<String, Details> {
    /// Number of images that are queried concurrently.
    const AT_ONCE: usize = 8;
    let ask = async |id: String| {
        let status = images.inspect(&ImageSpec::new(&id)).await.unwrap_or_else(|error| {
            tracing::warn!("inspect {id}: {}: labels and time of creation are not known", error.message());
            ImageStatus::default()
        });
        (id, status.info.get("info").map(|info| details_of(info)).unwrap_or_default())
    };
    let ids: Vec<String> = listed.iter().map(|image| image.id.clone()).collect();
    futures::stream::iter(ids).map(ask).buffer_unordered(AT_ONCE).collect().await
}

/// Extracts facts from the answer of a runtime. The content is up to the runtime; ours and containerd's have the config as `imageSpec`.
fn details_of(info: &str) -> Details {
    let info = serde_json::from_str::<Value>(info).unwrap_or_default();
    let config = &info["imageSpec"];
    let created = config["created"].as_str().and_then(|text| text.parse().ok());
    let labels = config["config"]["Labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    Details { created, labels }
}

#[cfg(test)]
#[path = "image_filter_tests.rs"]
mod tests;
