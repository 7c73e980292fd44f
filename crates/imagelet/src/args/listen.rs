//! The setting `listen` as a flag that the help of a command shows: see [`crate::config::flags`].

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::config::flags;

/// The flag `--listen`. Its value is the setting's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListenArg;

impl FromArgMatches for ListenArg {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Args for ListenArg {
    fn augment_args(command: Command) -> Command {
        // The same id: clap then passes the value to the code that reads the settings.
        command.arg(flags::shown("listen"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
