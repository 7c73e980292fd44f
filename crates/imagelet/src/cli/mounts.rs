//! `imagelet mounts`: the layers in a container runtime's store that are EROFS files, and their mounts.

use std::path::PathBuf;

use base::layer_mount::{LayerRoots, linked_layers, mount_all};
use serde::Serialize;

use crate::app::App;
use crate::args::Mounts;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Report, Table, units};

/// The directories with layers.
#[derive(Serialize)]
struct LayerList {
    layers: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// Directory of the layers of a runtime.
    directory: PathBuf,
    /// Number of layers that are EROFS files.
    files: usize,
    /// Number of these that are mounted.
    mounted: usize,
    /// Bytes on disk of the files.
    bytes: u64,
}

impl Report for LayerList {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["DIRECTORY", "FILES", "MOUNTED", "SIZE"]);
        for Row { directory, files, mounted, bytes } in &self.layers {
            let (files, mounted) = (files.to_string(), mounted.to_string());
            table.row([directory.display().to_string(), files, mounted, units::bytes(*bytes)]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.layers.iter().map(|row| row.directory.display().to_string()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.names()
    }
}

pub(super) fn run(app: &App, args: &Mounts) -> Outcome {
    let roots = LayerRoots::of(&app.config.root).all();
    let roots = roots.map_err(|error| Failure::failed(format!("find the layers that are EROFS files: {error}")))?;
    let (mut layers, mut failures) = (Vec::new(), 0_usize);
    for (directory, tree) in roots {
        if !directory.exists() {
            tracing::debug!(directory = %directory.display(), "there is no such directory of layers");
            continue;
        }
        let failed = |error: std::io::Error| {
            let code = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::NotPermitted,
                _ => Code::Failed,
            };
            Failure::new(code, format!("read the layers in {}: {error}", directory.display()))
        };
        if args.all {
            for (layer, error) in mount_all(&directory, &tree).map_err(failed)?.failed {
                tracing::error!(layer = %layer.display(), %error, "a layer is not mounted: its images count as absent");
                failures += 1;
            }
        }
        let found = linked_layers(&directory, &tree).map_err(failed)?;
        let mounted = found.iter().filter(|layer| layer.is_mounted()).count();
        let bytes = found.iter().map(base::layer_mount::LayerMount::bytes).sum();
        if !found.is_empty() {
            layers.push(Row { directory, files: found.len(), mounted, bytes });
        }
    }
    if !args.all || app.printer.format.is_some() {
        app.printer.report(&LayerList { layers })?;
    }
    match failures {
        0 => Ok(()),
        _ => Err(Failure::failed(format!("{failures} layers are not mounted"))),
    }
}
