//! Labels of images, for the rules that ask for them. CRI's list of images does not tell them: each image is asked for once,
//! in a verbose status, and remembered by its id. Without such a rule nobody is asked.

use std::collections::{BTreeMap, HashSet};

use cri_api::{Image, ImageSpec};
use serde::Deserialize;

use super::collector::{ImageGcManager, State};
use super::detect::handler;

/// By image id.
pub(super) type Labels = BTreeMap<String, BTreeMap<String, String>>;

/// The part of a verbose status that counts: that of containerd and imagelet, and that of CRI-O.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Info {
    labels: Option<BTreeMap<String, String>>,
    image_spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    config: Option<Config>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    labels: Option<BTreeMap<String, String>>,
}

impl ImageGcManager {
    /// Asks for the labels of images that nobody has asked for. An image of which they are not told stays for now; the next
    /// round asks again.
    pub(super) async fn look_at_labels(&self, state: &mut State, images: &[Image]) {
        let by_rule = self.options.keep.iter().any(|rule| rule.pattern.is_of_labels());
        if !by_rule && !state.pins.iter().any(super::rules::Pattern::is_of_labels) {
            return;
        }
        let here: HashSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        state.labels.retain(|id, _| here.contains(id.as_str()));
        for image in images {
            if state.labels.contains_key(&image.id) {
                continue;
            }
            let spec = ImageSpec { runtime_handler: handler(image).to_owned(), ..ImageSpec::new(&image.id) };
            match self.images.inspect(&spec).await {
                Ok(status) => {
                    let labels = status.info.get("info").and_then(|info| labels(info)).unwrap_or_default();
                    state.labels.insert(image.id.clone(), labels);
                }
                Err(error) => tracing::debug!(image = image.id, %error, "labels are not known"),
            }
        }
    }
}

/// The labels in a verbose status.
fn labels(info: &str) -> Option<BTreeMap<String, String>> {
    let info: Info = serde_json::from_str(info).ok()?;
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
            assert_eq!(labels(info).as_ref(), want, "{info}");
        }
    }
}
