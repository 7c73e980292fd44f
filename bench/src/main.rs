//! `cargo xtask bench-pull`: pulls with imagelet and with other engines, measured in turn on one disk, as tables and as JSON.
//!
//! This file knows the order of things: packages, images, disk, registry, parts. The rounds are in `rounds`, how an engine pulls
//! in `engines`, what is public of a process in `proc`, and everything that can be decided without running anything in `options`, `figures`
//! and `table`. Everything it starts ends with it (`session`).
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool: tables and progress go to the terminal"
)]

mod behind;
mod budgets;
mod containers;
mod engines;
mod figures;
mod floor;
mod floor_tree;
mod lab;
mod machine;
mod measure;
mod options;
mod output;
mod parts;
mod proc;
mod profile;
mod rounds;
mod runtimes;
mod session;
mod shapes;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};

use lab::Lab;
use options::BenchOptions;
use output::{PerformancePage, say};
use session::BenchSession;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let result = match args.get(1..).unwrap_or_default() {
        // The two forms in which this program starts itself.
        [first, directories @ ..] if first == session::JANITOR => {
            let directories: Vec<PathBuf> = directories.iter().map(PathBuf::from).collect();
            session::janitor(std::io::stdin().lock(), &directories)
        }
        [first, list, directory] if first == floor_tree::WRITE_TREE => {
            floor_tree::write(Path::new(list), Path::new(directory))
        }
        _ => match options::parse(&args) {
            Ok(options) => bench(&workspace_root(), options),
            Err(error) => error.exit(),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench-pull: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The directory that holds the workspace: this crate's parent.
fn workspace_root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.clone(), PathBuf::from)
}

fn bench(root: &Path, mut options: BenchOptions) -> anyhow::Result<()> {
    let start = Instant::now();
    // Only root sees the memory limits of other users' processes, mounts and starts containerd.
    if !session::is_root() {
        bail!("needs root: it mounts a disk and starts containerd");
    }
    script(root, "prerequisites.sh", &["--bench"])?;
    let corpus = match &options.corpus {
        Some(corpus) => corpus.clone(),
        None => {
            let mut images: Vec<&str> = options.images.iter().map(|i| i.strip_suffix("-zstd").unwrap_or(i)).collect();
            images.dedup();
            if options.parts.behind || options.parts.containers {
                images.insert(0, "pause"); // of the sandboxes
            }
            script(root, "bench-images.sh", &images)?;
            root.join("target/bench-corpus/oci")
        }
    };
    let corpus = fs::canonicalize(&corpus).with_context(|| format!("--corpus {}", corpus.display()))?;
    let imagelet = program_to_measure(root, &mut options)?;

    if let Some(file) = &options.json {
        // A place that cannot be written is known before the rounds, not after them.
        fs::write(file, "[]\n").with_context(|| format!("--json {}", file.display()))?;
    }
    say("making the disk, starting the registry, pushing the images");
    let mut pushed = options.images.clone();
    if (options.parts.behind || options.parts.containers) && !pushed.iter().any(|image| image == "pause") {
        pushed.push("pause".to_owned());
    }
    let lab = Lab::open(BenchSession::begin(&root.join("target"))?, &corpus, &pushed)?;
    let document = PerformancePage::new(root, options.docs);
    let about = format!("{} Load average at the start {}", machine::describe(&lab.session), machine::load());
    let (mut seen, mut warnings) = (Vec::new(), Vec::new());
    if options.parts.engines {
        let (samples, note) = rounds::rounds(&lab, &options, &imagelet)?;
        let rows = figures::rows(&samples, &options.images, &options.engines);
        if let Some(file) = &options.json {
            let text = serde_json::to_string_pretty(&rows)? + "\n";
            fs::write(file, text).with_context(|| format!("--json {}", file.display()))?;
        }
        let floors = rounds::floors(&lab, &options.images)?;
        let standings = budgets::standings(&rows);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
        let text = format!(
            "{about}, at the end {}. Medians of {most} round(s), of {} at most for `ctr`, podman and skopeo with umoci.{note}\n\n\
             ### Budgets\n\n{}\n{}",
            machine::load(),
            options.seldom.min(options.rounds),
            budgets::table(&standings),
            table::engines(&rows, &floors, cores)
        );
        warnings = budgets::missed(&standings);
        document.part("engines", &text)?;
        seen.push(format!("{} pulls", samples.len()));
    }
    if options.parts.together {
        say("ten pulls at once");
        let text = parts::together(&lab, &imagelet, &options.images)?;
        document.part("together", &text)?;
    }
    if let Some(bytes) = options.parts.memory {
        say("a pull in little memory");
        let text = parts::memory(&lab, &imagelet, &options.images, bytes)?;
        document.part("memory", &text)?;
    }
    if options.parts.warm {
        say("pulls of what is present");
        let (text, standings) = parts::warm(&lab, &imagelet, &options.images)?;
        warnings.extend(budgets::missed(&standings));
        document.part("warm", &text)?;
    }
    if options.parts.shapes {
        say("directories and EROFS files");
        let text = shapes::run(&lab, &imagelet, &options.images)?;
        document.part("shapes", &text)?;
    }
    if options.parts.profile {
        say("profiles");
        let text = profile::run(&lab, &imagelet, &options.images)?;
        document.part("profile", &text)?;
    }
    if options.parts.behind {
        say("containerd with imagelet's engine, and alone");
        let (text, samples) = behind::run(&lab, &imagelet, &options.containerds, &options.images, options.rounds)?;
        if let Some(file) = options.json.as_ref().filter(|_| !options.parts.engines) {
            let text = serde_json::to_string_pretty(&samples)? + "\n";
            fs::write(file, text).with_context(|| format!("--json {}", file.display()))?;
        }
        document.part("behind", &format!("{about}, at the end {}.\n\n{text}", machine::load()))?;
        seen.push(format!("{} pulls into containerd", samples.len()));
    }
    if options.parts.containers {
        say("ten containers of one image");
        document.part("containers", &containers::run(&lab, &imagelet, &options.containerds, &options.images)?)?;
    }
    seen.push(format!("{:.0} s", start.elapsed().as_secs_f64()));
    for line in &warnings {
        println!("warning: {line}");
    }
    println!("bench-pull: {}, {} warnings", seen.join(", "), warnings.len());
    Ok(())
}

/// The program to measure as `imagelet`: the one that the caller names, or a release build.
fn program_to_measure(root: &Path, options: &mut BenchOptions) -> anyhow::Result<PathBuf> {
    for (name, file) in &mut options.binaries {
        *file = fs::canonicalize(&*file).with_context(|| format!("--binary {name}={}", file.display()))?;
    }
    if let Some((_, file)) = options.binaries.iter().find(|(name, _)| name == "imagelet") {
        return Ok(file.clone());
    }
    say("building imagelet (release)");
    let status = session::plain(env!("CARGO"))
        .args(["build", "-q", "--release", "--locked", "-p", "imagelet"])
        .current_dir(root)
        .status()
        .context("run cargo build")?;
    if !status.success() {
        bail!("cargo build: {status}");
    }
    Ok(root.join("target/release/imagelet"))
}

/// Runs a script of the project with its output on the terminal.
fn script(root: &Path, name: &str, args: &[&str]) -> anyhow::Result<()> {
    let path = root.join("scripts").join(name);
    let status =
        session::plain(&path).args(args).current_dir(root).status().with_context(|| format!("run scripts/{name}"))?;
    if status.success() { Ok(()) } else { bail!("scripts/{name}: {status}") }
}
