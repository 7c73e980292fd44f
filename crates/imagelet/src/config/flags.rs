//! The settings as flags and variables: clap's arguments derived from the table, so that every setting has its flag. Takes values as text
//! and validates none of them. Called by clap through the derive in [`crate::args`].

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::error::Origin;
use super::setting::{Given, SETTINGS, Setting};

/// The values of settings on the command line and in the environment: index in [`SETTINGS`], whether a flag gave it, text.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingFlags(pub(crate) Vec<(usize, bool, String)>);

impl SettingFlags {
    /// Returns the values with their settings.
    pub(crate) fn given(&self) -> Given {
        let row = |(index, from_flag, text): &(usize, bool, String)| {
            let setting = &SETTINGS[*index];
            let origin = if *from_flag { Origin::Flag(setting.flag) } else { Origin::Variable(&setting.variable) };
            (setting, origin, text.clone())
        };
        self.0.iter().map(row).collect()
    }
}

/// Commands with an argument of their own under the flag of a setting, which it replaces.
const OF_COMMANDS: [(&str, &str); 5] = [
    ("import", "platform"),
    ("export", "platform"),
    ("save", "platform"),
    ("load", "platform"),
    ("registry", "listen"),
];

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let command = matches.subcommand_name().unwrap_or_default();
        for (index, setting) in SETTINGS.iter().enumerate() {
            if OF_COMMANDS.contains(&(command, setting.flag))
                && matches!(
                    matches.value_source(setting.flag),
                    Some(ValueSource::CommandLine | ValueSource::DefaultValue)
                )
            {
                continue;
            }
            if let Some(values) = matches.get_many::<String>(setting.flag) {
                let from_flag = matches.value_source(setting.flag) == Some(ValueSource::CommandLine);
                // Lists are the only settings with several values; they are joined as in a variable.
                let separator = setting.separator().map(String::from).unwrap_or_default();
                let text = values.map(String::as_str).collect::<Vec<_>>().join(&separator);
                self.0.push((index, from_flag, text));
            }
        }
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(mut command: Command) -> Command {
        for setting in SETTINGS.iter() {
            let arg = long(setting);
            command = command.arg(match setting.short {
                Some(short) => arg.short(short),
                None => arg,
            });
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The setting with the short flag `-i`, without that flag: for commands whose users expect standard input from `-i`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WithoutI;

impl FromArgMatches for WithoutI {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Args for WithoutI {
    fn augment_args(command: Command) -> Command {
        // The same id: clap then passes the value to the code that reads the settings.
        let settings = SETTINGS.iter().filter(|setting| setting.short == Some('i'));
        settings.fold(command, |command, setting| command.arg(long(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns the flag of a setting for a command whose help shows it.
pub(crate) fn shown(flag: &str) -> Arg {
    let setting = SETTINGS.iter().find(|setting| setting.flag == flag).expect("a setting has this flag");
    long(setting).hide(false).help_heading(None)
}

/// Heading of the settings in the help of the program.
pub(crate) const HEADING: &str = "Settings (`imagelet help settings` shows all)";

/// Settings that the help texts of commands show; the topic `settings` shows all.
const SHOWN: [&str; 4] = ["root", "image-endpoint", "runtime-endpoint", "log-level"];

/// Adds the flags of all settings to the command that represents them as a help topic.
pub(crate) fn all(command: Command) -> Command {
    SETTINGS.iter().fold(command, |command, setting| {
        let arg = long(setting).hide(false).help_heading(setting.group.title());
        command.arg(match setting.short {
            Some(short) => arg.short(short),
            None => arg,
        })
    })
}

/// Returns the flag of a setting, without its short form.
fn long(setting: &'static Setting) -> Arg {
    let help = setting.help;
    // The first sentence is shown for `-h`.
    let short = help.split_once(". ").map_or(help, |(first, _)| first);
    let help = setting.default_line().map_or_else(|| help.to_owned(), |default| format!("{help} [default: {default}]"));
    let mut arg = Arg::new(setting.flag)
        .long(setting.flag)
        .env(setting.variable.as_str())
        .hide_env_values(true)
        .help(short)
        .long_help(help)
        .value_name(setting.value_name.as_str())
        .global(true)
        .hide(!SHOWN.contains(&setting.flag))
        .help_heading(HEADING);
    if setting.value_name == "BOOL" {
        arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    if setting.value_name == "N" {
        // Otherwise clap would report an unknown flag, and not the allowed values.
        arg = arg.allow_negative_numbers(true);
    }
    if setting.separator().is_some() {
        arg = arg.action(ArgAction::Append);
    }
    arg = arg.value_hint(match setting.value_name.as_str() {
        "DIR" => clap::ValueHint::DirPath,
        "FILE" => clap::ValueHint::FilePath,
        "PATH" => clap::ValueHint::AnyPath,
        _ => clap::ValueHint::Other,
    });
    arg
}
