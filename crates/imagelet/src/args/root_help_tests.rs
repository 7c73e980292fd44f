//! Tests of `root_help`: every command is in one group, and the short help is short.

use std::collections::BTreeSet;

use super::*;
use crate::args::whole;

#[test]
fn every_command_is_in_one_group() {
    let mut command = whole::command();
    command.build();
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().to_owned());
    let names = |group: &CommandGroup| group.usual.iter().chain(group.rare).copied().collect::<Vec<_>>();
    let listed: Vec<&str> = GROUPS.iter().flat_map(names).flat_map(|names| names.split(", ")).collect();
    let once: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(once.len(), listed.len(), "a command is listed twice");
    assert_eq!(once, visible.collect::<BTreeSet<_>>());
}

#[test]
fn short_help_has_the_usual_commands_on_one_screen() {
    let mut command = grouped(whole::command(), "the end");
    let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
    assert!(short.lines().count() <= 45, "{} lines", short.lines().count());
    assert!(short.lines().all(|line| line.chars().count() <= 110), "{short}");
    for group in &GROUPS {
        for names in group.usual {
            assert!(short.contains(&format!("\n  {names} ")), "{names} is missing:\n{short}");
        }
        for names in group.rare {
            assert!(!short.contains(&format!("\n  {names} ")), "{names} is rare:\n{short}");
            assert!(long.contains(&format!("\n  {names} ")), "{names} is missing:\n{long}");
        }
    }
    assert!(long.contains("--progress <HOW>") && long.trim_end().ends_with("the end"), "{long}");
}
