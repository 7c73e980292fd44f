//! The project's own chores, called as `cargo xtask NAME`.
//!
//! `deps` holds the crates to the arrows of the architecture, `tidy` the files to their habits; `upstream` writes the page
//! of the kubelet's test cases. Nothing of the product
//! depends on this crate, and this crate depends on nothing of the product: it reads files and `cargo metadata`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool: findings go to the terminal")]

mod deps;
mod deps_table;
mod tidy;
mod tidy_rules;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;

/// Name, what it does, what runs it. The answer is the list of findings; none is good.
type Chore = (&'static str, &'static str, fn(&std::path::Path) -> anyhow::Result<Report>);

/// Every chore there is.
pub(crate) const CHORES: &[Chore] = &[
    ("deps", "check the dependency arrows between the crates and to third parties", deps::run),
    ("tidy", "check file headers, sizes, forbidden words, documents, generated pages", tidy::run),
    ("upstream", "write docs/upstream-cases.md from the lists and the tests", upstream::run),
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
    let mut args = std::env::args().skip(1);
    let (Some(name), None) = (args.next(), args.next()) else {
        return usage("one chore, please");
    };
    let Some((_, _, chore)) = CHORES.iter().find(|(n, ..)| *n == name) else {
        return usage(&format!("no chore is called {name:?}"));
    };
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

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\n\nusage: cargo xtask NAME");
    for (name, what, _) in CHORES {
        eprintln!("  {name:<8} {what}");
    }
    ExitCode::from(2)
}

/// The directory that holds the workspace: this crate's parent.
fn workspace_root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.clone(), PathBuf::from)
}
