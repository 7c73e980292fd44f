//! The arguments and help texts of names and history of images: `tag`, `untag`, `history`, `prune`. Parses and checks the form
//! of values, nothing more.

use clap::Args;

/// Give an image more names
///
/// A name that another image has is taken from that image. Who may use the image does not change with it: a pod that names it
/// differently shows its credentials for that name. Prints the new names.
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

/// Take names from an image
///
/// The image stays, also without a name: `imagelet prune` removes such images. Without names, all tags are taken. Prints the
/// names that are taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet untag registry.example/team/app:1 registry.example/team/app:1
  imagelet untag 3b1e")]
pub(crate) struct Untag {
    /// Image by name or id
    #[arg(value_name = "IMAGE", value_parser = super::remote::image)]
    pub(crate) image: String,
    /// Name to take [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Show how an image was built
///
/// From the image's config, the last step first. SIZE is the content of the step's layer.
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
/// Images that a container uses, that are pinned or kept by a rule stay. Nothing is asked first. `prune --all` is `gc --all-unused --now`;
/// `rmi --all` removes every image.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet prune
  imagelet prune --all --dry-run")]
pub(crate) struct Prune {
    /// Every image that nothing uses
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only show what would be removed
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// For scripts of other tools: nothing is asked in any case
    #[arg(long, short, hide = true)]
    pub(crate) force: bool,
}
