//! `imagelet completion`: the script that a shell reads, and the candidates that it requests while the user types: commands, flags, and
//! existing images, pods and containers. Candidates are produced in the same process; a failure yields none.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::Arg;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use kuberuntime::labels::{POD_NAME, POD_NAMESPACE};
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::app::App;
use crate::args::{Completion, whole};
use crate::config::Config;
use crate::environment::Environment;
use crate::exit::{Failure, Outcome};
use crate::follow::follow;
use crate::output::Printer;
use crate::progress::Progress;
use crate::signals::Signals;

/// The variable by which a script requests candidates.
const VARIABLE: &str = "_IMAGELET_COMPLETE";
/// Time limit for candidates, since the user is waiting.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bash splits words at colons, which occur in names of images: joins them again, and returns only the rest of the name to bash.
const BASH: &str = r#"
_imagelet() {
    local -a whole=()
    local word last= index=0 at=0
    for word in "${COMP_WORDS[@]}"; do
        if [[ ${#whole[@]} -gt 0 && ( $word == :* || $last == *: ) ]]; then
            whole[${#whole[@]}-1]+=$word
        else
            whole+=("$word")
        fi
        last=$word
        [[ $index -eq $COMP_CWORD ]] && at=$((${#whole[@]} - 1))
        index=$((index + 1))
    done
    local current=${whole[at]}
    local before=${current%"${current##*:}"}
    local -a COMP_WORDS=("${whole[@]}")
    local COMP_CWORD=$at
    _clap_complete_imagelet "$1" "$current" "$3"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o nospace -o bashdefault -F _imagelet imagelet
"#;

/// Writes the completion script of a shell.
pub(crate) fn run(printer: Printer, args: &Completion) -> Outcome {
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let completer =
        shells.completer(&shell).ok_or_else(|| Failure::usage(format!("there is no script for {shell}")))?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, "imagelet", "imagelet", "imagelet", &mut script)
        .map_err(|error| Failure::caused(crate::exit::Code::Failed, "write the script", &error))?;
    if args.shell == clap_complete::Shell::Bash {
        script.extend_from_slice(BASH.as_bytes());
    }
    printer.lines([String::from_utf8_lossy(&script).trim()])
}

/// Answers a shell that requests candidates. Returns false if this call is no such request.
pub(crate) fn answer(words: &[OsString]) -> clap::error::Result<bool> {
    CompleteEnv::with_factory(|| completing(whole::command())).var(VARIABLE).try_complete(words.iter(), None)
}

/// Returns the parser with completers for the values of its arguments.
fn completing(command: clap::Command) -> clap::Command {
    command.mut_args(with_candidates).mut_subcommands(completing)
}

fn with_candidates(arg: Arg) -> Arg {
    let is_container = arg.get_id() == "container";
    let value = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str().to_owned());
    match value.as_deref() {
        Some("IMAGE" | "IMAGE|LAYER" | "IMAGE|PATTERN" | "IMAGE:PATH") => arg.add(ArgValueCompleter::new(images)),
        Some("POD") => arg.add(ArgValueCompleter::new(pods)),
        Some(_) if is_container => arg.add(ArgValueCompleter::new(containers)),
        _ => arg,
    }
}

/// Returns names of images, and ids once the user has typed a part of one.
fn images(current: &OsStr) -> Vec<CompletionCandidate> {
    let listed = ask(async |app| {
        let images = app.images().await?.service().list_images(None).await;
        images.map_err(|error| Failure::call("list images", &error))
    });
    let ids = listed.iter().flatten().map(|image| image.id.as_str());
    let ids = ids.flat_map(|id| [id.strip_prefix("sha256:").unwrap_or(id), id]).filter(|_| !current.is_empty());
    // A name without a registry belongs to docker.io.
    let short = |name: &'_ str| -> Vec<String> {
        let path = name.strip_prefix("docker.io/").map(|path| path.strip_prefix("library/").unwrap_or(path));
        path.into_iter().chain([name]).map(str::to_owned).collect()
    };
    let names = listed.iter().flatten().flat_map(|image| image.repo_tags.iter().flat_map(|name| short(name)));
    let names: Vec<String> = names.chain(ids.map(str::to_owned)).collect();
    candidates(current, names.iter().map(String::as_str))
}

/// Returns names of pods, and `namespace/name` once a namespace is typed.
fn pods(current: &OsStr) -> Vec<CompletionCandidate> {
    let listed = ask(async |app| {
        let runtime = super::target::runtime(app).await?;
        let pods = runtime.list_pod_sandboxes(None).await;
        pods.map_err(|error| Failure::call("list pods", &error))
    });
    let pods = listed.into_iter().flatten().map(|pod| (pod.metadata.namespace, pod.metadata.name));
    let with_namespace = current.to_string_lossy().contains('/');
    let names: BTreeSet<String> =
        pods.map(|(namespace, name)| if with_namespace { format!("{namespace}/{name}") } else { name }).collect();
    candidates(current, names.iter().map(String::as_str))
}

/// Returns names of the containers of the pods on the command line, or of all.
fn containers(current: &OsStr) -> Vec<CompletionCandidate> {
    let listed = ask(async |app| {
        let runtime = super::target::runtime(app).await?;
        let containers = runtime.list_containers(None).await;
        containers.map_err(|error| Failure::call("list containers", &error))
    });
    let words: Vec<String> = asked_words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let named: Vec<(bool, String)> = listed
        .into_iter()
        .flatten()
        .map(|container| {
            let label = |name| container.labels.get(name).cloned().unwrap_or_default();
            let (pod, namespace) = (label(POD_NAME), label(POD_NAMESPACE));
            let is_named = words.iter().any(|word| *word == pod || *word == format!("{namespace}/{pod}"));
            (is_named, container.metadata.name)
        })
        .collect();
    let any = named.iter().any(|(is_named, _)| *is_named);
    let names: BTreeSet<&str> =
        named.iter().filter(|(is_named, _)| *is_named || !any).map(|(_, name)| name.as_str()).collect();
    candidates(current, names.into_iter())
}

fn candidates<'a>(current: &OsStr, names: impl Iterator<Item = &'a str>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fitting: BTreeSet<&str> = names.filter(|name| name.starts_with(&*current)).collect();
    // A name that could control the terminal is never offered.
    fitting.into_iter().filter(|name| name.chars().all(oci::text::is_printable)).map(CompletionCandidate::new).collect()
}

/// Returns the words of the command line that is being typed.
fn asked_words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// Asks the target that the command line selects: the embedded store, an agent, or a runtime. Creates no store.
fn ask<T: Default>(question: impl AsyncFnOnce(&App) -> Outcome<T>) -> Option<T> {
    let environment = Environment::read();
    let (files, given) = whole::settings_of(&asked_words());
    let mut config = Config::load(&environment, &files, given).ok()?;
    let runtime = crate::runtime::start(|_| std::process::exit(1)).ok()?;
    let found = runtime.block_on(async {
        let signals = Signals::listen(&TaskTracker::new()).ok()?;
        tokio::time::timeout(PATIENCE, follow(&mut config, &environment)).await.ok()?.ok()?;
        if config.image_service_endpoint.is_none() && !config.root.exists() {
            return None;
        }
        let app =
            App::new(environment, config, Printer::default(), Progress::Nothing, signals, false, Access::reading());
        let found = tokio::time::timeout(PATIENCE, question(&app)).await;
        app.close().await;
        found.ok()?.ok()
    });
    runtime.shutdown_background();
    found
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;

    fn offered(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let index = words.len() - 1;
        let found = clap_complete::engine::complete(&mut completing(whole::command()), words, index, None);
        found.expect("an answer").iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn every_shell_gets_a_short_script() {
        let shells = Shells::builtins();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            let completer = shells.completer(&shell.to_string()).expect("there");
            completer.write_registration(VARIABLE, "imagelet", "imagelet", "imagelet", &mut script).expect("written");
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains(VARIABLE) && script.len() < 20_000, "{shell}: {} bytes", script.len());
        }
    }

    /// (words, some of the candidates)
    #[test]
    fn commands_flags_and_values_are_offered() {
        let cases: [(&[&str], &[&str]); 8] = [
            (&["imagelet", "im"], &["images", "import"]),
            (&["imagelet", "gc", "ex"], &["explain"]),
            (&["imagelet", "images", "--so"], &["--sort"]),
            (&["imagelet", "images", "--sort", "c"], &["created"]),
            (&["imagelet", "images", "-o", "cu"], &["custom-columns="]),
            (&["imagelet", "--log-level", ""], &[]),
            (&["imagelet", "pull", "--max-par"], &["--max-parallel-image-pulls"]),
            (&["imagelet", "completion", "z"], &["zsh"]),
        ];
        for (words, want) in cases {
            let got = offered(words);
            for word in want {
                assert!(got.iter().any(|one| one.starts_with(word)), "{words:?}: {got:?}");
            }
        }
        // Settings are not offered until the user has typed a part of one.
        assert!(!offered(&["imagelet", "images", "--"]).contains(&"--max-parallel-image-pulls".to_owned()));
    }
}
