//! The project's own chores, called as `cargo xtask NAME`.
//!
//! `deps` holds the crates to the arrows of the architecture and their files to having no circles, `tidy` the files to their habits; `upstream` writes the page
//! of the kubelet's test cases, and `bench-pull` measures pulls. Nothing of the product
//! depends on this crate, and this crate depends on nothing of the product: it reads files and `cargo metadata`, and `bench_pull` runs programs.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool: findings go to the terminal")]

mod bench_pull;
mod circles;
mod counts;
mod deps;
mod deps_table;
mod modules;
mod named_tests;
mod tidy;
mod tidy_rules;
mod upstream;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name, what it does, what runs it.
type Chore = (&'static str, &'static str, Work);

/// What runs a chore, with the workspace's directory. The answer is the list of findings; none is good.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// It looks at the whole workspace, always in the same way.
    Plain(fn(&Path) -> anyhow::Result<Report>),
    /// It takes arguments. An error that is a [`Usage`] is the caller's.
    WithArguments(fn(&Path, &[String]) -> anyhow::Result<Report>),
}

/// Arguments that a chore does not understand.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Every chore there is.
pub(crate) const CHORES: &[Chore] = &[
    (
        "bench-pull",
        "measure pulls beside other engines; --help has its arguments",
        Work::WithArguments(bench_pull::run),
    ),
    ("deps", "check the arrows between crates and to third parties, and circles inside crates", Work::Plain(deps::run)),
    ("tidy", "check file headers, sizes, forbidden words, documents, generated pages", Work::Plain(tidy::run)),
    ("upstream", "write docs/upstream-cases.md from the lists and the tests", Work::Plain(upstream::run)),
];

/// What a chore found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Each breaks the build.
    pub(crate) failures: Vec<String>,
    /// Each deserves a second look.
    pub(crate) warnings: Vec<String>,
    /// One line of what was looked at, so that a check of nothing is seen.
    pub(crate) seen: String,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        return usage("one chore, please");
    };
    let Some((_, _, work)) = CHORES.iter().find(|(n, ..)| *n == name) else {
        return usage(&format!("no chore is called {name:?}"));
    };
    let result = match work {
        Work::Plain(_) if !rest.is_empty() => {
            return usage(&format!("{name} takes no arguments, and was given {}", rest.join(" ")));
        }
        Work::Plain(chore) => chore(&workspace_root()),
        Work::WithArguments(chore) => chore(&workspace_root(), rest),
    };
    match result {
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
            if e.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\n\nusage: cargo xtask NAME [ARGUMENT…]");
    for (name, what, _) in CHORES {
        eprintln!("  {name:<10} {what}");
    }
    ExitCode::from(2)
}

/// The directory that holds the workspace: this crate's parent.
fn workspace_root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.clone(), PathBuf::from)
}
