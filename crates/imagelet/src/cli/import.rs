//! `imagelet import`: images from an OCI layout or an archive into the embedded store.

use std::io::IsTerminal as _;
use std::path::Path;

use cri_api::engine::{ImportOptions, ImportedImage, PassedBy};
use oci::Reference;
use serde::Serialize;

use crate::app::App;
use crate::args::Import;
use crate::args::archives::{PLATFORM_HINT, platforms};
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

/// Standard input as a path that an agent can open as well.
const STDIN: &str = "/dev/stdin";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    names: Vec<String>,
    platform: String,
}

/// Images that were imported.
#[derive(Serialize)]
pub(super) struct Imported {
    images: Vec<Row>,
}

impl Report for Imported {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let mut table = Table::with_wide(wide, &["IMPORTED", "IMAGE ID", "+PLATFORM"]);
        for row in &self.images {
            let none = ["<none>".to_owned()];
            for name in if row.names.is_empty() { &none[..] } else { &row.names[..] } {
                table.row([name.clone(), units::id(&row.id, whole), row.platform.clone()]);
            }
        }
        table
    }

    fn names(&self) -> Vec<String> {
        let name = |row: &Row| if row.names.is_empty() { vec![row.id.clone()] } else { row.names.clone() };
        self.images.iter().flat_map(name).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|row| row.id.clone()).collect()
    }
}

impl Imported {
    /// Returns the loaded names, as docker prints them, and the ids of images without a name.
    pub(super) fn loaded(&self) -> Vec<String> {
        self.names()
    }
}

pub(super) async fn run(app: &App, args: &Import) -> Outcome {
    let parse =
        |text: &String| Reference::parse(text).map_err(|error| Failure::usage(format!("--name {text:?}: {error}")));
    let options = ImportOptions {
        name: args.name.as_ref().map(parse).transpose()?,
        images: args.images.clone(),
        platforms: platforms(&args.platforms.platforms),
        ..ImportOptions::default()
    };
    let imported = import(app, "import", &args.path, options).await?;
    app.printer.report(&imported)
}

/// Imports the images of a path, or of standard input.
pub(super) async fn import(app: &App, command: &str, path: &Path, options: ImportOptions) -> Outcome<Imported> {
    let (shown, path) = match path.to_str() {
        Some("-") if std::io::stdin().is_terminal() => {
            return Err(Failure::usage(format!(
                "{command}: an archive does not come from a terminal: name a file, or send one to standard input"
            )));
        }
        Some("-") => ("standard input".to_owned(), Path::new(STDIN)),
        _ => (path.display().to_string(), path),
    };
    let engine = app.engine(command).await?;
    app.note_unprivileged().await?;
    let options = ImportOptions { progress: app.progress.sink(&shown), ..options };
    let report = engine.import_images(path, options).await;
    app.progress.finish();
    let report = report.map_err(|error| {
        Failure::call(format!("{command} {shown}"), &error)
            .with_platform_hint(&error, PLATFORM_HINT)
            .with_space_hint(&error)
    })?;
    for PassedBy { entry, why } in &report.passed_by {
        tracing::warn!("{shown}: {entry} is no container image and was passed by: {why}");
    }
    let row = |ImportedImage { id, names, platform }| Row { id, names, platform };
    Ok(Imported { images: report.images.into_iter().map(row).collect() })
}
