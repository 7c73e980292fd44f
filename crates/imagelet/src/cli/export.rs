//! `imagelet export`: images of the embedded store as an OCI layout or an archive.

use std::path::Path;

use image_service::Format;

use crate::app::App;
use crate::args::{Export, ExportFormat};
use crate::exit::{Failure, Outcome};

pub(super) async fn run(app: &App, args: &Export) -> Outcome {
    let format = match args.format {
        ExportFormat::Oci => Format::OciLayout,
        ExportFormat::OciArchive => Format::OciArchive,
        ExportFormat::DockerArchive => Format::DockerArchive,
    };
    let engine = app.engine("export").await?;
    let exported = engine.export(&args.images, Path::new(&args.path), format).await;
    exported.map_err(|error| Failure::call(format!("export to {}", args.path), &error))?;
    tracing::info!("written to {}", args.path);
    Ok(())
}
