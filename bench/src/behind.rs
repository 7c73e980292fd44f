//! containerd with imagelet's engine compared with containerd alone, as a kubelet sees both: PullImage, and from there to the first
//! process of a container. Every containerd that is named takes part with each of its snapshotters; all run in turn, round by
//! round.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;

use crate::figures::median;
use crate::lab::Lab;
use crate::output::say;
use crate::proc;
use crate::runtimes::{BUSYBOX, Programs, Puller, RuntimeUnderTest};
use crate::table::seconds;

/// Images that are measured where the caller names none: the ones whose pulls differ most.
pub(crate) const SHOWN: &[&str] = &["tiny", "base", "app", "ml", "manylayers"];

/// A pull, and the start of a container.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StartSample {
    image: String,
    version: String,
    snapshotter: &'static str,
    /// The program that pulled, and the form of its layers.
    puller: Puller,
    /// Seconds of PullImage.
    pull: f64,
    /// Seconds from the call of PullImage to the answer of StartContainer.
    start: f64,
    /// Seconds of CPU until then, of containerd with its children and of imagelet.
    cpu: [f64; 2],
    /// The most memory of containerd and of imagelet meanwhile, in MiB.
    peak: [f64; 2],
}

/// All rounds, as a table.
pub(crate) fn run(
    lab: &Lab,
    imagelet: &Path,
    containerds: &[PathBuf],
    images: &[String],
    rounds: usize,
) -> anyhow::Result<(String, Vec<StartSample>)> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let mut runtimes = Vec::new();
    for programs in programs(lab, containerds)? {
        for &snapshotter in programs.snapshotters() {
            for &puller in Puller::all(snapshotter) {
                let runtime = RuntimeUnderTest::start(lab, &tokio, &programs, snapshotter, imagelet, puller)
                    .with_context(|| format!("containerd {} with {snapshotter}", programs.version))?;
                runtimes.push(runtime);
            }
        }
    }
    let mut samples = Vec::new();
    for round in 0..rounds {
        for image in images.iter().filter(|image| SHOWN.contains(&image.as_str())) {
            let mut line = format!("round {}/{rounds} {image}:", round + 1);
            // Each round begins with another one.
            for at in 0..runtimes.len() {
                let runtime = &runtimes[(at + round) % runtimes.len()];
                let sample = one(lab, &tokio, runtime, image).with_context(|| {
                    format!("{image} on containerd {} with {}", runtime.version, runtime.snapshotter)
                })?;
                let by = sample.puller.name(sample.snapshotter);
                line += &format!(
                    " {} {} {by} {} s, {} s;",
                    sample.version,
                    sample.snapshotter,
                    seconds(sample.pull),
                    seconds(sample.start)
                );
                samples.push(sample);
            }
            say(&line);
        }
    }
    for runtime in runtimes {
        runtime.end(lab, &tokio)?;
    }
    Ok((table(&samples), samples))
}

/// The programs of the containerds that were named, or of the machine's.
pub(crate) fn programs(lab: &Lab, containerds: &[PathBuf]) -> anyhow::Result<Vec<Programs>> {
    if containerds.is_empty() {
        return Ok(vec![Programs::of(lab, None)?]);
    }
    let of = |directory: &PathBuf| {
        // The word for the one that is installed.
        let installed = directory.as_os_str() == "installed";
        Programs::of(lab, (!installed).then_some(directory.as_path()))
            .with_context(|| format!("--containerd {}", directory.display()))
    };
    containerds.iter().map(of).collect()
}

/// The command of a container that does nothing for long, from the image itself where it has such.
pub(crate) fn idle(image: &str) -> &'static [&'static str] {
    match image {
        "tiny" | "manylayers" => &["/bin/busybox", "sleep", "1000000"],
        "ml" => &[BUSYBOX, "sleep", "1000000"],
        _ => &["/bin/sleep", "1000000"],
    }
}

fn one(
    lab: &Lab,
    tokio: &tokio::runtime::Runtime,
    runtime: &RuntimeUnderTest,
    image: &str,
) -> anyhow::Result<StartSample> {
    lab.settle()?;
    let processes = [Some(runtime.pid), runtime.imagelet()];
    let each = |of: &dyn Fn(u32) -> anyhow::Result<f64>| -> anyhow::Result<[f64; 2]> {
        Ok([processes[0].map_or(Ok(0.0), of)?, processes[1].map_or(Ok(0.0), of)?])
    };
    for pid in processes.into_iter().flatten() {
        proc::forget_peak(pid)?;
    }
    let before = each(&proc::cpu_seconds)?;
    let reference = lab.reference(image);
    let from = Instant::now();
    let (pull, start, container) = tokio.block_on(async {
        let pulled = runtime.pull(&reference).await?;
        let pull = from.elapsed().as_secs_f64();
        let container = runtime.start_container("first", &pulled, idle(image)).await.context("start a container")?;
        anyhow::Ok((pull, from.elapsed().as_secs_f64(), container))
    })?;
    let (after, peak) = (each(&proc::cpu_seconds)?, each(&proc::peak_mib)?);
    tokio.block_on(runtime.remove_container(&container))?;
    runtime.clear(lab, tokio, image)?;
    Ok(StartSample {
        image: image.to_owned(),
        version: runtime.version.clone(),
        snapshotter: runtime.snapshotter,
        puller: runtime.puller,
        pull,
        start,
        cpu: [after[0] - before[0], after[1] - before[1]],
        peak,
    })
}

/// Medians of the samples that a row is made of.
struct BehindRow<'a> {
    first: &'a StartSample,
    of: Vec<&'a StartSample>,
}

impl BehindRow<'_> {
    fn middle(&self, of: impl Fn(&StartSample) -> f64) -> f64 {
        median(&self.of.iter().map(|sample| of(sample)).collect::<Vec<_>>())
    }
}

/// A table for each image.
fn table(samples: &[StartSample]) -> String {
    let mut rows: Vec<BehindRow<'_>> = Vec::new();
    let key = |s: &StartSample| (s.image.clone(), s.version.clone(), s.snapshotter, s.puller);
    for sample in samples {
        match rows.iter_mut().find(|row| key(row.first) == key(sample)) {
            Some(row) => row.of.push(sample),
            None => rows.push(BehindRow { first: sample, of: vec![sample] }),
        }
    }
    let rounds = rows.iter().map(|row| row.of.len()).max().unwrap_or(0);
    let mut out = format!(
        "Medians of {rounds} round(s). *To the first process* is from the call of PullImage to the answer of StartContainer, in a sandbox that is there. \
         A ratio is containerd's own time over the one with imagelet's engine, with the same snapshotter; *over overlayfs alone* is containerd's own \
         PullImage with overlayfs over this one.\n"
    );
    let mut image = "";
    for row in &rows {
        if row.first.image != image {
            image = &row.first.image;
            let _ = writeln!(
                out,
                "\n#### {image}\n\n| containerd | snapshotter | engine | PullImage (s) | ratio | to the first process (s) | ratio | \
                 CPU of containerd, of imagelet (s) | over overlayfs alone | peak of containerd, of imagelet (MiB) |\n\
                 |---|---|---|---|---|---|---|---|---|---|"
            );
        }
        let alone = |snapshotter: &str| {
            let wanted = (row.first.image.clone(), row.first.version.clone(), snapshotter.to_owned());
            rows.iter().find(|other| {
                let has = (other.first.image.clone(), other.first.version.clone(), other.first.snapshotter.to_owned());
                has == wanted && other.first.puller == Puller::Containerd
            })
        };
        let ratio = |of: &dyn Fn(&StartSample) -> f64, snapshotter: &str, shown: bool| {
            let other = alone(snapshotter).filter(|_| shown);
            other.map_or_else(|| "–".to_owned(), |other| format!("{:.2}", other.middle(of) / row.middle(of)))
        };
        let (pull, start) = (|s: &StartSample| s.pull, |s: &StartSample| s.start);
        let erofs = row.first.snapshotter != "overlayfs";
        let is_engine = row.first.puller != Puller::Containerd;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {}, {} | {} | {:.0}, {:.0} |",
            row.first.version,
            row.first.snapshotter,
            row.first.puller.name(row.first.snapshotter),
            seconds(row.middle(pull)),
            ratio(&pull, row.first.snapshotter, is_engine),
            seconds(row.middle(start)),
            ratio(&start, row.first.snapshotter, is_engine),
            seconds(row.middle(|s| s.cpu[0])),
            seconds(row.middle(|s| s.cpu[1])),
            ratio(&pull, "overlayfs", erofs),
            row.middle(|s| s.peak[0]),
            row.middle(|s| s.peak[1]),
        );
    }
    out
}

#[cfg(test)]
#[path = "behind_tests.rs"]
mod tests;
