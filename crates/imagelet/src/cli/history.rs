//! `imagelet history`: the steps by which an image was built, from its config.

use cri_api::ImageSpec;
use cri_api::engine::{ImageDocuments, ImageEngine};
use jiff::Timestamp;
use oci::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app::App;
use crate::args::History;
use crate::exit::{Failure, Outcome};
use crate::images::Images;
use crate::output::{Report, Table, units};

/// Longer commands are cut in tables, unless cutting is disabled.
const COMMAND: usize = 45;

/// A step, in the form of podman.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    /// Image id of the last step; those of the others are unknown.
    id: String,
    created: Option<Timestamp>,
    created_by: String,
    /// Absent if a runtime has the layer and does not report its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    comment: String,
    empty_layer: bool,
    #[serde(skip)]
    age: String,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Steps(Vec<Step>);

/// The history of a config (image specification, "history").
#[derive(Deserialize)]
struct ConfigHistory {
    #[serde(default)]
    history: Option<Vec<Option<Entry>>>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    created_by: Option<String>,
    #[serde(default)]
    comment: Option<String>,
    #[serde(default)]
    empty_layer: Option<bool>,
}

impl Report for Steps {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["ID", "CREATED", "CREATED BY", "SIZE", "COMMENT"]);
        for step in &self.0 {
            let id = if step.id.is_empty() { "<missing>".to_owned() } else { units::id(&step.id, whole) };
            let command = if whole { step.created_by.clone() } else { cut(&step.created_by) };
            table.row([
                id,
                step.age.clone(),
                command,
                step.size.map(units::bytes).unwrap_or_default(),
                step.comment.clone(),
            ]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|step| step.created_by.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        let id = |step: &Step| if step.id.is_empty() { "<missing>".to_owned() } else { step.id.clone() };
        self.0.iter().map(id).collect()
    }
}

fn cut(text: &str) -> String {
    let plain = text.replace(['\t', '\n'], " ");
    if plain.chars().count() <= COMMAND {
        return plain;
    }
    plain.chars().take(COMMAND - 1).chain(['…']).collect()
}

pub(super) async fn run(app: &App, args: &History) -> Outcome {
    let images = app.images().await?;
    let found = match images.engine() {
        Some(engine) => of_store(engine.as_ref(), &args.image).await,
        None => of_runtime(images, &args.image).await,
    };
    let found = found.map_err(|error| Failure::call(format!("history of {}", args.image), &error))?;
    let image = found.ok_or_else(|| Failure::failed(format!("no such image: {}", args.image)))?;
    app.printer.report(&Steps(steps(&image, Timestamp::now())?))
}

/// The parts of an image that its history is made of.
struct ImageHistory {
    id: String,
    config: Vec<u8>,
    /// Bytes of each layer, lowest first; `None` if the size is not known.
    layer_bytes: Vec<Option<u64>>,
}

async fn of_store(engine: &dyn ImageEngine, image: &str) -> cri_api::Result<Option<ImageHistory>> {
    let documents = engine.image_documents(&ImageSpec::new(image)).await?;
    Ok(documents.map(|ImageDocuments { id, config, layer_bytes, .. }| ImageHistory {
        id,
        config,
        layer_bytes: layer_bytes.into_iter().map(Some).collect(),
    }))
}

/// Returns the history of a runtime's image, whose config is in the verbose status.
async fn of_runtime(images: &Images, text: &str) -> cri_api::Result<Option<ImageHistory>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        image_spec: Value,
    }
    let status = images.inspect(&ImageSpec::new(text)).await?;
    let Some(image) = status.image else { return Ok(None) };
    let info = status.info.get("info").and_then(|info| serde_json::from_str::<Info>(info).ok());
    let Some(Info { image_spec }) = info else {
        return Err(cri_api::Error::new(
            cri_api::Kind::Unimplemented,
            "the runtime does not report the image's config",
        ));
    };
    let diff_ids = image_spec["rootfs"]["diff_ids"].as_array().map(Vec::as_slice).unwrap_or_default();
    let diff_ids: Option<Vec<Digest>> = diff_ids.iter().map(|id| id.as_str()?.parse().ok()).collect();
    let diff_ids = diff_ids.unwrap_or_default();
    let layer_bytes = match images.facts() {
        Some(facts) => facts.layer_bytes(&diff_ids).await?,
        None => None,
    };
    let layer_bytes = match layer_bytes {
        Some(bytes) => bytes.into_iter().map(Some).collect(),
        None => vec![None; diff_ids.len()],
    };
    Ok(Some(ImageHistory { id: image.id, config: image_spec.to_string().into_bytes(), layer_bytes }))
}

/// Returns the steps, the last one first. Layers that no step names become steps without a command.
fn steps(image: &ImageHistory, now: Timestamp) -> Outcome<Vec<Step>> {
    let ImageHistory { id, config, layer_bytes } = image;
    let parsed: ConfigHistory = oci::json::from_slice(config)
        .map_err(|error| Failure::failed(format!("the config of image {id} cannot be read: {error}")))?;
    let mut layers = layer_bytes.iter().copied();
    let mut steps = Vec::new();
    for entry in parsed.history.unwrap_or_default() {
        let entry = entry.unwrap_or_default();
        let empty_layer = entry.empty_layer.unwrap_or_default();
        let created = entry.created.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        steps.push(Step {
            id: String::new(),
            age: created.map(|created| age(created, now)).unwrap_or_default(),
            created,
            created_by: entry.created_by.unwrap_or_default(),
            size: if empty_layer { Some(0) } else { layers.next().unwrap_or(Some(0)) },
            comment: entry.comment.unwrap_or_default(),
            empty_layer,
        });
    }
    let rest = |size| Step {
        id: String::new(),
        created: None,
        created_by: String::new(),
        size,
        comment: String::new(),
        empty_layer: false,
        age: String::new(),
    };
    steps.extend(layers.map(rest));
    steps.reverse();
    if let Some(last) = steps.first_mut() {
        id.clone_into(&mut last.id);
    }
    Ok(steps)
}

/// Returns the age of a time, worded as in podman.
fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    const UNITS: [(i64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
    ];
    let (count, unit) = UNITS
        .into_iter()
        .map(|(length, unit)| (seconds / length, unit))
        .find(|(count, _)| *count > 0)
        .unwrap_or((seconds, "second"));
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_layers_belong_together() {
        let config = br#"{"history": [
            {"created": "2024-01-01T00:00:00Z", "created_by": "ADD rootfs.tar /", "comment": "base"},
            {"created": "2024-01-01T00:01:00Z", "created_by": "CMD [\"sh\"]", "empty_layer": true},
            {"created_by": "RUN a command that is much longer than what fits into a table"}
        ]}"#;
        let now: Timestamp = "2024-01-03T00:00:00Z".parse().expect("a time");
        let image = |config: &[u8], layer_bytes| ImageHistory {
            id: "sha256:0123456789abcdef".to_owned(),
            config: config.to_vec(),
            layer_bytes,
        };
        let text = Steps(steps(&image(config, vec![Some(4_000_000), Some(200), Some(30)]), now).expect("reads"));
        let want = "\
ID             CREATED      CREATED BY                                      SIZE   COMMENT
0123456789ab   -            -                                               30B    -
<missing>      -            RUN a command that is much longer than what …   200B   -
<missing>      1 day ago    CMD [\"sh\"]                                      0B     -
<missing>      2 days ago   ADD rootfs.tar /                                4MB    base
";
        assert_eq!(text.table(false, false).render(), want);
        let sizes = |image| steps(&image, now).expect("reads").iter().map(|step| step.size).collect::<Vec<_>>();
        assert_eq!(sizes(image(config, vec![None, None])), [None, Some(0), None], "sizes that are not known");
        assert!(sizes(image(br#"{"history": null}"#, Vec::new())).is_empty());
        assert!(steps(&image(b"3", Vec::new()), now).is_err());
    }

    #[test]
    fn ages() {
        let now: Timestamp = "2024-06-01T00:00:00Z".parse().expect("a time");
        for (then, want) in [
            ("2024-06-01T00:00:00Z", "0 seconds ago"),
            ("2024-05-31T23:58:59Z", "1 minute ago"),
            ("2024-05-31T20:00:00Z", "4 hours ago"),
            ("2024-05-20T00:00:00Z", "1 week ago"),
            ("2022-05-20T00:00:00Z", "2 years ago"),
            ("2030-01-01T00:00:00Z", "0 seconds ago"),
        ] {
            assert_eq!(age(then.parse().expect("a time"), now), want, "{then}");
        }
    }
}
