//! `cargo xtask bench-pull`: pulls with imagelet and with other engines, measured in turn on one disk, as tables and as JSON.
//!
//! This file knows the order of things: packages, images, disk, registry, rounds, what is written where. How an engine pulls is
//! in `engines`, what is public of a process in `proc`, and everything that can be decided without running anything in `options`, `figures`
//! and `table`. Everything it starts ends with it (`session`).

mod budgets;
mod build;
mod engines;
mod figures;
mod floor;
mod floor_tree;
mod lab;
mod machine;
mod measure;
mod options;
mod parts;
mod proc;
mod profile;
mod session;
mod shapes;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::{Report, Usage};
use engines::Engine;
use figures::Sample;
use lab::{Containerd, Lab};
use options::{Asked, Options};
use session::Session;

/// Images and their floors.
type Floors = Vec<(String, floor::Floor)>;

/// The entry point of the chore.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<Report> {
    match args {
        [first, rest @ ..] if first == session::JANITOR => {
            let directories: Vec<PathBuf> = rest.iter().map(PathBuf::from).collect();
            return session::janitor(std::io::stdin().lock(), &directories).map(|()| std::process::exit(0));
        }
        [first, list, directory] if first == floor_tree::WRITE_TREE => {
            return floor_tree::write(Path::new(list), Path::new(directory)).map(|()| std::process::exit(0));
        }
        _ => {}
    }
    let options = match options::parse(args).map_err(Usage)? {
        Asked::Run(options) => options,
        Asked::Help => {
            println!("{}", options::HELP);
            std::process::exit(0);
        }
    };
    bench(root, options)
}

/// A line of progress.
pub(crate) fn say(line: &str) {
    eprintln!("bench-pull: {line}");
}

fn bench(root: &Path, mut options: Options) -> anyhow::Result<Report> {
    let start = Instant::now();
    // Only root sees the limits of memory of others, mounts and starts containerd.
    if !session::is_root() {
        bail!("needs root: it mounts a disk and starts containerd");
    }
    script(root, "prerequisites.sh", &["--bench"])?;
    let corpus = match &options.corpus {
        Some(corpus) => corpus.clone(),
        None => {
            let mut images: Vec<&str> = options.images.iter().map(|i| i.strip_suffix("-zstd").unwrap_or(i)).collect();
            images.dedup();
            script(root, "bench-images.sh", &images)?;
            root.join("target/bench-corpus/oci")
        }
    };
    let corpus = fs::canonicalize(&corpus).with_context(|| format!("--corpus {}", corpus.display()))?;
    let imagelet = build::programs(root, &mut options)?;

    if let Some(file) = &options.json {
        // A place that cannot be written is known before the rounds, not after them.
        fs::write(file, "[]\n").with_context(|| format!("--json {}", file.display()))?;
    }
    say("making the disk, starting the registry, pushing the images");
    let lab = Lab::open(Session::begin(&root.join("target"))?, &corpus, &options.images)?;
    let document = Document { root, write: options.docs };
    let about = format!("{} Load average at the start {}", machine::describe(&lab.session), machine::load());
    let (mut seen, mut warnings) = (Vec::new(), Vec::new());
    if options.parts.engines {
        let (samples, note) = rounds(&lab, &options, &imagelet)?;
        let rows = figures::rows(&samples, &options.images, &options.engines);
        if let Some(file) = &options.json {
            let text = serde_json::to_string_pretty(&rows)? + "\n";
            fs::write(file, text).with_context(|| format!("--json {}", file.display()))?;
        }
        let floors = floors(&lab, &options.images)?;
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
    seen.push(format!("{:.0} s", start.elapsed().as_secs_f64()));
    Ok(Report { seen: seen.join(", "), warnings, failures: Vec::new() })
}

/// All rounds, and what is to be said of them.
fn rounds(lab: &Lab, options: &Options, imagelet: &Path) -> anyhow::Result<(Vec<Sample>, String)> {
    let named = |name: &String| Engine::named(name, imagelet, &options.binaries).map(|engine| (name.clone(), engine));
    let engines: Vec<(String, Engine)> = options.engines.iter().filter_map(named).collect();
    for name in options.engines.iter().filter(|name| !engines.iter().any(|(n, _)| n == *name)) {
        say(&format!("{name} is not measured: there is no such build"));
    }
    let containerd = if engines.iter().any(|(_, engine)| engine.needs_containerd()) {
        let probe = |socket: &Path| lab.session.output(engines::cri(lab, imagelet, socket).arg("images")).map(drop);
        Some(Containerd::start(lab, &probe)?)
    } else {
        None
    };
    let mut note = String::new();
    if let Some(containerd) = &containerd {
        let asks = client(lab, imagelet, containerd)?;
        note = format!(
            " The client of `containerd-cri` takes {} s ({} of CPU) of each of its pulls: so long is a list of no images.",
            table::seconds(asks.wall),
            table::seconds(asks.cpu)
        );
    }
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        for image in &options.images {
            let mut line = format!("round {}/{} {image}:", round + 1, options.rounds);
            // Each round begins with another engine.
            for at in 0..engines.len() {
                let (name, engine) = &engines[(at + round) % engines.len()];
                if !engine.can_pull(image) || (round >= options.seldom && !engine.always()) {
                    continue;
                }
                let sample = one(lab, containerd.as_ref(), name, engine, image)
                    .with_context(|| format!("{name} pulls {image}"))?;
                line += &format!(
                    " {name} {} s ({} CPU, {:.0} MiB)",
                    table::seconds(sample.wall),
                    table::seconds(sample.cpu),
                    sample.peak
                );
                samples.push(sample);
            }
            say(&line);
        }
    }
    if let Some(containerd) = containerd {
        // Another part may start one on the same root.
        lab.session.end(containerd.pid)?;
    }
    Ok((samples, note))
}

/// The floor of every image.
fn floors(lab: &Lab, images: &[String]) -> anyhow::Result<Floors> {
    let rate = floor::disk_rate(lab)?;
    say(&format!("the disk takes {:.0} MB/s", rate / 1e6));
    let mut floors = Vec::new();
    for image in images {
        floors.push((image.clone(), floor::of(lab, image, rate).with_context(|| format!("the floor of {image}"))?));
        say(&format!("the floor of {image} is computed"));
    }
    Ok(floors)
}

/// What asking containerd over CRI costs by itself: the middle of five.
fn client(lab: &Lab, imagelet: &Path, containerd: &Containerd) -> anyhow::Result<measure::Took> {
    let ask = || measure::measured(&lab.session, engines::cri(lab, imagelet, &containerd.socket).arg("images"), None);
    let mut took = (0..5).map(|_| Ok(ask()?.took)).collect::<anyhow::Result<Vec<_>>>()?;
    took.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    Ok(took[2])
}

/// One pull into an empty store, and the store empty again.
fn one(lab: &Lab, containerd: Option<&Containerd>, name: &str, engine: &Engine, image: &str) -> anyhow::Result<Sample> {
    engine.empty(lab, containerd)?;
    lab.settle()?;
    let before = proc::cpu_seconds(lab.registry_pid)?;
    let took = engine.pull(lab, containerd, image)?;
    let registry = proc::cpu_seconds(lab.registry_pid)? - before;
    let sync = lab.sync()?;
    engine.empty(lab, containerd)?;
    Ok(Sample {
        engine: name.to_owned(),
        image: image.to_owned(),
        wall: took.wall,
        cpu: took.cpu,
        peak: took.peak,
        sync,
        registry,
    })
}

/// Runs a script of the project; what it says is for whoever waits.
fn script(root: &Path, name: &str, args: &[&str]) -> anyhow::Result<()> {
    let path = root.join("scripts").join(name);
    let status =
        session::plain(&path).args(args).current_dir(root).status().with_context(|| format!("run scripts/{name}"))?;
    if status.success() { Ok(()) } else { bail!("scripts/{name}: {status}") }
}

/// docs/performance.md, where each part has its place between two marks.
struct Document<'a> {
    root: &'a Path,
    write: bool,
}

impl Document<'_> {
    /// Prints a part, and puts it into the document if that is asked for.
    fn part(&self, part: &str, text: &str) -> anyhow::Result<()> {
        println!("\n{}\n", text.trim_end());
        if self.write {
            let path = self.root.join("docs/performance.md");
            let document = fs::read_to_string(&path).context("read docs/performance.md")?;
            let new = table::replaced(&document, part, text)
                .with_context(|| format!("docs/performance.md has no marks for {part}"))?;
            fs::write(&path, new).context("write docs/performance.md")?;
        }
        Ok(())
    }
}
