//! Ten containers of one image, with each snapshotter of each containerd, on an image that imagelet's engine pulled: how long each takes to
//! start, and how much of the machine's memory is held once all have read all files. `main.rs` calls this.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use tokio::runtime::Runtime;

use crate::behind::{idle, programs};
use crate::figures::median;
use crate::lab::Lab;
use crate::output::say;
use crate::proc::kib_of;
use crate::runtimes::{BUSYBOX, Puller, RuntimeUnderTest};
use crate::session::program;
use crate::table::seconds;

/// How many containers there are.
const TEN: usize = 10;
/// Images, where they are among the chosen ones.
const SHOWN: &[&str] = &["base", "app"];

/// All of it, as a table.
pub(crate) fn run(lab: &Lab, imagelet: &Path, containerds: &[PathBuf], images: &[String]) -> anyhow::Result<String> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let mut out = format!(
        "{TEN} containers of one image that imagelet's engine pulled. *Reading* is `cat` of all files in one container after the other, \
         beginning with nothing in memory; memory is the growth of the page cache since then.\n\n\
         | image | containerd | snapshotter | pulled by | start of the first (s) | median start (s) | reading, first (s) | reading, median of the others (s) \
         | cache after one (MiB) | cache after all (MiB) | removal of all (s) |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for programs in programs(lab, containerds)? {
        for &snapshotter in programs.snapshotters() {
            for &puller in &Puller::all(snapshotter)[1..] {
                let runtime = RuntimeUnderTest::start(lab, &tokio, &programs, snapshotter, imagelet, puller)?;
                let by = puller.name(snapshotter);
                for image in images.iter().filter(|image| SHOWN.contains(&image.as_str())) {
                    let row = one(lab, &tokio, &runtime, image)
                        .with_context(|| format!("{image} on containerd {} with {snapshotter}", programs.version))?;
                    let _ = writeln!(out, "| {image} | {} | {snapshotter} | {by} | {row} |", programs.version);
                    say(&format!("{image} on containerd {} with {snapshotter}, {by}: {row}", programs.version));
                }
                runtime.end(lab, &tokio)?;
            }
        }
    }
    Ok(out)
}

/// Page cache of the machine, in MiB.
fn page_cache() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let mib = |name: &str| kib_of(&text, name).map_or(0.0, |kib| kib as f64 / 1024.0);
    Ok(mib("Cached") + mib("Buffers"))
}

/// Figures of an image, as the cells of a row.
fn one(lab: &Lab, tokio: &Runtime, runtime: &RuntimeUnderTest, image: &str) -> anyhow::Result<String> {
    let pulled = tokio.block_on(runtime.pull(&lab.reference(image)))?;
    lab.session.output(&mut program("sync", &lab.session.work))?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop the page cache")?;
    let before = page_cache()?;
    let (mut containers, mut starts, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..TEN {
        let from = Instant::now();
        let name = format!("ten-{number}");
        containers.push(tokio.block_on(runtime.start_container(&name, &pulled, idle(image)))?);
        starts.push(from.elapsed().as_secs_f64());
    }
    let script = format!("{BUSYBOX} find / -xdev -type f -print0 | {BUSYBOX} xargs -0 {BUSYBOX} cat >/dev/null");
    let mut first = None;
    for container in &containers {
        let from = Instant::now();
        tokio.block_on(runtime.exec(container, &[BUSYBOX, "sh", "-c", &script]))?;
        reads.push(from.elapsed().as_secs_f64());
        if first.is_none() {
            first = Some(page_cache()?);
        }
    }
    let (after, first) = (page_cache()?, first.context("no container was started")?);
    let from = Instant::now();
    for container in &containers {
        tokio.block_on(runtime.remove_container(container))?;
    }
    let removal = from.elapsed().as_secs_f64();
    runtime.clear(lab, tokio, image)?;
    Ok(format!(
        "{} | {} | {} | {} | {:.0} | {:.0} | {}",
        seconds(starts[0]),
        seconds(median(&starts)),
        seconds(reads[0]),
        seconds(median(&reads[1..])),
        first - before,
        after - before,
        seconds(removal)
    ))
}
