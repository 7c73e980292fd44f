//! `imagelet export`: images of the embedded store as an OCI layout or an archive.

use std::path::Path;

use engine_api::{Compress, ExportOptions, Format};

use crate::app::App;
use crate::args::{Export, ExportCompression, ExportFormat};
use crate::exit::{Failure, Outcome};

pub(super) async fn run(app: &App, args: &Export) -> Outcome {
    let format = match args.format {
        ExportFormat::Oci => Format::OciLayout,
        ExportFormat::OciArchive => Format::OciArchive,
        ExportFormat::DockerArchive => Format::DockerArchive,
    };
    let compress = match args.compress {
        ExportCompression::AsPulled => Compress::AsPulled,
        ExportCompression::None => Compress::No,
        ExportCompression::Gzip => Compress::Gzip,
        ExportCompression::Zstd => Compress::Zstd,
    };
    let engine = app.engine("export").await?;
    let exported = engine.export_images(&args.images, Path::new(&args.path), ExportOptions { format, compress }).await;
    exported.map_err(|error| Failure::call(format!("export to {}", args.path), &error))?;
    tracing::info!(path = %args.path, "written");
    Ok(())
}
