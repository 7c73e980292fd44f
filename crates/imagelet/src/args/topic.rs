//! The topic `settings` of the help, as a command. Its hundred flags are added only by the whole parser, since they would slow down the
//! start of every other command. Called by clap through the derive in [`super`].

use clap::{ArgMatches, Args, FromArgMatches};

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
        // The flags are added by the whole parser only: no other command needs them at its start.
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
