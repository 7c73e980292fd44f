//! [`fetch_labels`]: labels of images, for the rules that need them. CRI's list of images does not contain them: each image
//! is asked for once, in a verbose status, and its labels are kept by its id. Without such a rule no image is asked for.

use std::collections::{BTreeMap, HashSet};

use cri_api::{Image, ImageSpec};
use serde::Deserialize;

use super::context::GcContext;
use super::detect::handler;
use super::rules::{Pattern, Pins};

/// Labels by image id.
pub(super) type ImageLabels = BTreeMap<String, BTreeMap<String, String>>;

/// The part of a verbose status that holds labels, as containerd, imagelet and CRI-O write it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VerboseInfo {
    labels: Option<BTreeMap<String, String>>,
    image_spec: Option<ImageInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageInfo {
    config: Option<VerboseConfig>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct VerboseConfig {
    labels: Option<BTreeMap<String, String>>,
}

/// Asks for the labels of images that were not asked for yet, if a rule or a pin needs labels. An image whose labels are not
/// known stays for now; the next round asks again.
pub(super) async fn fetch_labels(context: &GcContext, labels: &mut ImageLabels, pins: &Pins, images: &[Image]) {
    let by_rule = context.options().keep.iter().any(|rule| rule.pattern.is_of_labels());
    if !by_rule && !pins.iter().any(Pattern::is_of_labels) {
        return;
    }
    let here: HashSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
    labels.retain(|id, _| here.contains(id.as_str()));
    for image in images {
        if labels.contains_key(&image.id) {
            continue;
        }
        let spec = ImageSpec { runtime_handler: handler(image).to_owned(), ..ImageSpec::new(&image.id) };
        match context.images.inspect(&spec).await {
            Ok(status) => {
                let of_image = status.info.get("info").and_then(|info| parse_labels(info)).unwrap_or_default();
                labels.insert(image.id.clone(), of_image);
            }
            Err(error) => tracing::debug!(image = image.id, %error, "labels are not known"),
        }
    }
}

/// The labels in a verbose status.
fn parse_labels(info: &str) -> Option<BTreeMap<String, String>> {
    let info: VerboseInfo = serde_json::from_str(info).ok()?;
    info.image_spec.and_then(|spec| spec.config).and_then(|config| config.labels).or(info.labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runtimes_say_of_labels() {
        let team = BTreeMap::from([("team".to_owned(), "web".to_owned())]);
        let cases = [
            (r#"{"chainID":"sha256:1","imageSpec":{"config":{"Cmd":["sh"],"Labels":{"team":"web"}}}}"#, Some(&team)),
            (r#"{"labels":{"team":"web"},"imageSpec":{"config":{}}}"#, Some(&team)),
            (r#"{"imageSpec":{"config":{"Labels":null}}}"#, None),
            (r#"{"imageSpec":{}}"#, None),
            ("[]", None),
            ("not json", None),
        ];
        for (info, want) in cases {
            assert_eq!(parse_labels(info).as_ref(), want, "{info}");
        }
    }
}
