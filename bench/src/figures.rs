//! Samples and the figures made of them: medians, ratios, one row for each engine and image. Pure.

use serde::Serialize;

/// A pull by one engine.
#[derive(Debug, Clone)]
pub(crate) struct PullSample {
    pub(crate) engine: String,
    pub(crate) image: String,
    /// Seconds from its start to its end.
    pub(crate) wall: f64,
    /// Seconds of CPU of all processes of the engine, client and daemon.
    pub(crate) cpu: f64,
    /// Most memory that the process which pulls held, in MiB.
    pub(crate) peak: f64,
    /// Seconds that a `sync` of the file system took afterwards.
    pub(crate) sync: f64,
    /// Seconds of CPU that the registry used meanwhile, on the same machine.
    pub(crate) registry: f64,
}

/// Medians of one engine and image: one object of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EngineFigures {
    pub(crate) engine: String,
    pub(crate) image: String,
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) peak_mib: f64,
    pub(crate) sync_s: f64,
    /// Wall time over imagelet's; none where imagelet did not run.
    pub(crate) ratio: Option<f64>,
    /// Not a field of the JSON: what the registry used of the CPU.
    #[serde(skip)]
    pub(crate) registry_s: f64,
    /// Not a field of the JSON: the fastest and the slowest of its rounds.
    #[serde(skip)]
    pub(crate) range: (f64, f64),
    /// Not a field of the JSON: the number of rounds.
    #[serde(skip)]
    pub(crate) rounds: usize,
}

/// The middle of the values; the mean of the two in the middle where their number is even. Zero of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// A row for each engine and image that has samples, in the order of the two lists.
pub(crate) fn rows(samples: &[PullSample], images: &[String], engines: &[String]) -> Vec<EngineFigures> {
    let mut rows = Vec::new();
    for image in images {
        let of = |engine: &str| -> Vec<&PullSample> {
            samples.iter().filter(|s| s.engine == engine && s.image == *image).collect()
        };
        let middle = |of: &[&PullSample], value: fn(&PullSample) -> f64| {
            median(&of.iter().map(|s| value(s)).collect::<Vec<_>>())
        };
        let ours = of("imagelet");
        let ours = (!ours.is_empty()).then(|| middle(&ours, |s| s.wall)).filter(|&wall| wall > 0.0);
        for engine in engines {
            let of = of(engine);
            if of.is_empty() {
                continue;
            }
            let wall = middle(&of, |s| s.wall);
            rows.push(EngineFigures {
                engine: engine.clone(),
                image: image.clone(),
                wall_s: rounded(wall),
                cpu_s: rounded(middle(&of, |s| s.cpu)),
                peak_mib: rounded(middle(&of, |s| s.peak)),
                sync_s: rounded(middle(&of, |s| s.sync)),
                ratio: ours.map(|ours| rounded(wall / ours)),
                registry_s: middle(&of, |s| s.registry),
                range: of.iter().fold((f64::MAX, 0.0), |(low, high), s| (s.wall.min(low), s.wall.max(high))),
                rounds: of.len(),
            });
        }
    }
    rows
}

/// To three digits: finer is noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
