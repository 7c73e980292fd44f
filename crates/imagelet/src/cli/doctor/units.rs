//! Checks of the systemd units of the package: installed, enabled and active. Reads the directories of systemd, and starts no program.

use std::path::PathBuf;

use super::finding::{Finding, blocking};
use crate::images::{BOOT_UNIT, UNIT_DIRECTORIES, is_enabled};

const UNITS: &str = "units";
const MOUNTS_UNIT: &str = "mounts-unit";
/// The unit that runs pods, and the one that serves the images of a kubelet.
const SERVICES: [&str; 2] = ["imagelet.service", "imagelet-serve.service"];
/// The socket that starts the second one.
const SOCKET: &str = "imagelet-serve.socket";

/// Checks the units that run imagelet, and the one that mounts layers.
pub(super) async fn check() -> Vec<Finding> {
    let systemd = || Systemd {
        units: UNIT_DIRECTORIES.iter().map(PathBuf::from).chain([PathBuf::from("/lib/systemd/system")]).collect(),
        run: PathBuf::from("/run/systemd"),
    };
    let (services, mounts) =
        tokio::join!(blocking(UNITS, move || services(&systemd())), blocking(MOUNTS_UNIT, move || mounts(&systemd())));
    vec![services, mounts]
}

/// The directories of systemd.
struct Systemd {
    units: Vec<PathBuf>,
    run: PathBuf,
}

impl Systemd {
    fn is_installed(&self, unit: &str) -> bool {
        self.units.iter().any(|directory| directory.join(unit).exists())
    }

    fn is_enabled(&self, unit: &str) -> bool {
        is_enabled(unit, &self.units.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    }

    /// Returns true while systemd records an invocation of the unit, which it does as long as the unit is active.
    fn is_active(&self, unit: &str) -> bool {
        self.run.join("units").join(format!("invocation:{unit}")).symlink_metadata().is_ok()
    }

    /// Returns why no unit of these can be checked, or `None`.
    fn objection(&self, units: &[&str]) -> Option<String> {
        if !self.run.join("system").is_dir() {
            return Some("systemd does not run on this node".to_owned());
        }
        let none = !units.iter().any(|unit| self.is_installed(unit));
        none.then(|| format!("{} is not installed: the package has it", units.join(" or ")))
    }
}

fn services(systemd: &Systemd) -> Finding {
    if let Some(why) = systemd.objection(&SERVICES) {
        return Finding::skipped(UNITS, why);
    }
    let starts = |unit: &str, holds: &dyn Fn(&str) -> bool| holds(unit) || unit == SERVICES[1] && holds(SOCKET);
    let enabled = SERVICES.into_iter().filter(|unit| starts(unit, &|unit| systemd.is_enabled(unit)));
    let active = SERVICES.into_iter().filter(|unit| starts(unit, &|unit| systemd.is_active(unit)));
    let (enabled, active): (Vec<&str>, Vec<&str>) = (enabled.collect(), active.collect());
    if let Some(unit) = enabled.iter().find(|unit| !active.contains(unit)) {
        let remedy = format!("systemctl restart {unit}; its log: journalctl -u {unit}");
        return Finding::error(UNITS, format!("{unit} is enabled and not active"), remedy);
    }
    if let Some(unit) = active.iter().find(|unit| !enabled.contains(unit)) {
        let message = format!("{unit} is active, and will not start with the machine");
        return Finding::warning(UNITS, message, format!("systemctl enable {unit}"));
    }
    if enabled.is_empty() {
        let remedy =
            "to run pods: systemctl enable --now imagelet; behind a kubelet: systemctl enable --now imagelet-serve";
        return Finding::warning(UNITS, "no unit of imagelet is enabled", remedy);
    }
    Finding::ok(UNITS, format!("{}: enabled and active", enabled.join(", ")))
}

fn mounts(systemd: &Systemd) -> Finding {
    if let Some(why) = systemd.objection(&[BOOT_UNIT]) {
        return Finding::skipped(MOUNTS_UNIT, why);
    }
    if systemd.is_enabled(BOOT_UNIT) {
        return Finding::ok(MOUNTS_UNIT, format!("{BOOT_UNIT} is enabled: layers can be EROFS files"));
    }
    let message = format!("{BOOT_UNIT} is not enabled: layers in the runtime's store are directories");
    Finding::warning(MOUNTS_UNIT, message, format!("for faster pulls: systemctl enable --now {BOOT_UNIT}"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn units_are_judged_by_the_directories_of_systemd() {
        let root = tempfile::tempdir().expect("a directory");
        let (units, run) = (root.path().join("units"), root.path().join("run"));
        let systemd = Systemd { units: vec![root.path().join("missing"), units.clone()], run: run.clone() };
        let touch = |path: PathBuf| {
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("create");
            std::fs::write(path, "").expect("write");
        };
        let is = |finding: &Finding, result: Verdict, words: &str| {
            assert!(finding.result == result && finding.details().contains(words), "{finding:?}");
        };
        is(&services(&systemd), Verdict::Skipped, "systemd does not run");
        std::fs::create_dir_all(run.join("system")).expect("create");
        is(&services(&systemd), Verdict::Skipped, "is not installed");
        is(&mounts(&systemd), Verdict::Skipped, "imagelet-mounts.service is not installed");
        touch(units.join("imagelet.service"));
        is(&services(&systemd), Verdict::Warning, "systemctl enable --now imagelet;");
        touch(run.join("units/invocation:imagelet.service"));
        is(&services(&systemd), Verdict::Warning, "will not start with the machine");
        touch(units.join("multi-user.target.wants/imagelet.service"));
        is(&services(&systemd), Verdict::Ok, "imagelet.service: enabled and active");
        touch(units.join("multi-user.target.wants/imagelet-serve.service"));
        is(&services(&systemd), Verdict::Error, "imagelet-serve.service is enabled and not active; systemctl restart");
        std::fs::remove_file(units.join("multi-user.target.wants/imagelet-serve.service")).expect("remove");
        touch(units.join("sockets.target.wants/imagelet-serve.socket"));
        touch(run.join("units/invocation:imagelet-serve.socket"));
        is(&services(&systemd), Verdict::Ok, "imagelet.service, imagelet-serve.service: enabled and active");
        touch(units.join("imagelet-mounts.service"));
        is(&mounts(&systemd), Verdict::Warning, "systemctl enable --now imagelet-mounts.service");
        touch(units.join("containerd.service.wants/imagelet-mounts.service"));
        is(&mounts(&systemd), Verdict::Ok, "is enabled");
    }
}
