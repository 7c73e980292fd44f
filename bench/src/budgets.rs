//! The budgets of the pull engine on the reference machine (two cores, registry on loopback, journaled ext4), as data, against what a run
//! measured. Pure. A budget that is missed is a warning, not a failure: machines differ, and only ratios of one run count.

use std::fmt::Write as _;

use crate::figures::EngineFigures;

/// containerd through CRI over imagelet, relaxed, by wall time.
const RELAXED: &[(&str, f64)] =
    &[("base", 3.5), ("base-zstd", 3.0), ("app", 4.0), ("app-zstd", 3.0), ("ml", 3.7), ("manylayers", 4.0)];
/// The same where layers are EROFS files.
const EROFS: &[(&str, f64)] = &[("base", 4.0), ("app", 8.0), ("ml", 4.0), ("manylayers", 4.0)];
/// containerd through CRI followed by a sync, over imagelet durable.
const DURABLE: f64 = 3.0;
/// The same where layers are EROFS files, and imagelet's CPU over containerd's there: on app.
const EROFS_APP: (f64, f64) = (5.0, 0.25);
/// podman over imagelet on app.
const PODMAN: f64 = 5.0;
/// imagelet's CPU over containerd's.
const CPU: f64 = 0.45;
/// The most memory, in MiB.
const PEAK: f64 = 64.0;
/// A pull of what is present, the whole process, in milliseconds.
const WARM: f64 = 10.0;

/// A budget, and how a run stands to it.
#[derive(Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) image: String,
    pub(crate) what: String,
    pub(crate) wanted: String,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

/// Every budget that the rows say something about.
pub(crate) fn standings(rows: &[EngineFigures]) -> Vec<Standing> {
    let find = |image: &str, engine: &str| rows.iter().find(|r| r.image == image && r.engine == engine);
    let mut found = Vec::new();
    let mut add = |image: &str, what: &str, wanted: f64, at_least: bool, measured: f64| {
        found.push(Standing {
            image: image.to_owned(),
            what: what.to_owned(),
            wanted: format!("{} {wanted}", if at_least { "≥" } else { "≤" }),
            measured,
            met: if at_least { measured >= wanted } else { measured <= wanted },
        });
    };
    let mut images: Vec<&str> = rows.iter().map(|r| r.image.as_str()).collect();
    images.dedup();
    for image in images {
        let wanted = RELAXED.iter().find(|(name, _)| *name == image).map(|(_, wanted)| *wanted);
        let (ours, theirs) = (find(image, "imagelet"), find(image, "containerd-cri"));
        if let (Some(wanted), Some(ours), Some(theirs)) = (wanted, ours, theirs) {
            add(image, "containerd's wall over imagelet's", wanted, true, theirs.wall_s / ours.wall_s);
            add(image, "imagelet's CPU over containerd's", CPU, false, ours.cpu_s / theirs.cpu_s);
            if let Some(durable) = find(image, "imagelet-durable") {
                let ratio = (theirs.wall_s + theirs.sync_s) / durable.wall_s;
                add(image, "containerd's wall and sync over durable", DURABLE, true, ratio);
            }
            if let (Some((_, wanted)), Some(erofs)) =
                (EROFS.iter().find(|(name, _)| *name == image), find(image, "imagelet-erofs"))
            {
                add(image, "containerd's wall over EROFS'", *wanted, true, theirs.wall_s / erofs.wall_s);
                if image == "app" {
                    add(image, "CPU with EROFS over containerd's", EROFS_APP.1, false, erofs.cpu_s / theirs.cpu_s);
                }
            }
            if let (true, Some(durable)) = (image == "app", find(image, "imagelet-erofs-durable")) {
                let ratio = (theirs.wall_s + theirs.sync_s) / durable.wall_s;
                add(image, "containerd's wall and sync over durable EROFS", EROFS_APP.0, true, ratio);
            }
        }
        if let (true, Some(ours), Some(podman)) = (image == "app", ours, find(image, "podman")) {
            add(image, "podman's wall over imagelet's", PODMAN, true, podman.wall_s / ours.wall_s);
        }
        let own = rows.iter().filter(|r| r.image == image && r.engine.starts_with("imagelet"));
        let peak =
            own.map(|r| r.peak_mib).fold(None, |most: Option<f64>, peak| Some(most.map_or(peak, |m| m.max(peak))));
        if let Some(peak) = peak {
            add(image, "peak memory of imagelet (MiB)", PEAK, false, peak);
        }
    }
    found
}

/// How a pull of what is present stands to its budget: milliseconds of the whole process.
pub(crate) fn warm(image: &str, milliseconds: f64) -> Standing {
    Standing {
        image: image.to_owned(),
        what: "a pull of what is present (ms)".to_owned(),
        wanted: format!("≤ {WARM}"),
        measured: milliseconds,
        met: milliseconds <= WARM,
    }
}

/// The budgets as a table.
pub(crate) fn table(standings: &[Standing]) -> String {
    let mut out = String::from("| image | budget | wanted | measured | met |\n|---|---|---|---|---|\n");
    for s in standings {
        let met = if s.met { "yes" } else { "**no**" };
        let _ = writeln!(out, "| {} | {} | {} | {:.2} | {met} |", s.image, s.what, s.wanted, s.measured);
    }
    out
}

/// The missed ones, a line each.
pub(crate) fn missed(standings: &[Standing]) -> Vec<String> {
    let line = |s: &Standing| format!("{}: {} is {:.2}, the budget is {}", s.image, s.what, s.measured, s.wanted);
    standings.iter().filter(|s| !s.met).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(engine: &str, image: &str, wall_s: f64, cpu_s: f64) -> EngineFigures {
        let (engine, image) = (engine.to_owned(), image.to_owned());
        let (peak_mib, sync_s, range) = (if engine == "imagelet-durable" { 65.0 } else { 40.0 }, 0.5, (wall_s, wall_s));
        EngineFigures { engine, image, wall_s, cpu_s, peak_mib, sync_s, ratio: None, registry_s: 0.0, range, rounds: 1 }
    }

    #[test]
    fn a_run_is_held_to_every_budget_it_says_something_about() {
        let rows = [
            row("imagelet", "app", 2.0, 4.0),
            row("imagelet-durable", "app", 4.0, 4.0),
            row("imagelet-erofs", "app", 1.2, 2.4),
            row("imagelet-erofs-durable", "app", 2.0, 2.4),
            row("containerd-cri", "app", 10.0, 8.0),
            row("podman", "app", 9.0, 18.0),
        ];
        let standings = standings(&rows);
        let seen: Vec<(&str, &str, bool)> =
            standings.iter().map(|s| (s.what.as_str(), s.wanted.as_str(), s.met)).collect();
        assert_eq!(
            seen,
            [
                ("containerd's wall over imagelet's", "≥ 4", true),
                ("imagelet's CPU over containerd's", "≤ 0.45", false),
                ("containerd's wall and sync over durable", "≥ 3", false),
                ("containerd's wall over EROFS'", "≥ 8", true),
                ("CPU with EROFS over containerd's", "≤ 0.25", false),
                ("containerd's wall and sync over durable EROFS", "≥ 5", true),
                ("podman's wall over imagelet's", "≥ 5", false),
                ("peak memory of imagelet (MiB)", "≤ 64", false),
            ]
        );
        assert_eq!(missed(&standings).len(), 5);
        assert_eq!(missed(&standings)[1], "app: containerd's wall and sync over durable is 2.62, the budget is ≥ 3");
        assert!(table(&standings).contains("| app | containerd's wall over imagelet's | ≥ 4 | 5.00 | yes |"));
    }

    #[test]
    fn images_without_a_budget_have_their_memory_only() {
        let standings = standings(&[row("imagelet", "tiny", 0.1, 0.1), row("containerd-cri", "tiny", 0.1, 0.1)]);
        assert_eq!(standings.len(), 1);
        assert!(standings[0].met && missed(&standings).is_empty());
        assert!(warm("tiny", 10.0).met);
        assert_eq!(missed(&[warm("ml", 10.5)]), ["ml: a pull of what is present (ms) is 10.50, the budget is ≤ 10"]);
    }
}
