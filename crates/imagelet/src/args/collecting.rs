//! The arguments and help texts of garbage collection, pins and checks of the store. Parses and checks the form of values,
//! nothing more.

use std::time::Duration;

use clap::{Args, Subcommand};

/// Remove unused images
///
/// Without a goal it does what an agent does every five minutes: it removes images unused for longer than imageMaximumGCAge and,
/// if the image file system is fuller than imageGCHighThresholdPercent, the least recently used ones until
/// imageGCLowThresholdPercent is reached. It never removes images that a container uses, that are pinned or kept by a rule, or
/// that are younger than imageMinimumGCAge. Images that were pulled before their first use are removed last. A layer counts as
/// freed space only if no remaining image has it.
///
/// With --image-endpoint, containers are listed on the same endpoint, or on --runtime-endpoint; if they cannot be listed, nothing
/// is removed. If an agent owns the store, the agent does the work.
///
/// Exit code: 0 if the goal is reached; 1 if an image could not be removed, or too little can be removed. A dry run whose goal
/// cannot be reached is 0.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  imagelet gc --dry-run                   which images would be removed, and why the others are kept
  imagelet gc --until-free 20GB           until 20 GB are free on the image file system
  imagelet gc --older-than 7d             images unused for a week
  imagelet gc --all-unused --now          all unused images, also those that were just pulled
  imagelet gc explain busybox:1           why this image would be kept or removed"
)]
#[command(group(clap::ArgGroup::new("goal").args(["until_free", "older_than", "all_unused", "interrupted"])))]
pub(crate) struct Gc {
    #[command(subcommand)]
    pub(crate) action: Option<GcAction>,
    /// Only show which images would be removed, and why the others are kept
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Remove the least recently used images until this much space is free on the image file system
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) until_free: Option<u64>,
    /// Remove images unused for longer than this
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Option<Duration>,
    /// Remove all unused images
    #[arg(long)]
    pub(crate) all_unused: bool,
    /// Remove only the data that interrupted pulls left on the disk
    #[arg(long, conflicts_with_all = ["min_age", "now"])]
    pub(crate) interrupted: bool,
    /// Keep images that have been on the node for less than this [default: imageMinimumGCAge]
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) min_age: Option<Duration>,
    /// Also remove images that were just pulled; short for `--min-age 0s`
    #[arg(long, conflicts_with = "min_age")]
    pub(crate) now: bool,
}

/// Subcommands of `imagelet gc`.
#[derive(Debug, Subcommand)]
pub(crate) enum GcAction {
    Explain(GcExplain),
    Containers(GcContainers),
}

/// Remove ended containers and their logs
///
/// As in the kubelet: the newest ended instance of each container is kept for its logs, and old sandboxes without containers
/// are removed. Nothing is removed from a pod that may be running. The containers are those of --runtime-endpoint, or of
/// --image-endpoint.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet -r unix:///run/containerd/containerd.sock gc containers --dry-run
  imagelet -r unix:///run/containerd/containerd.sock --maximum-dead-containers-per-container 0 gc containers")]
pub(crate) struct GcContainers {
    /// Only show what would be removed, and why the rest is kept
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

/// Explain whether images would be removed, when, and why
#[derive(Debug, Args)]
pub(crate) struct GcExplain {
    /// Image by name or id; a repository alone means all of its tags
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
}

/// Verify the store
///
/// Reads every layer, config and manifest, compares them with their digests and sizes, and finds data that belongs to no image.
/// Reports each problem with the images that have it. Changes nothing without --repair; images can be used meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet check
  imagelet check --deep -o json
  imagelet check --repair

Exit code: 1 if there is a problem.")]
pub(crate) struct Check {
    /// Remove damaged images, so that the next pull fetches them again; delete data of no image; correct counts
    #[arg(long)]
    pub(crate) repair: bool,
    /// Also compare every file, directory and link with the layer that it came from
    #[arg(long)]
    pub(crate) deep: bool,
}

/// Convert layers between directories and EROFS files
///
/// A layer is an EROFS file or a directory tree; layerFormat decides about new ones. Each layer is unpacked once more from the
/// content of the store and verified against its digest, and nothing is fetched; then it replaces the old one in every
/// image that has it. Images can be used meanwhile. A mounted layer stays as it is and is reported. The disk needs space for
/// an image in both shapes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet convert --to erofs --all
  imagelet convert --to dir registry.example/app:1

Exit code: 1 while a layer has the other shape.")]
pub(crate) struct Convert {
    /// The shape: erofs or dir
    #[arg(long, value_name = "SHAPE", value_parser = ["erofs", "dir"])]
    pub(crate) to: String,
    /// Image by name or id
    #[arg(value_name = "IMAGE", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) images: Vec<String>,
    /// Every image of the store
    #[arg(long)]
    pub(crate) all: bool,
}

/// Exclude images from garbage collection
///
/// Takes names, ids and patterns: registry.example/team/* is one level, registry.example/** everything below; without a tag,
/// every tag. A pin also applies to images that are pulled later. `rmi` removes pinned images as well. `imagelet serve` reports
/// pins to its kubelet, which does not collect these images either.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet pin registry.example/base/os:12
  imagelet pin 'registry.example/base/*' sha256:0123456789ab")]
pub(crate) struct PinArgs {
    /// Image, or pattern of images
    #[arg(required = true, value_name = "IMAGE|PATTERN")]
    pub(crate) patterns: Vec<String>,
}

/// Remove pins
///
/// Name the pin as `imagelet pins` lists it.
#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// Image, or pattern of images
    #[arg(required = true, value_name = "IMAGE|PATTERN")]
    pub(crate) patterns: Vec<String>,
}

/// Parses an age: days, then a duration in Go's spelling.
fn age(text: &str) -> Result<Duration, String> {
    const DAY: u64 = 24 * 3600;
    let wrong = || "it must be an age such as 7d, 12h or 90m".to_owned();
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days.parse::<u64>().map_err(|_| wrong())?, rest),
        None => (0, text),
    };
    let rest = match rest {
        "" if text.ends_with('d') => Duration::ZERO,
        _ => base::GoDuration::parse_unsigned(rest).ok_or_else(wrong)?,
    };
    let days = days.checked_mul(DAY).map(Duration::from_secs);
    days.and_then(|days| days.checked_add(rest)).ok_or_else(wrong)
}

/// Parses a size: bytes, or a number with a unit.
fn size(text: &str) -> Result<u64, String> {
    crate::output::units::parse_bytes(text).ok_or_else(|| "it must be a size such as 20GiB, 500MB or 1.5G".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("imagelet").chain(line.split_whitespace()))
    }

    #[test]
    fn a_collection_has_one_goal() {
        for line in [
            "gc --until-free 1G --all-unused",
            "gc --interrupted --all-unused",
            "gc --interrupted --now",
            "gc --now --min-age 1h",
            "gc --older-than 7d --all-unused",
            "gc --until-free 5",
            "gc --until-free=-1",
            "gc --until-free 1X",
            "gc --older-than 7",
            "gc --older-than d",
            "gc explain",
            "gc --dry-run explain x",
            "gc busybox",
            "pin",
            "unpin",
        ] {
            let refused = parse(line).is_err();
            assert!(refused == (line != "gc --until-free 5"), "{line}");
        }
        let Command::Gc(gc) = parse("gc --until-free 1.5GiB --min-age 1d12h").expect("parses").command else {
            panic!("a collection")
        };
        assert_eq!((gc.until_free, gc.min_age), (Some(3 << 29), Some(Duration::from_secs(36 * 3600))));
        let Command::Gc(gc) = parse("gc --all-unused --now").expect("parses").command else { panic!("a collection") };
        assert!(gc.all_unused && gc.now && !gc.interrupted);
        assert!(parse("gc -n --interrupted").is_ok());
        let Command::Gc(gc) = parse("gc -n --older-than 7d").expect("parses").command else { panic!("a collection") };
        assert_eq!((gc.dry_run, gc.older_than), (true, Some(Duration::from_secs(7 * 24 * 3600))));
        assert!(parse("gc explain busybox:1 -o json").is_ok() && parse("gc containers -n").is_ok());
    }
}
