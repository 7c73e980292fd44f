//! The arguments and help texts of uploads and credentials of people: `push`, `login`, `logout`. Parses and checks the
//! form of values, nothing more.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Args, ValueHint};

use super::creds::Creds;
use super::reach::ReachArgs;

/// Upload an image to a registry
///
/// Prints the name with the digest of the uploaded manifest. Blobs that the registry has are not uploaded again; those of another
/// repository of the same registry are mounted from it. The image id does not change. The digest of the manifest does not
/// change either if the registry has all layers, or if all blobs were kept (see --keep-blobs); other layers are compressed
/// again with gzip.
///
/// With oci:PATH or oci:PATH:NAME in place of the image, uploads the content of an OCI layout (directory or tar file) unchanged;
/// an index is uploaded with all its manifests. Opens no store.
///
/// Without --creds, the credentials are those of `imagelet login` and of the node.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet push registry.example/team/app:2
  imagelet push app:2 registry.example/team/app:2
  imagelet push oci:./images:app registry.example/team/app:2
  imagelet push --tls-verify=false app:2 127.0.0.1:5000/team/app:2

Exit code: 69 if the registry cannot be reached; 77 if it refuses the credential; otherwise 1.")]
pub(crate) struct Push {
    /// Image by name or id; or oci:PATH or oci:PATH:NAME
    #[arg(value_name = "IMAGE")]
    pub(crate) image: String,
    /// Name at the registry [default: the image's]
    #[arg(value_name = "DESTINATION")]
    pub(crate) destination: Option<String>,
    /// Credential for the registry. A variable is better: other users can read the command line
    #[arg(long, value_name = "USER:PASSWORD", env = "IMAGELET_CREDS", hide_env_values = true, value_parser = ValueParser::from(Creds::parse))]
    pub(crate) creds: Option<Creds>,
    /// File to which the digest is written
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) digestfile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Log in to a registry
///
/// Verifies the credential at the registry, and writes it to the file that podman or docker read: --authfile,
/// $REGISTRY_AUTH_FILE, $DOCKER_CONFIG/config.json, an existing auth.json of podman or config.json of docker, otherwise a new
/// auth.json. If that file names a credential helper, the helper stores it. Commands at a shell read these files; agents
/// (`serve`, `run`) do not.
///
/// Without --username, a stored credential is tried first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet login registry.example
  imagelet login -u ada --password-stdin registry.example < password
  imagelet login registry.example/team          for the repositories below team alone
  imagelet login --get-login registry.example

Exit code: 69 if the registry cannot be reached; 77 if it refuses the credential; otherwise 1.")]
pub(crate) struct Login {
    /// Registry, or registry with a path prefix
    #[arg(value_name = "REGISTRY", default_value = "docker.io")]
    pub(crate) registry: String,
    /// User name
    #[arg(long, short, value_name = "USER")]
    pub(crate) username: Option<String>,
    /// Password. --password-stdin is better: other users can read the command line
    #[arg(long, short, value_name = "PASSWORD", requires = "username", value_parser = ValueParser::from(Creds::parse))]
    pub(crate) password: Option<Creds>,
    /// Read the password from standard input
    #[arg(long, requires = "username", conflicts_with = "password")]
    pub(crate) password_stdin: bool,
    /// Only print the name of the logged-in user
    #[arg(long, conflicts_with_all = ["username", "password"])]
    pub(crate) get_login: bool,
    /// File of credentials
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authfile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Log out of a registry
///
/// Removes its credential from the files that `login` writes, and from the credential helpers that they name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet logout registry.example
  imagelet logout --all")]
pub(crate) struct Logout {
    /// Registry, or registry with a path prefix
    #[arg(value_name = "REGISTRY", default_value = "docker.io", conflicts_with = "all")]
    pub(crate) registry: String,
    /// All registries
    #[arg(long, short)]
    pub(crate) all: bool,
    /// File of credentials
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authfile: Option<PathBuf>,
}
