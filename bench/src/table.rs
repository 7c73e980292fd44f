//! The figures as Markdown, for the terminal and for docs/performance.md. Pure.

use std::fmt::Write as _;

use crate::figures::EngineFigures;
use crate::floor::Floor;

/// A table for each image: engines, ratios, floor.
pub(crate) fn engines(rows: &[EngineFigures], floors: &[(String, Floor)], cores: usize) -> String {
    let mut out = String::new();
    let mut images: Vec<&str> = rows.iter().map(|r| r.image.as_str()).collect();
    images.dedup();
    for image in images {
        let of: Vec<&EngineFigures> = rows.iter().filter(|r| r.image == image).collect();
        let ours = of.iter().find(|r| r.engine == "imagelet").copied();
        let durable = of.iter().find(|r| r.engine == "imagelet-durable").copied();
        let _ = writeln!(
            out,
            "### {image}\n\n| engine | wall (s) | fastest–slowest | ratio | sync after (s) | wall and sync, over durable | CPU (s) | imagelet's CPU over its | peak (MiB) |\n\
             |---|---|---|---|---|---|---|---|---|"
        );
        for row in &of {
            let own = row.engine.starts_with("imagelet");
            let ratio = row.ratio.map_or_else(dash, |r| format!("{r:.2}"));
            let to_durable = durable.filter(|d| !own && d.wall_s > 0.0);
            let to_durable = to_durable.map_or_else(dash, |d| format!("{:.2}", (row.wall_s + row.sync_s) / d.wall_s));
            let cpu = ours.filter(|_| row.engine != "imagelet" && row.cpu_s > 0.0);
            let cpu = cpu.map_or_else(dash, |ours| format!("{:.2}", ours.cpu_s / row.cpu_s));
            let _ = writeln!(
                out,
                "| {} | {} | {}–{} | {ratio} | {} | {to_durable} | {} | {cpu} | {:.0} |",
                row.engine,
                seconds(row.wall_s),
                seconds(row.range.0),
                seconds(row.range.1),
                seconds(row.sync_s),
                seconds(row.cpu_s),
                row.peak_mib
            );
        }
        if let Some((_, floor)) = floors.iter().find(|(name, _)| name == image) {
            let _ = writeln!(out, "\n{}", near(floor, ours, durable, cores));
        }
        out.push('\n');
    }
    out
}

/// The floor of an image in words, and how near imagelet is.
fn near(floor: &Floor, ours: Option<&EngineFigures>, durable: Option<&EngineFigures>, cores: usize) -> String {
    let mut out = format!(
        "Floor: {} entries, {:.0} MB of files; CPU of the blobs' digest {}, inflating {}, the diff ids {}, files {}: {} s, on {cores} cores {} s; \
         the disk takes {} s for the bytes.",
        floor.totals.entries,
        floor.totals.bytes as f64 / 1e6,
        seconds(floor.blob_hash),
        seconds(floor.inflate),
        seconds(floor.diff_hash),
        seconds(floor.files),
        seconds(floor.cpu()),
        seconds(floor.relaxed(cores)),
        seconds(floor.disk),
    );
    if let Some(ours) = ours.filter(|row| row.wall_s > 0.0) {
        let _ = write!(
            out,
            " imagelet's relaxed pull takes {:.2} times the floor, with {:.2} times its CPU; the registry used {} s of the same cores.",
            ours.wall_s / floor.relaxed(cores),
            ours.cpu_s / floor.cpu(),
            seconds(ours.registry_s),
        );
    }
    if let Some(durable) = durable.filter(|row| row.wall_s > 0.0) {
        let _ = write!(
            out,
            " The durable one takes {:.2} times the greater of both.",
            durable.wall_s / floor.durable(cores)
        );
    }
    out
}

/// Three digits that count.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
