//! `imagelet check`: verifies the store, and repairs it with `--repair`. The store decides what is verified and how it is repaired.

use std::collections::BTreeMap;

use agent::api::gc::NamedImage;
use cri_api::engine::runtime_store::DamagedLayer;
use cri_api::engine::{CheckReport, CheckRequest, LayerShape, LayerShapes, ProblemKind, UnfinishedPulls};
use serde::Serialize;

use crate::app::App;
use crate::args::Check;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

/// A report with the names of its images.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    layers_checked: u64,
    bytes_checked: u64,
    images_checked: u64,
    problems: Vec<Problem>,
    /// Images that lack a layer and must be pulled again.
    incomplete_images: Vec<NamedImage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer_shapes: Option<LayerShapes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished_pulls: Option<UnfinishedPulls>,
}

#[derive(Serialize)]
struct Problem {
    kind: ProblemKind,
    subject: String,
    detail: String,
    images: Vec<NamedImage>,
    repaired: bool,
}

fn named(ids: Vec<String>, names: &BTreeMap<String, Vec<String>>) -> Vec<NamedImage> {
    let held = |id: String| NamedImage { names: names.get(&id).cloned().unwrap_or_default(), id };
    ids.into_iter().map(held).collect()
}

impl Checked {
    fn new(report: CheckReport, names: &BTreeMap<String, Vec<String>>) -> Self {
        let problem = |problem: cri_api::engine::Problem| {
            let cri_api::engine::Problem { kind, subject, detail, images, repaired } = problem;
            Problem { kind, subject, detail, images: named(images, names), repaired }
        };
        Self {
            layers_checked: report.layers_checked,
            bytes_checked: report.bytes_checked,
            images_checked: report.images_checked,
            problems: report.problems.into_iter().map(problem).collect(),
            incomplete_images: named(report.incomplete_images, names),
            layer_shapes: report.layer_shapes,
            unfinished_pulls: report.unfinished_pulls,
        }
    }

    fn remaining(&self) -> usize {
        self.problems.iter().filter(|problem| !problem.repaired).count()
    }

    /// Returns the lines after the table.
    fn lines(&self) -> Vec<String> {
        let (layers, images) = (units::count(self.layers_checked, "layer"), units::count(self.images_checked, "image"));
        let bytes = units::bytes(self.bytes_checked);
        let found = self.problems.len();
        let verdict = match (found, found - self.remaining()) {
            (0, _) => "everything is as it should be".to_owned(),
            (found, 0) => units::count(found as u64, "problem"),
            (found, repaired) => format!("{}, {repaired} repaired", units::count(found as u64, "problem")),
        };
        let mut lines = vec![format!("Checked {layers} ({bytes}) and {images}: {verdict}.")];
        if !self.incomplete_images.is_empty() {
            let images: Vec<String> = self.incomplete_images.iter().map(|image| title(image, false)).collect();
            lines.push(format!("Absent until they are pulled again: {}.", images.join(", ")));
        }
        lines.extend(self.layer_shapes.as_ref().map(shapes));
        let left = self.unfinished_pulls.filter(|left| *left != UnfinishedPulls::default());
        lines.extend(left.map(|left| {
            let bytes = units::bytes(left.bytes);
            format!("Leftovers of interrupted pulls: {left} ({bytes}); a later pull verifies them before it uses them.")
        }));
        lines
    }
}

/// Returns the shapes of the existing layers, and that of new ones.
fn shapes(shapes: &LayerShapes) -> String {
    let LayerShapes { dir, erofs, new, why } = shapes;
    let what = |shape| match shape {
        LayerShape::Dir => ("directory", "directories"),
        LayerShape::Erofs => ("EROFS file", "EROFS files"),
    };
    let there: Vec<String> = [(dir, LayerShape::Dir), (erofs, LayerShape::Erofs)]
        .into_iter()
        .filter(|(count, _)| **count > 0)
        .map(|(count, shape)| format!("{count} {}", if *count == 1 { what(shape).0 } else { what(shape).1 }))
        .collect();
    let there = if there.is_empty() { "none yet".to_owned() } else { there.join(", ") };
    format!("Layers on the disk: {there}; new ones become {}: {why}.", what(*new).1)
}

fn title(image: &NamedImage, whole: bool) -> String {
    image.names.first().cloned().unwrap_or_else(|| units::id(&image.id, whole))
}

impl Report for Checked {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["PROBLEM", "WHERE", "IMAGES", "REPAIRED", "DETAIL"]);
        for problem in &self.problems {
            let images: Vec<String> = problem.images.iter().map(|image| title(image, whole)).collect();
            let repaired = if problem.repaired { "yes" } else { "no" };
            let Problem { kind, subject, detail, .. } = problem;
            table.row([kind.to_string(), subject.clone(), images.join(" "), repaired.to_owned(), detail.clone()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.problems.iter().map(|problem| problem.subject.clone()).collect()
    }

    /// Returns the ids of the images with problems.
    fn ids(&self) -> Vec<String> {
        let images = self.problems.iter().flat_map(|problem| &problem.images).chain(&self.incomplete_images);
        let mut ids: Vec<String> = images.map(|image| image.id.clone()).collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

pub(super) async fn run(app: &App, args: &Check) -> Outcome {
    let request = CheckRequest { repair: args.repair, deep: args.deep, since_unclean_only: false };
    let images = app.images().await?;
    let failed = |error| Failure::call("check the store", &error);
    let of_runtime = match images.facts() {
        Some(facts) => {
            let hidden = facts.hidden_records(args.repair).await.map_err(failed)?;
            let damaged = facts.damaged_layers(args.repair).await.map_err(failed)?;
            hidden.map(|hidden| (hidden, damaged.unwrap_or_default()))
        }
        None => None,
    };
    // Names first: a repair may remove them.
    let names: BTreeMap<String, Vec<String>> = app.collector().await?.names().await.unwrap_or_default();
    let report = match of_runtime {
        Some((hidden, damaged)) => runtime_report(hidden, damaged, args.repair),
        None => {
            let report = app.engine("check").await?.check_images(&request, &app.progress.check_sink()).await;
            app.progress.finish();
            report.map_err(|error| Failure::call("check the store", &error))?
        }
    };
    let checked = Checked::new(report, &names);
    let tables = app.printer.is_table();
    if !(tables && checked.problems.is_empty()) {
        app.printer.report(&checked)?;
    }
    if tables {
        app.printer.lines(checked.lines())?;
    }
    match checked.remaining() {
        0 => Ok(()),
        count => {
            let (problems, them) =
                if count == 1 { ("1 problem".to_owned(), "it") } else { (format!("{count} problems"), "them") };
            let mut left = checked.problems.iter().filter(|problem| !problem.repaired);
            let help = if left.all(|problem| problem.kind == ProblemKind::UncheckedLayer) {
                "; check once more when there is what that takes".to_owned()
            } else if args.repair {
                String::new()
            } else {
                format!("; `imagelet check --repair` makes the store good without {them}")
            };
            Err(Failure::failed(format!("the store has {problems}{help}")))
        }
    }
}

/// Returns the report on a runtime's store, of which the records and the layers that are files of ours are verified.
fn runtime_report(hidden: Vec<String>, damaged: Vec<DamagedLayer>, repaired: bool) -> CheckReport {
    let problem = |name| cri_api::engine::Problem {
        kind: ProblemKind::DamagedRecord,
        subject: name,
        detail: "the runtime shows no image for this record".to_owned(),
        images: Vec::new(),
        repaired,
    };
    let of_layer = |layer: DamagedLayer| cri_api::engine::Problem {
        kind: ProblemKind::DamagedLayer,
        subject: layer.file.display().to_string(),
        detail: layer.why,
        images: Vec::new(),
        repaired,
    };
    let problems = hidden.into_iter().map(problem).chain(damaged.into_iter().map(of_layer)).collect();
    CheckReport { problems, ..CheckReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_images_and_says_what_is_left() {
        let id = oci::Digest::sha256(b"i").to_string();
        let problem = |repaired| cri_api::engine::Problem {
            kind: ProblemKind::DamagedLayer,
            subject: "layer 7".into(),
            detail: "etc/passwd is not what it was".into(),
            images: vec![id.clone()],
            repaired,
        };
        let report = CheckReport {
            layers_checked: 3,
            bytes_checked: 5_000_000,
            images_checked: 1,
            problems: vec![problem(true), problem(false)],
            incomplete_images: vec![id.clone()],
            layer_shapes: Some(LayerShapes { dir: 1, erofs: 2, new: LayerShape::Erofs, why: "so".to_owned() }),
            unfinished_pulls: Some(UnfinishedPulls { layers: 2, blobs: 1, bytes: 7000 }),
        };
        let names = BTreeMap::from([(id.clone(), vec!["r.example/app:1".to_owned()])]);
        let checked = Checked::new(report, &names);
        assert_eq!(
            checked.table(false, false).render(),
            "PROBLEM         WHERE     IMAGES            REPAIRED   DETAIL\n\
             damaged layer   layer 7   r.example/app:1   yes        etc/passwd is not what it was\n\
             damaged layer   layer 7   r.example/app:1   no         etc/passwd is not what it was\n"
        );
        assert_eq!(
            checked.lines(),
            [
                "Checked 3 layers (5MB) and 1 image: 2 problems, 1 repaired.",
                "Absent until they are pulled again: r.example/app:1.",
                "Layers on the disk: 1 directory, 2 EROFS files; new ones become EROFS files: so.",
                "Leftovers of interrupted pulls: 2 layers, 1 part (7kB); a later pull verifies them before it uses them."
            ]
        );
        assert_eq!((checked.remaining(), checked.ids()), (1, vec![id]));
        let sound = Checked::new(CheckReport { images_checked: 2, ..CheckReport::default() }, &names);
        assert_eq!(sound.lines(), ["Checked 0 layers (0B) and 2 images: everything is as it should be."]);
    }
}
