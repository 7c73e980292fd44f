//! Layers as directories compared with layers as EROFS files, once they are present: how long their removal takes, and how fast all
//! files of a mounted image are read; and pull, removal and pull again on the file system of the checkout. Medians of a few rounds.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::engines::{self, LayerFormat, PullEngine};
use crate::figures::median;
use crate::lab::{Containerd, Lab};
use crate::measure::measured;
use crate::session::program;
use crate::table::seconds;

/// Images with figures, if they are among the chosen ones.
const SHOWN: &[&str] = &["base", "app", "ml"];
/// How often each is done.
const ROUNDS: usize = 3;

/// Seconds that one shape took.
#[derive(Default)]
struct ShapeTimes {
    removal: Vec<f64>,
    cold: Vec<f64>,
    warm: Vec<f64>,
}

/// All of it, as tables.
pub(crate) fn run(lab: &Lab, binary: &Path, images: &[String]) -> anyhow::Result<String> {
    let mut shown: Vec<&String> = images.iter().filter(|image| SHOWN.contains(&image.as_str())).collect();
    if shown.is_empty() {
        shown.extend(images.first());
    }
    let probe = |socket: &Path| lab.session.output(engines::cri(lab, binary, socket).arg("images")).map(drop);
    let containerd = Containerd::start(lab, &probe)?;
    let mut out = format!(
        "Medians of {ROUNDS}. *Removal* is `imagelet rmi` with `durability: full`, compared with `ctr images rm --sync`. *Reading* is \
         `tar -c . | cat >/dev/null` in the mounted image, with nothing in memory and once more.\n\n\
         | image | layers | removal (s) | containerd's removal (s) | over imagelet's | reading, cold (s) | reading, warm (s) |\n\
         |---|---|---|---|---|---|---|\n"
    );
    for image in shown {
        let theirs =
            containerds_removal(lab, &containerd, binary, image).with_context(|| format!("{image} in containerd"))?;
        for format in LayerFormat::ALL {
            let took = one(lab, binary, image, format).with_context(|| format!("{image} as {}", format.name()))?;
            let removal = median(&took.removal);
            let _ = writeln!(
                out,
                "| {image} | {} | {} | {} | {:.1} | {} | {} |",
                format.name(),
                seconds(removal),
                seconds(theirs),
                theirs / removal,
                seconds(median(&took.cold)),
                seconds(median(&took.warm)),
            );
        }
    }
    lab.session.end(containerd.pid)?;
    if let Some(image) = images.iter().find(|image| *image == "app").or(images.last()) {
        again(lab, binary, image, &mut out)?;
    }
    Ok(out)
}

/// `imagelet` with one shape of layers on a root of the caller's.
fn imagelet(lab: &Lab, binary: &Path, root: &Path, format: LayerFormat, command: &str) -> Command {
    let mut imagelet = program(binary, &lab.session.work);
    imagelet.arg("--config").arg(&lab.config).arg("--root").arg(root).args(["--layer-format", format.name()]);
    imagelet.args(["--progress", "none", "-q", command]);
    imagelet
}

/// Pulls, mounts, reads, removes.
fn one(lab: &Lab, binary: &Path, image: &str, format: LayerFormat) -> anyhow::Result<ShapeTimes> {
    let reference = lab.reference(image);
    let (root, target) = (lab.disk.join("imagelet"), lab.session.work.join("shown"));
    std::fs::create_dir_all(&target)?;
    let wall = |command: &Command| measured(&lab.session, command, None).map(|done| done.took.wall);
    let mut read = program("sh", &lab.session.work);
    read.args(["-c", r#"cd "$1" && tar -c . | cat >/dev/null"#, "sh"]).arg(&target);
    let mut took = ShapeTimes::default();
    for _ in 0..ROUNDS {
        lab.remove("imagelet")?;
        wall(imagelet(lab, binary, &root, format, "pull").arg(&reference))?;
        wall(imagelet(lab, binary, &root, format, "mount").arg(&reference).arg(&target))?;
        lab.settle()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("empty the caches")?;
        took.cold.push(wall(&read)?);
        took.warm.push(wall(&read)?);
        wall(imagelet(lab, binary, &root, format, "unmount").arg(&target))?;
        lab.settle()?;
        took.removal.push(wall(imagelet(lab, binary, &root, format, "rmi").arg(&reference))?);
    }
    lab.remove("imagelet")?;
    Ok(took)
}

/// Seconds that containerd takes to remove an image that it pulled over CRI.
fn containerds_removal(lab: &Lab, containerd: &Containerd, client: &Path, image: &str) -> anyhow::Result<f64> {
    let engine = PullEngine::ContainerdCri { client: client.to_owned() };
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        engine.empty(lab, Some(containerd))?;
        engine.pull(lab, Some(containerd), image)?;
        lab.settle()?;
        took.push(engine.remove(lab, containerd)?);
    }
    Ok(median(&took))
}

/// Pull, removal and pull again on the file system of the checkout.
fn again(lab: &Lab, binary: &Path, image: &str, out: &mut String) -> anyhow::Result<()> {
    let root = lab.session.work.join("same-disk");
    let mut stat = program("findmnt", &lab.session.work);
    let kind = lab.session.output(stat.args(["-n", "-o", "FSTYPE", "-T"]).arg(&lab.session.work))?;
    let _ = writeln!(
        out,
        "\n{image} on the file system of the checkout ({}, not the disk of the other figures), relaxed, in seconds:\n\n\
         | layers | first pull | removal | second pull | over the first |\n|---|---|---|---|---|",
        kind.trim()
    );
    for format in LayerFormat::ALL {
        let wall = |command: &mut Command| {
            lab.settle()?;
            measured(&lab.session, command.arg(lab.reference(image)), None).map(|done| done.took.wall)
        };
        let relaxed = |name: &str| {
            let mut command = imagelet(lab, binary, &root, format, name);
            command.args(["--durability", "relaxed"]);
            command
        };
        let first = wall(&mut relaxed("pull"))?;
        let removal = wall(&mut relaxed("rmi"))?;
        let second = wall(&mut relaxed("pull"))?;
        crate::session::remove(&root)?;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.2} |",
            format.name(),
            seconds(first),
            seconds(removal),
            seconds(second),
            second / first
        );
    }
    Ok(())
}
