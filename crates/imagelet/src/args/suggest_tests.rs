//! Tests of suggestions for commands and flags of other programs, and for misspelt ones.

use super::*;
use crate::args::whole;

/// Returns the tip for an invalid command line.
fn tip(line: &str) -> Option<String> {
    let words: Vec<OsString> = std::iter::once("imagelet").chain(line.split_whitespace()).map(OsString::from).collect();
    let mut command = whole::command();
    let error = command.try_get_matches_from_mut(&words).expect_err(line);
    let error = better(error, &mut command, &words).to_string();
    assert!(error.contains("Usage: imagelet"), "{error}");
    error.lines().find_map(|line| line.trim().strip_prefix("tip: ").map(str::to_owned))
}

/// (command line, suggestion)
#[test]
fn suggestions_fit() {
    let cases = [
        ("rm x", "`imagelet rmi IMAGE` removes an image; a pod ends when its manifest is removed"),
        (
            "search x",
            "registries have no common search: `podman search TERM` asks Docker Hub, `imagelet tags REPOSITORY` lists the tags of a repository",
        ),
        ("image ls", IMAGE_COMMANDS),
        ("image exists x", IMAGE_COMMANDS),
        ("pul x", "a similar command exists: pull"),
        ("imagse", "a similar command exists: images"),
        ("inpsect x", "a similar command exists: inspect"),
        ("pull --format x", GO_TEMPLATES),
        ("images --filtre x", "a similar flag exists: --filter"),
        ("images --no-trnc", "a similar flag exists: --no-trunc"),
        ("images --rooot x", "a similar flag exists: --root"),
        ("pull --max-paralel-image-pulls=2 x", "a similar flag exists: --max-parallel-image-pulls"),
        ("images -a", "everything is listed without it"),
        ("ps -a", "everything is listed without it"),
        ("images --arch arm64", "--platform OS/ARCH, for example --platform linux/arm64"),
        (
            "pull --policy missing x",
            "`imagelet pull` asks the registry each time; `imagelet ensure -f FILE` follows pull policies",
        ),
        ("inspect -f {{.Id}} x", GO_TEMPLATES),
        ("rmi -f x", "removals need no confirmation"),
        ("run --rm busybox sh", RUN_PODS),
        ("run -v /a:/b busybox", RUN_PODS),
        (
            "diff x",
            "`imagelet history IMAGE` lists the layers of an image, `imagelet ls -R LAYER` the files of a layer",
        ),
        ("kube play x.yaml", "`imagelet run -f FILE` runs the pods of a manifest, as `podman kube play` does"),
        ("version --json", "-o json"),
        ("events --since 1h", "all recent events are listed, the oldest first; --watch waits for more"),
        ("df --digests", "`imagelet images --digests`"),
        ("run nginx", "manifests are named with -f FILE"),
        ("gc explian", "a similar command exists: explain"),
        ("backoff rest", "a similar command exists: reset"),
        ("exec web ls -l", "if -l is a flag of the command to run, add `--` before that command"),
        ("exec --contaner app web sh", "a similar flag exists: --container"),
    ];
    for (line, want) in cases {
        assert_eq!(tip(line).as_deref(), Some(want), "{line}");
    }
    for line in ["frobnicate", "images --frobnicate", "images -y", "xy", "pods --filter x=y", "rmi --filter x=y"] {
        assert_eq!(tip(line), None, "{line}");
    }
}

#[test]
fn no_table_names_what_exists() {
    let command = whole::command();
    for (name, _) in COMMANDS {
        assert!(command.find_subcommand(name).is_none(), "{name} is a command now: take it off the table");
    }
}

/// Programs that suggestions may name.
const FOREIGN: [&str; 2] = ["podman", "skopeo"];

/// Asserts that a suggestion names only existing commands, flags and formats. Flags outside of backticks are those of `command`.
#[track_caller]
fn assert_names_exist(root: &Command, command: &Command, line: &str, tip: &str) {
    for (at, text) in tip.split('`').enumerate() {
        let mut words = text.split_whitespace().peekable();
        let in_backticks = at % 2 == 1;
        if in_backticks && words.peek().is_some_and(|word| FOREIGN.contains(word)) {
            continue;
        }
        let mut of = if in_backticks { root } else { command };
        while let Some(word) = words.next() {
            let word = word.trim_end_matches([',', ';', '.', ':']);
            if word == "imagelet" {
                continue;
            }
            if word.starts_with('-') {
                let known = |arg: &Arg| {
                    let long = word.strip_prefix("--").is_some_and(|name| arg.get_long() == Some(name));
                    let short = word
                        .strip_prefix('-')
                        .is_some_and(|name| arg.get_short().map(String::from).as_deref() == Some(name));
                    long || short
                };
                assert!(of.get_arguments().any(known), "{line}: {word} of {tip:?} is no flag of {}", of.get_name());
                if word == "-o" {
                    let format = words.peek().copied().unwrap_or_default().trim_end_matches(',');
                    let is_form = crate::output::Expression::FORMS
                        .iter()
                        .any(|form| form.split('=').next() == format.split('=').next());
                    assert!(is_form || crate::output::Format::from_name(format).is_some(), "{line}: {format}");
                }
            } else if in_backticks && word.chars().any(char::is_lowercase) {
                of = of.find_subcommand(word).unwrap_or_else(|| panic!("{line}: {word} of {tip:?} is no command"));
            }
        }
    }
}

/// Calls `each` with every command and the words that select it.
fn for_each_command<'c>(command: &'c Command, path: &str, each: &mut impl FnMut(&'c Command, &str)) {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        each(sub, &path);
        for_each_command(sub, &path, each);
    }
}

/// Returns true if the command has the flag itself, so that no suggestion is made.
fn accepts(command: &Command, flag: &str) -> bool {
    command.get_arguments().any(|arg| {
        arg.get_long_and_visible_aliases().into_iter().flatten().any(|name| flag.strip_prefix("--") == Some(name))
            || arg.get_short_and_visible_aliases().into_iter().flatten().any(|short| flag == format!("-{short}"))
    })
}

#[test]
fn every_suggestion_names_what_exists() {
    let mut root = whole::command();
    root.build();
    for (name, hint) in COMMANDS {
        assert_names_exist(&root, &root, name, hint);
    }
    let removed = REMOVED.iter().map(|removed| format!("--{}", removed.flag));
    let flags: Vec<String> = FLAGS.iter().map(|(flag, ..)| (*flag).to_owned()).chain(removed).collect();
    let mut shown = std::collections::BTreeSet::new();
    for_each_command(&root, "", &mut |command, path| {
        for flag in flags.iter().filter(|flag| !accepts(command, flag)) {
            let Some(hint) = flag_hint(flag, command) else { continue };
            // A removed flag is named first.
            let hint = hint.strip_prefix(&format!("{flag} was removed: ")).unwrap_or(&hint);
            assert_names_exist(&root, command, &format!("{path} {flag}"), hint);
            shown.insert(flag.clone());
        }
    });
    let unused: Vec<&String> = flags.iter().filter(|flag| !shown.contains(*flag)).collect();
    assert!(unused.is_empty(), "no command has these suggestions: {unused:?}");
}

/// Real command lines: `--output` of an export is a file, and only some commands take a credential.
#[test]
fn suggestions_fit_the_command() {
    assert_eq!(tip("pull --username ada x").as_deref(), Some("--creds USER:PASSWORD, or the variable IMAGELET_CREDS"));
    assert_eq!(tip("images --username ada"), None);
    assert_eq!(tip("save --no-headers x"), None);
    assert_eq!(tip("pods --no-headers").as_deref(), Some("-o name or -q print no titles"));
    assert_eq!(tip("push --authfile f x").as_deref(), Some("--docker-config-path FILE names a file with credentials"));
}
