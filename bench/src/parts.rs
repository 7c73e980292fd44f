//! Measurements of imagelet alone: ten pulls at once in one process, a pull in little memory, a pull of what is present.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::budgets::{self, Standing};
use crate::engines::imagelet;
use crate::figures::median;
use crate::lab::{self, Lab};
use crate::measure::{Measured, bare_wall, measured};
use crate::proc::mounted;
use crate::table::seconds;

/// How many pulls run at once.
const AT_ONCE: usize = 10;
/// How often what is present is pulled.
const WARM: usize = 15;

/// Ten pulls at once in one process, compared with the same pulls one after the other.
pub(crate) fn together(lab: &Lab, binary: &Path, images: &[String]) -> anyhow::Result<String> {
    let names = ten(images);
    for name in names.iter().filter(|name| name.again > 0) {
        lab.push_as(&name.image, &name.reference(&lab.registry))?;
    }
    let references: Vec<String> = names.iter().map(|name| name.reference(&lab.registry)).collect();
    let pull = |of: &[String]| {
        lab.settle()?;
        measured(&lab.session, imagelet(lab, binary, false, "pull").args(of), None)
    };
    let (mut alone, mut in_turn) = (Vec::new(), 0.0);
    for reference in &references {
        lab.remove("imagelet")?;
        alone.push(pull(std::slice::from_ref(reference))?.took.wall);
    }
    lab.remove("imagelet")?;
    for reference in &references {
        in_turn += pull(std::slice::from_ref(reference))?.took.wall;
    }
    lab.remove("imagelet")?;
    let at_once = pull(&references)?;
    lab.remove("imagelet")?;
    let mut out = format!(
        "{AT_ONCE} references in one process, relaxed: {} s, {} s of CPU, at most {:.0} MiB. Each alone, from an empty store: {} s in all; one after the \
         other into one store, where what they share is fetched once: {} s.\n\n| image | alone (s) | at once, done after (s) |\n|---|---|---|\n",
        seconds(at_once.took.wall),
        seconds(at_once.took.cpu),
        at_once.took.peak,
        seconds(alone.iter().sum()),
        seconds(in_turn),
    );
    for ((name, reference), alone) in names.iter().zip(&references).zip(alone) {
        let done = pulled_in(&at_once.stderr, reference)
            .with_context(|| format!("imagelet does not say when {reference} was done"))?;
        let again = if name.again > 0 { " (a further tag)" } else { "" };
        let _ = writeln!(out, "| {}{again} | {} | {} |", name.image, seconds(alone), seconds(done));
    }
    Ok(out)
}

/// An image of the corpus, under its own tag or a further one.
#[derive(Debug, PartialEq, Eq)]
struct PullName {
    image: String,
    again: usize,
}

impl PullName {
    fn reference(&self, registry: &str) -> String {
        let first = lab::reference(registry, &self.image);
        if self.again == 0 { first } else { format!("{first}-{}", self.again) }
    }
}

/// Ten names of the images: each once, then further tags, the last image first.
fn ten(images: &[String]) -> Vec<PullName> {
    let tags = (0..AT_ONCE).flat_map(|again| {
        let order: Vec<&String> = if again == 0 { images.iter().collect() } else { images.iter().rev().collect() };
        order.into_iter().map(move |image| PullName { image: image.clone(), again })
    });
    tags.take(AT_ONCE).collect()
}

/// Returns the duration of a pull in seconds, from its last line.
fn pulled_in(text: &str, reference: &str) -> Option<f64> {
    let after = text.lines().find_map(|line| line.split_once(&format!("pulled image={reference} duration=")))?.1;
    let word = after.split_ascii_whitespace().next()?;
    if let Some(milliseconds) = word.strip_suffix("ms") {
        return Some(milliseconds.parse::<f64>().ok()? / 1000.0);
    }
    let word = word.strip_suffix('s')?;
    match word.split_once('m') {
        Some((minutes, rest)) => Some(minutes.parse::<f64>().ok()? * 60.0 + rest.parse::<f64>().ok()?),
        None => word.parse().ok(),
    }
}

/// A pull inside a control group of a size.
pub(crate) fn memory(lab: &Lab, binary: &Path, images: &[String], bytes: u64) -> anyhow::Result<String> {
    let image = images.iter().find(|image| *image == "ml").or(images.last()).context("no image")?;
    let mut out = format!(
        "{image} in a control group of {} MiB, which counts the pages of the files it writes as well:\n\n\
         | durability | wall (s) | CPU (s) | peak of the process (MiB) | killed by the kernel |\n|---|---|---|---|---|\n",
        bytes >> 20
    );
    for (durable, name) in [(false, "relaxed"), (true, "full")] {
        lab.remove("imagelet")?;
        lab.settle()?;
        let group = MemoryGroup::make(lab, bytes)?;
        let mut pull = imagelet(lab, binary, durable, "pull");
        let done = measured(&lab.session, pull.arg(lab.reference(image)), Some(&group.processes()))
            .with_context(|| format!("pull {image} with {} MiB of memory, {name}", bytes >> 20))?;
        let Measured { took, .. } = done;
        let killed = group.killed()?;
        let _ =
            writeln!(out, "| {name} | {} | {} | {:.0} | {killed} |", seconds(took.wall), seconds(took.cpu), took.peak);
        group.remove()?;
    }
    lab.remove("imagelet")?;
    Ok(out)
}

/// A control group with a limit of memory, of either version.
struct MemoryGroup {
    directory: PathBuf,
    /// The file that counts processes which the kernel killed.
    events: &'static str,
}

impl MemoryGroup {
    fn make(lab: &Lab, bytes: u64) -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts").context("read the mounts")?;
        let name = format!("imagelet-bench-pull.{}", std::process::id());
        let write =
            |path: PathBuf, text: String| fs::write(&path, text).with_context(|| format!("write {}", path.display()));
        if let Some(root) = mounted(&mounts, "cgroup", Some("memory")) {
            let group = Self { directory: Path::new(&root).join(name), events: "memory.oom_control" };
            group.create(lab)?;
            write(group.directory.join("memory.limit_in_bytes"), bytes.to_string())?;
            return Ok(group);
        }
        let Some(root) = mounted(&mounts, "cgroup2", None) else { bail!("no control groups are mounted") };
        let root = Path::new(&root);
        write(root.join("cgroup.subtree_control"), "+memory".to_owned())?;
        let group = Self { directory: root.join(name), events: "memory.events" };
        group.create(lab)?;
        write(group.directory.join("memory.max"), bytes.to_string())?;
        Ok(group)
    }

    fn create(&self, lab: &Lab) -> anyhow::Result<()> {
        lab.session.remove_at_end(&self.directory)?;
        fs::create_dir(&self.directory).with_context(|| format!("make {}", self.directory.display()))
    }

    /// The file that takes the ids of processes.
    fn processes(&self) -> String {
        self.directory.join("cgroup.procs").display().to_string()
    }

    /// How many processes of the group the kernel killed.
    fn killed(&self) -> anyhow::Result<u64> {
        let path = self.directory.join(self.events);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        oom_kills(&text).with_context(|| format!("{} does not count kills", path.display()))
    }

    fn remove(&self) -> anyhow::Result<()> {
        fs::remove_dir(&self.directory).with_context(|| format!("remove {}", self.directory.display()))
    }
}

/// The number behind `oom_kill`, the same in both versions.
fn oom_kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Pulls of what is present: their time, their requests, and how they stand to their budget.
pub(crate) fn warm(lab: &Lab, binary: &Path, images: &[String]) -> anyhow::Result<(String, Vec<Standing>)> {
    let (pid, registry) = lab::start_registry(&lab.session, &lab.disk.join("registry"), true)?;
    let log = lab.session.work.join("requests.log");
    let mut standings = Vec::new();
    let mut out = String::from(
        "| image | a pull says (ms) | the whole process (ms) | its CPU (ms) | requests | a second tag of the digest (ms) | requests |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for image in images {
        let reference = lab::reference(&registry, image);
        let second = format!("{reference}-second");
        lab.push_as(image, &second)?;
        let pull = |reference: &str| measured(&lab.session, imagelet(lab, binary, false, "pull").arg(reference), None);
        let seen = || fs::read_to_string(&log).map(|text| requests(&text));
        lab.remove("imagelet")?;
        lab.settle()?;
        pull(&reference)?;
        let before = seen()?;
        let (mut said, mut wall, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..WARM {
            let done = pull(&reference)?;
            said.push(pulled_in(&done.stderr, &reference).context("imagelet does not say how long it took")? * 1e3);
            cpu.push(done.took.cpu * 1e3);
            // The program that counts the CPU takes some milliseconds itself.
            wall.push(bare_wall(&lab.session, imagelet(lab, binary, false, "pull").arg(&reference))? * 1e3);
        }
        standings.push(budgets::warm(image, median(&wall)));
        let between = seen()?;
        let done = pull(&second)?;
        let tagged = pulled_in(&done.stderr, &second).context("imagelet does not say how long it took")? * 1e3;
        let after = seen()?;
        let _ = writeln!(
            out,
            "| {image} | {:.0} | {:.0} | {:.0} | {} | {tagged:.0} | {} |",
            median(&said),
            median(&wall),
            median(&cpu),
            each(between.minus(before), 2 * WARM),
            each(after.minus(between), 1),
        );
    }
    lab.session.end(pid)?;
    lab.remove("imagelet")?;
    let _ = write!(out, "\n{}", budgets::table(&standings));
    Ok((out, standings))
}

/// Requests that a registry was asked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Requests {
    manifests: usize,
    blobs: usize,
    others: usize,
}

impl Requests {
    fn minus(self, before: Self) -> Self {
        Self {
            manifests: self.manifests - before.manifests,
            blobs: self.blobs - before.blobs,
            others: self.others - before.others,
        }
    }
}

/// Counts the lines of a registry's log of requests, pushes aside.
fn requests(log: &str) -> Requests {
    let mut seen = Requests::default();
    for line in log.lines() {
        let asked = line.split('"').nth(1).unwrap_or_default();
        match asked.split(' ').nth(1) {
            Some(path) if path.contains("/manifests/") => seen.manifests += 1,
            Some(path) if path.contains("/blobs/") => seen.blobs += 1,
            Some(path) if path.starts_with("/v2/") => seen.others += 1,
            _ => {}
        }
    }
    seen
}

/// How many of each there were for one pull.
fn each(requests: Requests, pulls: usize) -> String {
    let mut words = Vec::new();
    for (number, what) in [(requests.manifests, "manifest"), (requests.blobs, "blob"), (requests.others, "other")] {
        if number > 0 {
            words.push(format!("{} {what}", number as f64 / pulls as f64));
        }
    }
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
