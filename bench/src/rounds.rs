//! The rounds: every engine pulls every image in turn, each into an empty store. `main.rs` calls this.

use std::path::Path;

use anyhow::Context as _;

use crate::engines::{self, PullEngine};
use crate::figures::PullSample;
use crate::lab::{Containerd, Lab};
use crate::options::BenchOptions;
use crate::output::say;
use crate::{floor, measure, proc, table};

/// Images and their floors.
type Floors = Vec<(String, floor::Floor)>;

/// Runs all rounds; returns the samples and the remarks on them.
pub(crate) fn rounds(lab: &Lab, options: &BenchOptions, imagelet: &Path) -> anyhow::Result<(Vec<PullSample>, String)> {
    let named =
        |name: &String| PullEngine::named(name, imagelet, &options.binaries).map(|engine| (name.clone(), engine));
    let engines: Vec<(String, PullEngine)> = options.engines.iter().filter_map(named).collect();
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
pub(crate) fn floors(lab: &Lab, images: &[String]) -> anyhow::Result<Floors> {
    let rate = floor::disk_rate(lab)?;
    say(&format!("the disk takes {:.0} MB/s", rate / 1e6));
    let mut floors = Vec::new();
    for image in images {
        floors.push((image.clone(), floor::of(lab, image, rate).with_context(|| format!("the floor of {image}"))?));
        say(&format!("the floor of {image} is computed"));
    }
    Ok(floors)
}

/// Cost of a CRI request to containerd by itself: the median of five.
fn client(lab: &Lab, imagelet: &Path, containerd: &Containerd) -> anyhow::Result<measure::Took> {
    let ask = || measure::measured(&lab.session, engines::cri(lab, imagelet, &containerd.socket).arg("images"), None);
    let mut took = (0..5).map(|_| Ok(ask()?.took)).collect::<anyhow::Result<Vec<_>>>()?;
    took.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    Ok(took[2])
}

/// A pull into an empty store, and the store empty again.
fn one(
    lab: &Lab,
    containerd: Option<&Containerd>,
    name: &str,
    engine: &PullEngine,
    image: &str,
) -> anyhow::Result<PullSample> {
    engine.empty(lab, containerd)?;
    lab.settle()?;
    let before = proc::cpu_seconds(lab.registry_pid)?;
    let took = engine.pull(lab, containerd, image)?;
    let registry = proc::cpu_seconds(lab.registry_pid)? - before;
    let sync = lab.sync()?;
    engine.empty(lab, containerd)?;
    Ok(PullSample {
        engine: name.to_owned(),
        image: image.to_owned(),
        wall: took.wall,
        cpu: took.cpu,
        peak: took.peak,
        sync,
        registry,
    })
}
