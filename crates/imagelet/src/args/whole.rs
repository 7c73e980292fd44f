//! The whole parser, for help, errors, manual pages and completion, which concern all commands. Adds examples to the commands, and the
//! topic `settings` with every setting, which other help texts leave out. Called by [`super`], by `completion` and by `man`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Subcommand as _};

use super::{Cli, Global, root_help, suggest};
use crate::config::NamedFiles;
use crate::config::flags::{self, SettingFlags};
use crate::config::setting::Given;

/// Name of the command for the help topic.
pub(crate) const SETTINGS: &str = "settings";

/// Global options that are hidden in the help of commands, besides the settings. The options of output are shown.
const HIDDEN: [&str; 3] = ["config", "config_dir", "progress"];
/// Options of output.
const OUTPUT: [&str; 3] = ["output", "quiet", "no_trunc"];

/// Last lines of the help of a command.
const GLOBAL: &str = "Global options: `imagelet --help`. Settings: `imagelet help settings`.";

/// Returns the parser of all commands, as the help shows it: the global options are shown once, in the help of the program.
fn for_help() -> clap::Command {
    let mut command = root_help::grouped(command(), super::AFTER_HELP);
    command = hide_global(command, &HIDDEN);
    command
}

/// Returns the parser of all commands, as the manual pages show it.
pub(crate) fn for_manual() -> clap::Command {
    let mut command = command();
    command.build();
    hide_global(command, &[&HIDDEN[..], &OUTPUT[..]].concat())
}

/// Hides global options in the subcommands of a command, which has been built.
fn hide_global(command: clap::Command, hidden: &[&str]) -> clap::Command {
    command.mut_subcommands(|sub| {
        if sub.get_name() == SETTINGS || sub.get_name() == "help" {
            return sub;
        }
        let after = sub.get_after_help().map(|after| format!("{after}\n\n{GLOBAL}")).unwrap_or(GLOBAL.to_owned());
        let sub = sub.after_help(after).mut_args(|arg| {
            let is_setting = arg.get_help_heading() == Some(flags::HEADING);
            let is_hidden = arg.is_hide_set() || is_setting || hidden.contains(&arg.get_id().as_str());
            arg.hide(is_hidden)
        });
        hide_global(sub, hidden)
    })
}

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

/// Parses the command line of this process. Exits the process on `--help` and on wrong usage.
pub(crate) fn read(words: &[OsString]) -> Cli {
    let cli = Cli::of_one_command(words).unwrap_or_else(|| parse(words));
    if let super::Command::Exec(exec) = &cli.command
        && let Err(error) = exec.check(words)
    {
        error.exit()
    }
    cli
}

fn parse(words: &[OsString]) -> Cli {
    let mut command = for_help();
    let cli = command.try_get_matches_from_mut(words).and_then(|matches| Cli::from_arg_matches(&matches));
    cli.unwrap_or_else(|error| suggest::better(error, &mut command, words).exit())
}

/// Returns configuration files and settings of words that may be an incomplete command line.
pub(crate) fn settings_of(words: &[OsString]) -> (NamedFiles, Given) {
    let root = clap::Command::new("imagelet").ignore_errors(true).args_override_self(true);
    let root = SettingFlags::augment_args(Global::augment_args(root));
    let matches = super::Command::augment_subcommands(root).try_get_matches_from(words);
    let matches = matches.unwrap_or_default();
    let path = |name| matches.try_get_one::<PathBuf>(name).ok().flatten().cloned();
    let files = NamedFiles { file: path("config"), directory: path("config_dir") };
    let given = SettingFlags::from_arg_matches(&matches).map(|flags| flags.given()).unwrap_or_default();
    (files, given)
}

/// Returns the help text of the settings.
pub(crate) fn settings_help() -> String {
    let mut command = command();
    command.build();
    let help = command.find_subcommand_mut(SETTINGS).map(|sub| sub.render_long_help().to_string());
    help.unwrap_or_default()
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
