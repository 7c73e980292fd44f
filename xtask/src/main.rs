//! The project's own chores, called as `cargo xtask NAME`.
//!
//! `deps` holds the crates to the arrows of the architecture and their files to having no circles, `tidy` the files to their habits, `commits`
//! the messages of commits to their rules; `upstream` writes the page of the kubelet's test cases, and `bench-pull` starts the benchmark.
//! Nothing of the product depends on this crate, and this crate depends on nothing of the product: it reads files, git and `cargo metadata`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool: findings go to the terminal")]

mod book;
mod chore;
mod circles;
mod commits;
mod containerd_versions;
mod counts;
mod decisions;
mod deps;
mod deps_table;
mod index_of_rules;
mod modules;
mod named_tests;
mod published;
mod release;
mod tidy;
mod tidy_rules;
mod upstream;
mod vocabulary;
mod words;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use chore::{CHORES, ChoreReport};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        return usage("one chore, please");
    };
    let chore: fn(&Path) -> anyhow::Result<ChoreReport> = match name.as_str() {
        "bench-pull" => return bench_pull(rest),
        "commits" => commits::run,
        "containerd-versions" => containerd_versions::run,
        "deps" => deps::run,
        "tidy" => tidy::run,
        "upstream" => upstream::run,
        _ => return usage(&format!("no chore is called {name:?}")),
    };
    if !rest.is_empty() {
        return usage(&format!("{name} takes no arguments, and was given {}", rest.join(" ")));
    }
    match chore(&workspace_root()) {
        Ok(report) => {
            for line in &report.warnings {
                println!("warning: {line}");
            }
            for line in &report.failures {
                println!("error: {line}");
            }
            println!("{name}: {}, {} errors, {} warnings", report.seen, report.failures.len(), report.warnings.len());
            if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(e) => {
            eprintln!("{name}: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Becomes the benchmark, which is a crate of its own so that the other chores build without it.
fn bench_pull(args: &[String]) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a chore: it runs the very cargo that runs it")]
    let mut command = Command::new(env!("CARGO"));
    let manifest = workspace_root().join("Cargo.toml");
    command.args(["run", "-q", "-p", "imagelet-bench", "--manifest-path"]).arg(manifest).arg("--").args(args);
    eprintln!("bench-pull: cannot run cargo: {}", command.exec());
    ExitCode::FAILURE
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\n\nusage: cargo xtask NAME [ARGUMENT…]");
    for (name, what) in CHORES {
        eprintln!("  {name:<19} {what}");
    }
    ExitCode::from(2)
}

/// The directory that holds the workspace: this crate's parent.
fn workspace_root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.clone(), PathBuf::from)
}
