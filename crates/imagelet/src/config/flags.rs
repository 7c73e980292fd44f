//! The settings as flags and variables: clap's arguments made from the table, so that no setting can lack its flag.
//! Takes values as text and checks none of them. Called by clap through the derive in [`crate::args`].

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::settings::SETTINGS;
use super::{Given, Origin};

/// What was given for settings on the command line and in the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingFlags(pub(crate) Vec<(usize, bool, String)>);

impl SettingFlags {
    /// The values with the rows that they belong to.
    pub(crate) fn given(&self) -> Given {
        let row = |(index, from_flag, text): &(usize, bool, String)| {
            let setting = &SETTINGS[*index];
            let origin = if *from_flag { Origin::Flag(setting.flag) } else { Origin::Variable(setting.variable) };
            (setting, origin, text.clone())
        };
        self.0.iter().map(row).collect()
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (index, setting) in SETTINGS.iter().enumerate() {
            if let Some(values) = matches.get_many::<String>(setting.flag) {
                let from_flag = matches.value_source(setting.flag) == Some(ValueSource::CommandLine);
                // Lists are the only settings that take several values; a colon joins them as in a variable.
                let text = values.map(String::as_str).collect::<Vec<_>>().join(":");
                self.0.push((index, from_flag, text));
            }
        }
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(mut command: Command) -> Command {
        for setting in SETTINGS {
            let mut arg = Arg::new(setting.flag)
                .long(setting.flag)
                .env(setting.variable)
                .hide_env_values(true)
                .help(setting.help)
                .value_name(setting.value_name)
                .global(true)
                .help_heading("Configuration");
            if let Some(short) = setting.short {
                arg = arg.short(short);
            }
            arg = match setting.value_name {
                "BOOL" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
                "DIR" if setting.field.ends_with('s') => arg.action(ArgAction::Append),
                _ => arg,
            };
            arg = arg.value_hint(match setting.value_name {
                "DIR" => clap::ValueHint::DirPath,
                _ => clap::ValueHint::Other,
            });
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
