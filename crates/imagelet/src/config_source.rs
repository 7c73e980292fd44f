//! [`ConfigSource`]: the inputs from which this process loads its configuration, at its start and at each reload: the files, the values of
//! the command line and the environment, and the additions of a command. Called by `main` and by [`crate::wiring::reload`].

use std::path::PathBuf;

use image_service::Reach;

use crate::args::{Cli, Command, Pull};
use crate::config::setting::{Given, SETTINGS};
use crate::config::{Config, ConfigError, NamedFiles, Origin};
use crate::endpoint;
use crate::environment::Environment;

/// The inputs of a configuration.
#[derive(Clone)]
pub(crate) struct ConfigSource {
    files: NamedFiles,
    given: Given,
    /// True if the command runs pods: without a configured runtime, one is chosen.
    runs: bool,
    /// Directory that replaces the configured one.
    manifests: Option<PathBuf>,
    reach: Reach,
}

impl ConfigSource {
    /// Returns the inputs that a command line selects.
    pub(crate) fn of(cli: &Cli) -> Self {
        let (runs, manifests) = match &cli.command {
            Command::Run(args) => {
                let first = args.manifests.first();
                (!args.dry_run, first.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())))
            }
            _ => (false, None),
        };
        let (files, mut given) = (cli.global.config(), cli.settings.given());
        if let Command::Pull(Pull { arch: Some(arch), .. }) = &cli.command
            && let Some(platform) = SETTINGS.iter().find(|setting| setting.flag == "platform")
        {
            // The last value counts, so that the flag has precedence over a variable.
            given.push((platform, Origin::Flag("arch"), format!("linux/{arch}")));
        }
        Self { files, given, runs, manifests, reach: cli.command.reach() }
    }

    /// Reads the configuration.
    pub(crate) fn load(&self, environment: &Environment) -> Result<Config, ConfigError> {
        let mut config = Config::load(environment, &self.files, self.given.clone())?;
        if self.runs {
            endpoint::choose_endpoints(&mut config);
        }
        if let Some(path) = &self.manifests {
            config.pods.manifests = Some(path.clone());
            config.origins.insert("staticPodPath", Origin::Flag("manifests"));
        }
        config.reach = self.reach;
        Ok(config)
    }
}

impl std::fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of flags may be secrets.
        f.debug_struct("ConfigSource").field("files", &self.files).finish_non_exhaustive()
    }
}
