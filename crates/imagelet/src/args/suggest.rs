//! Suggestions for commands and flags that do not exist: those of other programs by a table, misspelt ones by edit distance. Suggests
//! only flags that the command has. Called by [`super::whole`].

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use crate::config::removed::REMOVED;

/// Commands of podman, docker, nerdctl, crictl, ctr, skopeo, crane and kubectl, with our equivalents.
const COMMANDS: [(&str, &str); 32] = [
    ("apply", "`imagelet run -f FILE` runs the pods of a manifest, `imagelet ensure -f FILE` has their images ready"),
    ("build", "imagelet builds no images: `imagelet import FILE` takes what buildah or docker built"),
    ("container", "containers belong to pods: `imagelet pods`, `describe`, `logs`, `exec`"),
    ("copy", "`imagelet pull` fetches, `imagelet export` and `import` move images between stores and files"),
    ("create", "`imagelet run -f FILE` runs the pods of a manifest"),
    ("delete", "`imagelet rmi IMAGE` removes an image; a pod ends when its manifest is removed"),
    ("diff", "`imagelet history IMAGE` lists the layers of an image, `imagelet ls -R LAYER` the files of a layer"),
    ("get", "`imagelet pods`, `imagelet events` or `imagelet images`"),
    ("image", IMAGE_COMMANDS),
    ("imagefsinfo", "`imagelet df` or `imagelet status`"),
    ("img", "`imagelet images`"),
    ("info", "`imagelet status`, `imagelet config` or `imagelet version`"),
    ("inspecti", "`imagelet inspect IMAGE`"),
    ("inspectp", "`imagelet describe POD`"),
    ("kill", "a pod ends when its manifest is removed"),
    ("kube", "`imagelet run -f FILE` runs the pods of a manifest, as `podman kube play` does"),
    ("manifest", "`imagelet inspect IMAGE` describes an image of the node, `skopeo inspect --raw` one of a registry"),
    ("play", "`imagelet run -f FILE` runs the pods of a manifest, as `podman kube play` does"),
    ("po", "`imagelet pods`"),
    ("pod", "`imagelet pods`"),
    ("restart", "a pod is replaced when its manifest changes"),
    ("rm", "`imagelet rmi IMAGE` removes an image; a pod ends when its manifest is removed"),
    ("rmp", "a pod ends when its manifest is removed"),
    ("runp", "`imagelet run -f FILE` runs the pods of a manifest"),
    (
        "search",
        "registries have no common search: `podman search TERM` asks Docker Hub, `imagelet tags REPOSITORY` lists the tags of a repository",
    ),
    ("start", "`imagelet run -f FILE` runs the pods of a manifest"),
    ("stats", "`imagelet top` shows pulls, disk and pods; `imagelet metrics` prints the metrics"),
    ("stop", "a pod ends when its manifest is removed"),
    ("stopp", "a pod ends when its manifest is removed"),
    ("system", "`imagelet df`, `imagelet gc` or `imagelet status`"),
    ("update", "a pod is replaced when its manifest changes"),
    ("volume", "volumes belong to pods: `imagelet describe POD`"),
];

/// Hint on `image COMMAND`.
const IMAGE_COMMANDS: &str =
    "commands about images stand alone: `imagelet images`, `exists`, `inspect`, `pull`, `push`, `tag`, `rmi`, `prune`";

/// Commands for which a hint on a flag holds.
enum Scope {
    /// Commands with this flag of ours, given as `name` or as `name VALUE`.
    With(&'static str),
    /// These commands.
    Of(&'static [&'static str]),
}

use Scope::{Of, With};

/// Flags of the same programs: the flag, the commands for which the hint holds, and the hint. The first row that fits is used.
const FLAGS: [(&str, Scope, &str); 37] = [
    ("--rm", Of(&["run"]), RUN_PODS),
    ("--name", Of(&["run"]), RUN_PODS),
    ("-d", Of(&["run"]), RUN_PODS),
    ("-e", Of(&["run"]), RUN_PODS),
    ("-p", Of(&["run"]), RUN_PODS),
    ("-t", Of(&["run"]), RUN_PODS),
    ("-v", Of(&["run"]), RUN_PODS),
    ("-a", Of(&["images", "pods", "events"]), "everything is listed without it"),
    ("--all", Of(&["images", "pods", "events"]), "everything is listed without it"),
    ("--all-platforms", With("platform"), "--platform OS/ARCH names one platform"),
    ("--arch", With("platform"), "--platform OS/ARCH, for example --platform linux/arm64"),
    ("--authfile", With("docker-config-path"), "--docker-config-path FILE names a file with credentials"),
    ("--data-root", With("root"), "--root DIRECTORY"),
    ("--debug", With("log-level"), "--log-level debug"),
    ("-D", With("log-level"), "--log-level debug"),
    ("--digests", Of(&["df", "inspect", "history"]), "`imagelet images --digests`"),
    (
        "--filter",
        Of(&["df", "prune", "gc"]),
        "`imagelet images --filter KEY=VALUE` lists images; `-q` prints their ids",
    ),
    ("-f", Of(&["inspect", "history", "version", "status", "df"]), GO_TEMPLATES),
    ("-f", Of(&["rmi", "gc"]), "removals need no confirmation"),
    ("--force", Of(&["rmi", "gc", "untag", "unmount"]), "removals need no confirmation"),
    ("--format", With(FORMAT), GO_TEMPLATES),
    ("--image-service-endpoint", With("image-endpoint"), "--image-endpoint ENDPOINT"),
    ("--json", With(FORMAT), "-o json"),
    ("--no-headers", With(FORMAT), "-o name or -q print no titles"),
    ("--noheading", With(FORMAT), "-o name or -q print no titles"),
    ("--os", With("platform"), "--platform OS/ARCH, for example --platform linux/arm64"),
    ("--password", With("creds"), "--creds USER:PASSWORD, or the variable IMAGELET_CREDS"),
    (
        "--policy",
        Of(&["pull"]),
        "`imagelet pull` asks the registry each time; `imagelet ensure -f FILE` follows pull policies",
    ),
    (
        "--policy",
        Of(&["ensure", "run"]),
        "pull policies are fields of the pods; `imagelet explain IMAGE --policy POLICY` tries one",
    ),
    ("--since", Of(&["events"]), "all recent events are listed, the oldest first; --watch waits for more"),
    ("--storage-root", With("root"), "--root DIRECTORY"),
    ("--template", With(FORMAT), "-o jsonpath=TEMPLATE"),
    ("--username", With("creds"), "--creds USER:PASSWORD, or the variable IMAGELET_CREDS"),
    ("-u", With("creds"), "--creds USER:PASSWORD, or the variable IMAGELET_CREDS"),
    ("--variant", With("platform"), "--platform OS/ARCH/VARIANT"),
    ("--verbose", With("log-level"), "--log-level debug"),
    ("-v", With("log-level"), "--log-level debug"),
];

/// Hint on flags with Go templates.
const GO_TEMPLATES: &str =
    "-o json, -o jsonpath=TEMPLATE or -o custom-columns=NAME:PATH; Go templates are not supported";

/// Hint on flags of commands that run one container.
const RUN_PODS: &str =
    "`imagelet run -f FILE` runs the pods of a manifest; `podman run` runs images of `imagelet podman-store`";

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
            if sub.get_name() == "exec" { Some(exec_hint(&word, &sub)) } else { flag_hint(&word, &sub) }
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
    similar("command", "", &base::closest(word, names))
}

fn flag_hint(word: &str, command: &Command) -> Option<String> {
    let flag = word.split_once('=').map_or(word, |(flag, _)| flag);
    if !flag.starts_with('-') {
        let takes_files = command.get_arguments().any(|arg| arg.get_id() == "files");
        return takes_files.then(|| "manifests are named with -f FILE".to_owned());
    }
    let fits = |scope: &Scope| match scope {
        With(ours) => has_flag(command, ours),
        Of(commands) => commands.contains(&command.get_name()),
    };
    if let Some((.., hint)) = FLAGS.iter().find(|(name, scope, _)| *name == flag && fits(scope)) {
        return Some((*hint).to_owned());
    }
    let name = flag.strip_prefix("--")?;
    if let Some(removed) = REMOVED.iter().find(|removed| removed.flag == name) {
        return Some(format!("{flag} was removed: {}", removed.now));
    }
    closest_flag(flag, command)
}

/// Returns the hint for an unknown flag of `exec`, which is most often one of the command to run.
fn exec_hint(flag: &str, command: &Command) -> String {
    let to_run = || format!("if {flag} is a flag of the command to run, add `--` before that command");
    closest_flag(flag, command).unwrap_or_else(to_run)
}

fn closest_flag(flag: &str, command: &Command) -> Option<String> {
    let name = flag.strip_prefix("--")?;
    similar("flag", "--", &base::closest(name, command.get_arguments().filter_map(Arg::get_long)))
}

/// Returns true if the command has a flag, given as `name` or as `name VALUE`.
fn has_flag(command: &Command, flag: &str) -> bool {
    let (name, value) = flag.split_once(' ').map_or((flag, None), |(name, value)| (name, Some(value)));
    let is_flag = |arg: &&Arg| arg.get_long() == Some(name);
    let values = |arg: &Arg| arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str().to_owned());
    command.get_arguments().find(is_flag).is_some_and(|arg| value.is_none() || values(arg).as_deref() == value)
}

fn similar(what: &str, dashes: &str, names: &[&str]) -> Option<String> {
    let shown: Vec<String> = names.iter().map(|name| format!("{dashes}{name}")).collect();
    match names.len() {
        0 => None,
        1 => Some(format!("a similar {what} exists: {}", shown[0])),
        _ => Some(format!("similar {what}s exist: {}", shown.join(", "))),
    }
}

#[cfg(test)]
#[path = "suggest_tests.rs"]
mod tests;
