//! The whole parser: for help, errors, manual pages and completion, where the parser of one command has no say. Adds examples to
//! the commands, and the topic `settings` with every setting, which other help texts leave out. Called by [`super`], by
//! `completion` and by `man`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches, Subcommand as _};

use super::{Cli, Global, suggest};
use crate::config::flags::{self, SettingFlags};
use crate::config::table::Given;

/// Name of the command that stands for the topic.
pub(crate) const SETTINGS: &str = "settings";

/// Returns the parser of all commands.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command();
    for (name, examples) in super::examples::EXAMPLES {
        if command.find_subcommand(name).is_some_and(|sub| sub.get_after_help().is_none()) {
            command = command.mut_subcommand(name, |sub| sub.after_help(format!("Examples:\n{examples}")));
        }
    }
    command.mut_subcommand(SETTINGS, flags::all)
}

/// Parses the words. Exits the process on `--help` and on wrong usage.
pub(super) fn parse(words: &[OsString]) -> Cli {
    let mut command = command();
    let cli = command.try_get_matches_from_mut(words).and_then(|matches| Cli::from_arg_matches(&matches));
    cli.unwrap_or_else(|error| suggest::better(error, &mut command, words).exit())
}

/// Returns configuration file and settings of words that need not be a whole command line yet.
pub(crate) fn settings_of(words: &[OsString]) -> (Option<PathBuf>, Given) {
    let root = clap::Command::new("imagelet").ignore_errors(true).args_override_self(true);
    let root = SettingFlags::augment_args(Global::augment_args(root));
    let matches = super::Command::augment_subcommands(root).try_get_matches_from(words);
    let matches = matches.unwrap_or_default();
    let file = matches.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    let given = SettingFlags::from_arg_matches(&matches).map(|flags| flags.given()).unwrap_or_default();
    (file, given)
}

/// Returns the help text of the settings.
pub(crate) fn settings_help() -> String {
    let mut command = command();
    command.build();
    let help = command.find_subcommand_mut(SETTINGS).map(|sub| sub.render_long_help().to_string());
    help.unwrap_or_default()
}

/// The topic `settings`: a command whose help shows every setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShowSettings;

impl FromArgMatches for ShowSettings {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Args for ShowSettings {
    fn augment_args(command: clap::Command) -> clap::Command {
        // The hundred flags come with the whole parser: nobody needs them to start another command.
        command
            .about("Show all settings: flags, variables and defaults")
            .long_about(
                "All settings. Each is a flag of every command, an IMAGELET_… variable, and a field of the configuration \
                 file. Flags win over variables, variables over the file, the file over a kubelet's configuration \
                 (--kubelet-config). `imagelet config -o table` shows the values in force, and where each comes from.",
            )
            .after_help("Examples:\n  imagelet help settings\n  imagelet config -o table")
            .hide(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
