//! Arguments of commands that ask a registry about images, or the node whether it has one: `pull`, `tags`, `exists`; and the parser of
//! image names. Parses and checks the form of values, nothing more.

use clap::Args;
use clap::builder::ValueParser;

use super::creds::Creds;
use super::reach::ReachArgs;

/// Transports by which other programs name images, and which are part of no name.
const TRANSPORTS: [&str; 4] = ["docker://", "docker-daemon:", "containers-storage:", "oci-archive:"];

/// Parses the name or ID of an image: any text without a transport.
pub(super) fn image(text: &str) -> Result<String, String> {
    let named = TRANSPORTS.iter().find_map(|transport| Some((transport, text.strip_prefix(transport)?)));
    match named {
        None => Ok(text.to_owned()),
        Some((&"docker://", name)) => Err(format!("write the name without docker://, as {name}")),
        Some((transport, _)) => {
            Err(format!("{transport} is not supported: name an image of the node or of a registry"))
        }
    }
}

/// Pull images
///
/// Resolves the name at the registry every time, and downloads missing layers. Prints the id of each image. Several images are
/// pulled in parallel; one that fails does not stop the others. Without --creds, uses the credentials of the node and of
/// `imagelet login` (files of docker and podman with their helpers, credential providers), and every pod may use the image.
/// With --creds, a pod may use the image only with a credential of its own that the registry accepts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet pull docker.io/library/busybox:1
  imagelet pull --all-tags registry.example/team/app
  IMAGELET_CREDS=user:password imagelet pull registry.example/team/app:2")]
pub(crate) struct Pull {
    /// Image by name, with tag or digest
    #[arg(required = true, value_name = "IMAGE", value_parser = image)]
    pub(crate) images: Vec<String>,
    /// Pull every tag of each repository, which is named without a tag
    #[arg(long, short)]
    pub(crate) all_tags: bool,
    /// Architecture of the image; short for `--platform linux/ARCH`
    #[arg(long, value_name = "ARCH", conflicts_with = "platform")]
    pub(crate) arch: Option<String>,
    /// Credential for the registry. A variable is better: other users can read the command line
    #[arg(long, value_name = "USER:PASSWORD", env = "IMAGELET_CREDS", hide_env_values = true, value_parser = ValueParser::from(Creds::parse))]
    pub(crate) creds: Option<Creds>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// List the tags of repositories in their registries
///
/// Prints one tag a line, sorted by name; of several repositories, `REPOSITORY:TAG`. A tag or digest of the name is ignored. Without
/// --creds, the credentials are those that `imagelet pull` uses. The tags that are present on the node are in
/// `imagelet images REPOSITORY`.
#[derive(Debug, Args)]
#[command(
    alias = "list-tags",
    after_help = "\
Examples:
  imagelet tags docker.io/library/busybox
  imagelet tags registry.example/team/app | grep '^1\\.'
  imagelet tags registry.example/team/app -o json"
)]
pub(crate) struct Tags {
    /// Repository, or an image of it
    #[arg(required = true, value_name = "REPOSITORY", value_parser = image)]
    pub(crate) repositories: Vec<String>,
    /// Credential for the registry. A variable is better: other users can read the command line
    #[arg(long, value_name = "USER:PASSWORD", env = "IMAGELET_CREDS", hide_env_values = true, value_parser = ValueParser::from(Creds::parse))]
    pub(crate) creds: Option<Creds>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Test whether images are present
///
/// Prints nothing and asks no registry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet exists busybox:1 || imagelet pull busybox:1

Exit code: 0 if all images are present; 1 if one is absent; another one if that is not known.")]
pub(crate) struct Exists {
    /// Image by name or id
    #[arg(required = true, value_name = "IMAGE", value_parser = image)]
    pub(crate) images: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_no_part_of_names() {
        for name in ["busybox", "localhost:5000/a:1", "sha256:0123", "docker/x", "r.example/docker-daemon:1"] {
            assert_eq!(image(name).as_deref(), Ok(name));
        }
        assert_eq!(
            image("docker://r.example/a:1"),
            Err("write the name without docker://, as r.example/a:1".to_owned())
        );
        assert!(image("docker-daemon:a:1").is_err() && image("containers-storage:a").is_err());
    }
}
