//! The arguments and help texts of names and history of images: `tag`, `untag`, `history`, `prune`. Parses and checks the form
//! of values, nothing more.

use clap::Args;

/// Add names to an image
///
/// A name that another image has moves to this image. The name gives no access: a pod that uses the new name needs credentials
/// for it. Prints the new names.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet tag busybox:1 registry.example/team/busybox:1
  imagelet tag 3b1e registry.example/team/app:2 registry.example/team/app:latest")]
pub(crate) struct Tag {
    /// Image by name or id
    #[arg(value_name = "IMAGE", value_parser = super::remote::image)]
    pub(crate) image: String,
    /// New name; without a tag, latest
    #[arg(value_name = "NAME", required = true, num_args = 1..)]
    pub(crate) names: Vec<String>,
}

/// Remove names of an image
///
/// Does not remove the image, also if no name is left; `imagelet prune` removes images without a name. Without NAME, removes all
/// tags. Prints the removed names.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet untag registry.example/team/app:1 registry.example/team/app:1
  imagelet untag 3b1e")]
pub(crate) struct Untag {
    /// Image by name or id
    #[arg(value_name = "IMAGE", value_parser = super::remote::image)]
    pub(crate) image: String,
    /// Name to remove [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Show how an image was built
///
/// Reads the image's config; the last step is first. SIZE is the size of the step's layer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet history busybox:1
  imagelet history --no-trunc -o json busybox:1")]
pub(crate) struct History {
    /// Image by name or id
    #[arg(value_name = "IMAGE", value_parser = super::remote::image)]
    pub(crate) image: String,
}

/// Remove images without a name
///
/// Keeps images that a container uses, that are pinned, or that a rule keeps. Asks for no confirmation. `prune --all` is
/// `gc --all-unused --now`; `rmi --all` removes every image.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet prune
  imagelet prune --all --dry-run")]
pub(crate) struct Prune {
    /// All unused images
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only show what would be removed
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Accepted for scripts of other tools: no confirmation is asked in any case
    #[arg(long, short, hide = true)]
    pub(crate) force: bool,
}
