//! `imagelet history`: the steps by which an image was built, from its config.

use cri_api::ImageSpec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::args::History;
use crate::exit::{Failure, Outcome};
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
    size: u64,
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
            table.row([id, step.age.clone(), command, units::bytes(step.size), step.comment.clone()]);
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
    let engine = app.engine("history").await?;
    let found = engine.image_documents(&ImageSpec::new(&args.image)).await;
    let found = found.map_err(|error| Failure::call(format!("history of {}", args.image), &error))?;
    let documents = found.ok_or_else(|| Failure::failed(format!("no such image: {}", args.image)))?;
    let steps = steps(&documents.id, &documents.config, &documents.layer_bytes, Timestamp::now())?;
    app.printer.report(&Steps(steps))
}

/// Returns the steps, the last one first. Layers that no step names become steps without a command.
fn steps(id: &str, config: &[u8], layers: &[u64], now: Timestamp) -> Outcome<Vec<Step>> {
    let parsed: ConfigHistory = oci::json::from_slice(config)
        .map_err(|error| Failure::failed(format!("the config of image {id} cannot be read: {error}")))?;
    let mut layers = layers.iter().copied();
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
            size: if empty_layer { 0 } else { layers.next().unwrap_or_default() },
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
        let text = Steps(steps("sha256:0123456789abcdef", config, &[4_000_000, 200, 30], now).expect("reads"));
        let want = "\
ID             CREATED      CREATED BY                                      SIZE   COMMENT
0123456789ab   -            -                                               30B    -
<missing>      -            RUN a command that is much longer than what …   200B   -
<missing>      1 day ago    CMD [\"sh\"]                                      0B     -
<missing>      2 days ago   ADD rootfs.tar /                                4MB    base
";
        assert_eq!(text.table(false, false).render(), want);
        assert!(steps("x", br#"{"history": null}"#, &[], now).expect("reads").is_empty());
        assert!(steps("x", b"3", &[], now).is_err());
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
