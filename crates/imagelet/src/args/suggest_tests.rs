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
            "registries have no common search: `podman search TERM` asks Docker Hub, `skopeo list-tags docker://REPOSITORY` a repository",
        ),
        ("image ls", "commands about images stand alone: `imagelet images`, `inspect`, `pull`, `push`, `tag`, `rmi`"),
        ("pul x", "there is pull"),
        ("imagse", "there is images"),
        ("inpsect x", "there is inspect"),
        ("pull --format x", "-o json, -o jsonpath=TEMPLATE or -o custom-columns=NAME:PATH"),
        ("images --filtre x", "there is --filter"),
        ("images --no-trnc", "there is --no-trunc"),
        ("images --rooot x", "there is --root"),
        ("pull --max-paralel-image-pulls=2 x", "there is --max-parallel-image-pulls"),
        ("images -a", "all images are listed"),
        ("df --digests", "`imagelet images --digests`"),
        ("run nginx", "manifests are named with -f FILE"),
        ("gc explian", "there is explain"),
        ("backoff rest", "there is reset"),
    ];
    for (line, want) in cases {
        assert_eq!(tip(line).as_deref(), Some(want), "{line}");
    }
    for line in ["frobnicate", "images --frobnicate", "images -y", "xy"] {
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
