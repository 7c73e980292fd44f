//! Tests of the help texts: their length, their examples, and the settings that they show.

use super::*;

/// Visits every visible command, with its path.
fn walk(command: &clap::Command, path: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        visit(path.trim(), sub);
        walk(sub, &path, visit);
    }
}

#[test]
fn every_command_has_examples() {
    let command = command();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let after = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = sub.get_name();
        assert!(after.contains("Examples:"), "{name} has no examples: add them to examples.rs");
        assert!(after.contains(&format!("imagelet {name}")), "the examples of {name} are of another command");
    }
}

/// Returns the lines of help that `help COMMAND` and `COMMAND -h` print.
#[test]
fn help_is_short_and_settings_are_a_topic() {
    let command = for_help();
    let mut settings = command.find_subcommand(SETTINGS).expect("the topic").clone();
    let all = settings.render_long_help().to_string();
    for setting in crate::config::setting::SETTINGS.iter() {
        assert!(all.contains(&format!("--{}", setting.flag)), "{}", setting.flag);
        assert!(all.contains(&setting.variable), "{}", setting.variable);
    }
    walk(&command, "", &mut |path, sub| {
        let mut sub = sub.clone();
        let long = sub.render_long_help().to_string();
        let short = sub.render_help().to_string();
        assert!(long.lines().count() <= 130, "{path} has {} lines of help", long.lines().count());
        assert!(short.lines().count() <= 35, "{path} has {} lines of short help:\n{short}", short.lines().count());
        for (form, help) in [("-h", &short), ("--help", &long)] {
            let shown: Vec<&str> = crate::config::setting::SETTINGS
                .iter()
                .map(|setting| setting.flag)
                // Commands for archives have a flag of their own.
                .filter(|flag| *flag != "listen" || !["run", "serve", "registry"].contains(&path))
                .filter(|flag| *flag != "platform" || !help.contains("--platform <OS/ARCH[/VARIANT]|all>"))
                .filter(|flag| {
                    help.lines().any(|line| {
                        line.trim_start()
                            .trim_start_matches("-i, ")
                            .trim_start_matches("-r, ")
                            .starts_with(&format!("--{flag} "))
                    })
                })
                .collect();
            assert_eq!(shown, Vec::<&str>::new(), "{path} {form}");
            assert!(help.contains(GLOBAL), "{path} {form}");
            for global in ["--config ", "--config-dir ", "--progress "] {
                assert!(!help.contains(&format!("\n      {global}")), "{path} {form}: {global}");
            }
        }
    });
}
