//! `imagelet import`: images from an OCI layout or an archive into the embedded store.

use engine_api::{ImportOptions, ImportedImage};
use oci::Reference;
use serde::Serialize;

use crate::app::App;
use crate::args::Import;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    names: Vec<String>,
}

#[derive(Serialize)]
struct Imported {
    images: Vec<Row>,
}

impl Report for Imported {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["IMPORTED", "IMAGE ID"]);
        for row in &self.images {
            let none = ["<none>".to_owned()];
            for name in if row.names.is_empty() { &none[..] } else { &row.names[..] } {
                table.row([name.clone(), units::id(&row.id, whole)]);
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

pub(super) async fn run(app: &App, args: &Import) -> Outcome {
    let parse =
        |text: &String| Reference::parse(text).map_err(|error| Failure::usage(format!("--name {text:?}: {error}")));
    let name = args.name.as_ref().map(parse).transpose()?;
    let engine = app.engine("import").await?;
    app.note_unprivileged().await?;
    let context = format!("import {}", args.path.display());
    let options = ImportOptions { name, progress: app.progress.sink(&args.path.display().to_string()) };
    let imported = engine.import_images(&args.path, options).await.map_err(|error| Failure::call(&context, &error))?;
    let row = |ImportedImage { id, names }| Row { id, names };
    app.printer.report(&Imported { images: imported.into_iter().map(row).collect() })
}
