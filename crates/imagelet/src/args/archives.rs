//! Arguments of the commands that import images from files and export them to files.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use oci::Platform;

use crate::config::flags::WithoutI;
use crate::output::Format;

/// Import images from an OCI layout, a docker archive or a directory of skopeo's
///
/// An OCI layout is a directory or a tar file, a docker archive a tar file; `dir:` directories of skopeo and podman are read, too.
/// Tar files may be compressed with gzip, zstd or xz. Every image is imported, under the names in the file; other
/// artifacts (charts, attestations) are skipped with a line on standard error. Image ids do not change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet import images.tar.xz
  ssh build podman save app:1 | imagelet import -
  imagelet import ./layout --image v1 --name registry.example/app:1
  imagelet import ./layout --platform linux/arm64 --platform linux/amd64")]
pub(crate) struct Import {
    /// Directory or tar file; `-` is standard input
    #[arg(value_name = "PATH|-", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Name for the image; without it, the names in the file. A digest in a name must be the image's
    #[arg(long, value_name = "REF")]
    pub(crate) name: Option<String>,
    /// Import only this image: by name or tag as the file has it, or by the digest of its manifest; may be given again
    #[arg(long = "image", value_name = "NAME")]
    pub(crate) images: Vec<String>,
    #[command(flatten)]
    pub(crate) platforms: ImportPlatforms,
}

/// Load images from an archive: `import` with the options of podman and docker
///
/// As `imagelet import`, with their arguments and output.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet load -i images.tar
  podman save app:1 | imagelet load")]
pub(crate) struct Load {
    /// Archive or directory [default: standard input]
    #[arg(long, short = 'i', value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) platforms: ImportPlatforms,
    #[command(flatten)]
    pub(crate) without_i: WithoutI,
}

/// Platforms of an import.
#[derive(Debug, Args)]
pub(crate) struct ImportPlatforms {
    /// Platform to import, or `all`; may be given again. The image of the machine's platform gets the name, or else
    /// the first one; the others have only digests [default: the machine's]
    #[arg(id = "platform", long = "platform", value_name = "OS/ARCH[/VARIANT]|all", value_parser = platform)]
    pub(crate) platforms: Vec<String>,
}

/// Platforms of an export.
#[derive(Debug, Args)]
pub(crate) struct ExportPlatforms {
    /// Platform to write if the image is present for several, or `all`; may be given again [default: the named image]
    #[arg(id = "platform", long = "platform", value_name = "OS/ARCH[/VARIANT]|all", value_parser = platform)]
    pub(crate) platforms: Vec<String>,
}

/// The flag that helps if an image has no variant for a platform.
pub(crate) const PLATFORM_HINT: &str = "--platform names another one, --platform all takes every one";

/// The value that selects every platform.
const ALL: &str = "all";

// Returns text, since the setting of the same name is text, and clap stores both under one id.
fn platform(text: &str) -> Result<String, String> {
    match text {
        ALL => Ok(text.to_owned()),
        _ => text.parse::<Platform>().map(|_| text.to_owned()).map_err(|error| format!("{error}, or `all`")),
    }
}

/// Returns the platforms of arguments, which their parser has checked.
pub(crate) fn platforms(texts: &[String]) -> cri_api::engine::Platforms {
    let parsed: Vec<Platform> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    match texts {
        [] => cri_api::engine::Platforms::Own,
        _ if parsed.len() < texts.len() => cri_api::engine::Platforms::All,
        _ => cri_api::engine::Platforms::These(parsed),
    }
}

/// Write images to an OCI layout or an archive
///
/// An existing file is replaced once the archive is complete. A symbolic link is followed; a device or a pipe, such as
/// /dev/stdout, is written to directly. Without --format, PATH decides: `-`, a name that ends in .tar, and a file that is there
/// mean an archive, a directory and any other name a layout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet export app:1 -o app.tar
  imagelet export app:1 web:2 -o layout/
  imagelet export app:1 -o - | zstd > app.tar.zst
  imagelet export app:1 --platform all -o app.tar")]
pub(crate) struct Export {
    /// Image by name or id
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    /// Destination; `-` is standard output
    #[arg(id = "output", long = "output", short = 'o', value_name = "PATH|-", required = true, value_parser = destination, value_hint = ValueHint::AnyPath)]
    pub(crate) path: String,
    /// Format of the export: a directory, or a tar file in one of two formats [default: by PATH]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<ExportFormat>,
    /// Compression of the layers of an OCI layout. The image id stays the same; so does the manifest's digest if all blobs
    /// of the image were kept (see --keep-blobs)
    #[arg(long, value_name = "HOW", default_value = "as-pulled")]
    pub(crate) compress: ExportCompression,
    #[command(flatten)]
    pub(crate) platforms: ExportPlatforms,
}

/// Save images to an archive: `export` with the options of podman and docker
///
/// As `imagelet export`, with their arguments: a docker archive unless --format says otherwise, on standard output unless
/// --output names a file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet save -o app.tar app:1 web:2
  imagelet save app:1 | ssh node imagelet load
  imagelet save --format oci-archive -o app.tar app:1")]
pub(crate) struct Save {
    /// Image by name or id
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    /// File, or directory of the formats that are one [default: standard output]
    #[arg(id = "output", long = "output", short = 'o', value_name = "FILE", default_value = "-", value_hint = ValueHint::AnyPath)]
    pub(crate) path: String,
    /// Format of the archive
    #[arg(long, value_name = "FORMAT", default_value = "docker-archive")]
    pub(crate) format: ExportFormat,
    /// Accepted for scripts that were written for podman: archives hold several images anyway
    #[arg(long, short = 'm', hide = true)]
    pub(crate) multi_image_archive: bool,
    #[command(flatten)]
    pub(crate) platforms: ExportPlatforms,
}

/// Compression of exported layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportCompression {
    /// As pulled, with the pulled manifest, if all blobs of the image were kept; otherwise none
    AsPulled,
    /// No compression: the fastest
    None,
    /// Gzip, which every tool reads
    Gzip,
    /// Zstd
    Zstd,
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A directory with an OCI layout
    #[value(alias = "oci-dir")]
    Oci,
    /// A tar file with an OCI layout
    OciArchive,
    /// A tar file as `docker save` writes it
    DockerArchive,
    /// A directory with one image, as skopeo's `dir:` writes it
    #[value(alias = "dir")]
    DockerDir,
}

/// Refuses values that belong to another flag.
fn destination(text: &str) -> Result<String, String> {
    let formats = ["jsonpath=", "go-template=", "custom-columns="];
    if Format::NAMES.contains(&text) || formats.iter().any(|format| text.starts_with(format)) {
        return Err(format!(
            "-o is the destination of an export, and it prints no {text}; ./{text} is a file of this name"
        ));
    }
    // `oci` and `dir` are left out: they are plausible names of directories.
    if ["oci-archive", "oci-dir", "docker-archive", "docker-dir"].contains(&text) {
        return Err(format!("-o is the destination, and --format {text} the format; ./{text} is a file of this name"));
    }
    Ok(text.to_owned())
}

/// The format that a destination means by itself; `is_directory` and `exists` say what is there.
///
/// # Errors
/// The name promises a compression.
pub(crate) fn format_of(path: &str, is_directory: bool, exists: bool) -> Result<ExportFormat, String> {
    if path.ends_with('/') || is_directory {
        return Ok(ExportFormat::Oci);
    }
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    let packed = [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".txz", ".tar.bz2"];
    if let Some(ending) = packed.iter().find(|ending| name.ends_with(**ending)) {
        return Err(format!(
            "{path}: an archive is not compressed as a whole, as {ending} says: compress its layers (--compress gzip, -o FILE.tar), or \
             send it through a program (-o - | …)"
        ));
    }
    let is_archive = path == "-" || exists || name.ends_with(".tar");
    Ok(if is_archive { ExportFormat::OciArchive } else { ExportFormat::Oci })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_means_a_format() {
        for (path, is_directory, exists, want) in [
            ("-", false, false, Some(ExportFormat::OciArchive)),
            ("a.tar", false, false, Some(ExportFormat::OciArchive)),
            ("dir/A.TAR", false, false, Some(ExportFormat::OciArchive)),
            ("a.tar", true, true, Some(ExportFormat::Oci)),
            ("a.tar/", false, false, Some(ExportFormat::Oci)),
            ("layout", false, false, Some(ExportFormat::Oci)),
            ("layout", true, true, Some(ExportFormat::Oci)),
            ("image", false, true, Some(ExportFormat::OciArchive)),
            ("a.tar.gz", false, false, None),
            ("a.tgz", false, true, None),
        ] {
            assert_eq!(format_of(path, is_directory, exists).ok(), want, "{path}");
        }
    }

    #[test]
    fn platforms_are_some_or_all() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(platforms(&[]), cri_api::engine::Platforms::Own);
        assert_eq!(platforms(&texts(&["linux/arm64", "all"])), cri_api::engine::Platforms::All);
        let these = platforms(&texts(&["linux/aarch64"]));
        assert_eq!(these, cri_api::engine::Platforms::These(vec!["linux/arm64".parse().expect("parses")]));
        assert!(platform("arm64").is_err());
    }
}
