//! The arguments of `imagelet config`. See [`super`].

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Show, check and write configurations
///
/// Without a subcommand, prints the effective configuration as YAML that can be used as a configuration file; with -o table, also
/// the source of each value.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet config                                 a file with all effective values
  imagelet config print                           each value and its source
  imagelet config check /etc/imagelet/config.yaml every error at once
  imagelet config schema                          the JSON schema of the file
  imagelet config migrate --from-kubelet /var/lib/kubelet/config.yaml > /etc/imagelet/config.yaml")]
pub(crate) struct ShowConfig {
    /// Write the reference page of all settings instead
    #[arg(long, hide = true)]
    pub(crate) reference: bool,
    #[command(subcommand)]
    pub(crate) action: Option<ConfigAction>,
}

/// Subcommands of `imagelet config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// List the effective values and their sources: default, file and line, variable, flag, or a kubelet's file
    ///
    /// As a table, or with -o json and yaml as a list with `field`, `value`, `source`, `from` and `reloads`: true for what a
    /// running agent applies on SIGHUP. Secrets are not shown.
    Print,
    Check(CheckConfig),
    /// Write the JSON schema (draft 2020-12) of the configuration file
    Schema,
    Migrate(MigrateConfig),
}

/// Check a configuration file and its drop-ins: every error at once
///
/// Drop-ins are the files of --config-dir, by default the directory with the file's name and `.d`. Ignores variables and flags.
/// Without a file, checks the effective configuration with variables and flags. Exit code 64 if there is an error.
#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// Configuration file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Write an imagelet configuration from a kubelet's
///
/// Prints the fields that imagelet has in common with the kubelet, with the values of the file; lists on stderr the fields that it
/// leaves out, with reasons.
#[derive(Debug, Args)]
pub(crate) struct MigrateConfig {
    /// A kubelet's configuration file (KubeletConfiguration)
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) from_kubelet: PathBuf,
}
