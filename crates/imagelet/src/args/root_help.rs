//! The help of the program itself: its commands in groups. `-h` lists the usual commands, `--help` every command and option. Called by
//! [`super::whole`].

use std::fmt::Write as _;

/// Commands with a purpose in common.
struct CommandGroup {
    title: &'static str,
    /// Commands that `-h` lists. Names after a comma are other forms of the first one.
    usual: &'static [&'static str],
    /// Commands that only `--help` lists.
    rare: &'static [&'static str],
}

/// All commands.
const GROUPS: [CommandGroup; 5] = [
    CommandGroup {
        title: "Images",
        usual: &["ensure", "pull", "images", "inspect", "rmi", "push", "import, load", "export, save"],
        rare: &["exists", "tags", "tag", "untag", "history", "login", "logout", "prune"],
    },
    CommandGroup {
        title: "Pods",
        usual: &["run", "pods", "describe", "logs", "exec"],
        rare: &["events", "attach", "port-forward"],
    },
    CommandGroup { title: "Disk", usual: &["df", "gc", "pin"], rare: &["unpin", "pins", "check", "convert"] },
    CommandGroup {
        title: "Agent",
        usual: &["serve", "doctor", "explain", "status", "top", "config"],
        rare: &["fleet", "backoff", "metrics", "mounts", "podman-store", "registry", "completion", "version", "help"],
    },
    CommandGroup { title: "Files", usual: &["ls", "cat", "cp"], rare: &["mount", "unmount"] },
];

/// Line at the end of `-h`.
const MORE: &str = "More: `imagelet --help`, `imagelet help COMMAND`, `imagelet help settings`.";

/// Replaces clap's list of commands by groups of commands.
pub(super) fn grouped(mut command: clap::Command, after: &str) -> clap::Command {
    const HEAD: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}";
    command.build();
    let options = command.clone().help_template("Options:\n{options}").after_help("").render_long_help().to_string();
    let (usual, all) = (list(&command, false), list(&command, true));
    let all = format!("{all}\n{}\n\n{after}", options.trim_end());
    command.help_template(HEAD).after_help(format!("{usual}\n{MORE}")).after_long_help(all)
}

/// Returns the commands with what each does, in their groups.
fn list(command: &clap::Command, all: bool) -> String {
    let mut text = String::new();
    for group in &GROUPS {
        let rare = if all { group.rare } else { &[] };
        let _ = writeln!(text, "{}:", group.title);
        for names in group.usual.iter().chain(rare) {
            let name = names.split(',').next().unwrap_or_default();
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let _ = writeln!(text, "  {names:<14}{}", about.map(ToString::to_string).unwrap_or_default());
        }
        if group.title != GROUPS[GROUPS.len() - 1].title {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
#[path = "root_help_tests.rs"]
mod tests;
