//! `imagelet load`: an import with the arguments and the output of podman and docker.

use std::path::Path;

use cri_api::engine::ImportOptions;

use super::import;
use crate::app::App;
use crate::args::Load;
use crate::args::archives::platforms;
use crate::exit::Outcome;

pub(super) async fn run(app: &App, args: &Load) -> Outcome {
    let path = args.input.as_deref().unwrap_or(Path::new("-"));
    let options = ImportOptions { platforms: platforms(&args.platforms.platforms), ..ImportOptions::default() };
    let imported = import::import(app, "load", path, options).await?;
    if app.printer.format.is_some() {
        return app.printer.report(&imported);
    }
    app.printer.lines(imported.loaded().into_iter().map(|name| format!("Loaded image: {name}")))
}
