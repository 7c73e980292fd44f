//! `imagelet export`: images of the embedded store as an OCI layout or an archive.

use std::io::IsTerminal as _;
use std::path::Path;

use cri_api::engine::{Compress, ExportOptions, Format};

use crate::app::App;
use crate::args::archives::{PLATFORM_HINT, format_of, platforms};
use crate::args::{Export, ExportCompression, ExportFormat};
use crate::exit::{Failure, Outcome};

/// Standard output as a path that an agent can open as well.
const STDOUT: &str = "/dev/stdout";

pub(super) async fn run(app: &App, args: &Export) -> Outcome {
    let compress = match args.compress {
        ExportCompression::AsPulled => Compress::AsPulled,
        ExportCompression::None => Compress::No,
        ExportCompression::Gzip => Compress::Gzip,
        ExportCompression::Zstd => Compress::Zstd,
    };
    let format = match args.format {
        Some(format) => format,
        None => {
            let there = tokio::fs::metadata(&args.path).await.ok();
            let is_directory = there.as_ref().is_some_and(std::fs::Metadata::is_dir);
            format_of(&args.path, is_directory, there.is_some()).map_err(Failure::usage)?
        }
    };
    write(app, "export", &args.images, &args.path, format, compress, &args.platforms.platforms).await?;
    if args.path != "-" {
        tracing::info!(path = %args.path, "written");
    }
    Ok(())
}

/// Writes images to a path, or to standard output.
pub(super) async fn write(
    app: &App,
    command: &str,
    images: &[String],
    path: &str,
    format: ExportFormat,
    compress: Compress,
    wanted: &[String],
) -> Outcome {
    let (format, is_directory) = match format {
        ExportFormat::Oci => (Format::OciLayout, true),
        ExportFormat::OciArchive => (Format::OciArchive, false),
        ExportFormat::DockerArchive => (Format::DockerArchive, false),
        ExportFormat::DockerDir => (Format::DockerDirectory, true),
    };
    let (shown, path) = match path {
        "-" if is_directory => {
            return Err(Failure::usage(format!(
                "{command}: this format is a directory, and cannot go to standard output: -o DIR"
            )));
        }
        "-" if std::io::stdout().is_terminal() => {
            return Err(Failure::usage(format!(
                "{command}: an archive is not for a terminal: name a file with -o, or send standard output to a file or a pipe"
            )));
        }
        "-" => ("standard output", STDOUT),
        path => (path, path),
    };
    let engine = app.engine(command).await?;
    let options = ExportOptions { format, compress, platforms: platforms(wanted) };
    let exported = engine.export_images(images, Path::new(path), options).await;
    exported.map_err(|error| {
        Failure::call(format!("{command} to {shown}"), &error).with_platform_hint(&error, PLATFORM_HINT)
    })
}
