//! Suggestions for commands and flags that do not exist: those of other programs by a table, misspelt ones by edit distance. Suggests
//! only flags that the command has. Called by [`super::whole`].

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use crate::config::removed::REMOVED;

/// Commands of podman, docker, nerdctl, crictl, ctr, skopeo and kubectl, with our equivalents.
const COMMANDS: [(&str, &str); 28] = [
    ("apply", "`imagelet run -f FILE` runs the pods of a manifest, `imagelet ensure -f FILE` has their images ready"),
    ("build", "imagelet builds no images: `imagelet import FILE` takes what buildah or docker built"),
    ("container", "containers belong to pods: `imagelet pods`, `describe`, `logs`, `exec`"),
    ("copy", "`imagelet pull` fetches, `imagelet export` and `import` move images between stores and files"),
    ("create", "`imagelet run -f FILE` runs the pods of a manifest"),
    ("delete", "`imagelet rmi IMAGE` removes an image; a pod ends when its manifest is removed"),
    ("get", "`imagelet pods`, `imagelet events` or `imagelet images`"),
    ("image", "commands about images stand alone: `imagelet images`, `inspect`, `pull`, `push`, `tag`, `rmi`"),
    ("imagefsinfo", "`imagelet df` or `imagelet status`"),
    ("img", "`imagelet images`"),
    ("info", "`imagelet status`, `imagelet config` or `imagelet version`"),
    ("inspecti", "`imagelet inspect IMAGE`"),
    ("inspectp", "`imagelet describe POD`"),
    ("kill", "a pod ends when its manifest is removed"),
    ("list-tags", "`imagelet images REPOSITORY` lists the tags that are present"),
    ("manifest", "`imagelet inspect IMAGE`"),
    ("po", "`imagelet pods`"),
    ("pod", "`imagelet pods`"),
    ("restart", "a pod is replaced when its manifest changes"),
    ("rm", "`imagelet rmi IMAGE` removes an image; a pod ends when its manifest is removed"),
    ("rmp", "a pod ends when its manifest is removed"),
    ("runp", "`imagelet run -f FILE` runs the pods of a manifest"),
    (
        "search",
        "registries have no common search: `podman search TERM` asks Docker Hub, `skopeo list-tags docker://REPOSITORY` a repository",
    ),
    ("start", "`imagelet run -f FILE` runs the pods of a manifest"),
    ("stats", "`imagelet metrics` or `imagelet df`"),
    ("stop", "a pod ends when its manifest is removed"),
    ("stopp", "a pod ends when its manifest is removed"),
    ("system", "`imagelet df`, `imagelet gc` or `imagelet status`"),
];

/// Flags of the same programs: the flag, our flag that a command must have for the hint, and the hint. Without such a flag, the hint holds
/// for every command.
const FLAGS: [(&str, &str, &str); 19] = [
    ("--all-platforms", "platform", "--platform says which one"),
    ("--authfile", "docker-config-path", "--docker-config-path FILE says where credentials are"),
    ("--data-root", "root", "--root DIRECTORY"),
    ("--debug", "log-level", "--log-level debug"),
    ("-D", "log-level", "--log-level debug"),
    ("--digests", "", "`imagelet images --digests`"),
    ("--filter", "", "`imagelet images --filter KEY=VALUE`"),
    ("--force", "", "nothing has to be forced"),
    ("--format", FORMAT, "-o json, -o jsonpath=TEMPLATE or -o custom-columns=NAME:PATH"),
    ("--image-service-endpoint", "image-endpoint", "--image-endpoint ENDPOINT"),
    ("--no-headers", FORMAT, "-o name or -q print no titles"),
    ("--noheading", FORMAT, "-o name or -q print no titles"),
    ("--password", "creds", "--creds USER:PASSWORD, or the variable IMAGELET_CREDS"),
    ("--storage-root", "root", "--root DIRECTORY"),
    ("--template", FORMAT, "-o jsonpath=TEMPLATE"),
    ("--username", "creds", "--creds USER:PASSWORD, or the variable IMAGELET_CREDS"),
    ("-u", "creds", "--creds USER:PASSWORD, or the variable IMAGELET_CREDS"),
    ("--verbose", "log-level", "--log-level debug"),
    ("-v", "log-level", "--log-level debug"),
];

/// The flag `--output` where it is the format of results; in some commands it is a file.
const FORMAT: &str = "output FORMAT";

/// Returns the error with a matching suggestion, if there is one.
pub(super) fn better(mut error: Error, root: &mut Command, words: &[OsString]) -> Error {
    let text = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(word) = text(&error, ContextKind::InvalidSubcommand) else { return error };
            command_hint(&word, &chosen(root, words))
        }
        ErrorKind::UnknownArgument => {
            let Some(word) = text(&error, ContextKind::InvalidArg) else { return error };
            root.build();
            let mut sub = chosen(root, words);
            error.insert(ContextKind::Usage, ContextValue::StyledStr(sub.render_usage()));
            flag_hint(&word, &sub)
        }
        _ => return error,
    };
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::Suggested] {
        error.remove(kind);
    }
    if let Some(hint) = hint {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

/// Returns the command that the words select, as far as they are known.
fn chosen(root: &Command, words: &[OsString]) -> Command {
    let chosen = words.iter().skip(1).fold(root, |command, word| command.find_subcommand(word).unwrap_or(command));
    chosen.clone()
}

fn command_hint(word: &str, command: &Command) -> Option<String> {
    if let Some((_, hint)) = COMMANDS.iter().find(|(name, _)| *name == word) {
        return Some((*hint).to_owned());
    }
    let names = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name);
    there_is("", &base::closest(word, names))
}

fn flag_hint(word: &str, command: &Command) -> Option<String> {
    let flag = word.split_once('=').map_or(word, |(flag, _)| flag);
    if !flag.starts_with('-') {
        let takes_files = command.get_arguments().any(|arg| arg.get_id() == "files");
        return takes_files.then(|| "manifests are named with -f FILE".to_owned());
    }
    if flag == "-a" || flag == "--all" {
        return (command.get_name() == "images").then(|| "all images are listed".to_owned());
    }
    if let Some((_, ours, hint)) = FLAGS.iter().find(|(name, ..)| *name == flag) {
        return (ours.is_empty() || has_flag(command, ours)).then(|| (*hint).to_owned());
    }
    let name = flag.strip_prefix("--")?;
    if let Some(removed) = REMOVED.iter().find(|removed| removed.flag == name) {
        return Some(format!("{flag} was removed: {}", removed.now));
    }
    there_is("--", &base::closest(name, command.get_arguments().filter_map(Arg::get_long)))
}

/// Returns true if the command has a flag, given as `name` or as `name VALUE`.
fn has_flag(command: &Command, flag: &str) -> bool {
    let (name, value) = flag.split_once(' ').map_or((flag, None), |(name, value)| (name, Some(value)));
    let is_flag = |arg: &&Arg| arg.get_long() == Some(name);
    let values = |arg: &Arg| arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str().to_owned());
    command.get_arguments().find(is_flag).is_some_and(|arg| value.is_none() || values(arg).as_deref() == value)
}

fn there_is(dashes: &str, names: &[&str]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| format!("{dashes}{name}")).collect();
    (!names.is_empty()).then(|| format!("there is {}", names.join(" and ")))
}

#[cfg(test)]
#[path = "suggest_tests.rs"]
mod tests;
