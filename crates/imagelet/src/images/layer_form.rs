//! The form of layers in containerd's default snapshotter, and of those that podman and CRI-O read: the setting `runtimeLayers`, and what
//! this machine allows. Called by [`super::runtime`] and [`super::opening`].

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::layer_mount::{LayerRoots, is_shared};
use base::lock::Mutex;
use containerd::{LayerForm, LayerSettings};
use store::LayerFormat;

use crate::config::Config;

/// The unit that mounts layers before the runtime starts.
pub(crate) const BOOT_UNIT: &str = "imagelet-mounts.service";
/// Directories where systemd finds units, and those that a target or another unit wants: `<name>.wants/<unit>`.
pub(crate) const UNIT_DIRECTORIES: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];

/// Pause between two attempts to mount a layer on trial.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Returns how layers become snapshots of a containerd, by the configuration.
pub(super) fn layer_settings(config: &Config) -> LayerSettings {
    let form = match config.runtime_layers {
        LayerFormat::Auto => LayerForm::Auto(Arc::new(why_no_files)),
        LayerFormat::Dir => LayerForm::Dir,
        LayerFormat::Erofs | LayerFormat::NestedErofs => LayerForm::Erofs,
    };
    LayerSettings { form, roots: LayerRoots::of(&config.root) }
}

/// Returns where the layers of the view for podman and CRI-O are recorded, if they can be EROFS files by the configuration and this machine.
/// The store tries what the kernel can do.
pub(super) fn view_layers(config: &Config) -> Option<LayerRoots> {
    let is_wanted = match config.runtime_layers {
        LayerFormat::Auto => is_enabled(BOOT_UNIT, &UNIT_DIRECTORIES.map(Path::new)) && is_seen_by_others(&config.root),
        LayerFormat::Dir => false,
        LayerFormat::Erofs | LayerFormat::NestedErofs => true,
    };
    is_wanted.then(|| LayerRoots::of(&config.root))
}

/// Returns true if other processes see mounts that are made below a root, which may not exist yet.
fn is_seen_by_others(root: &Path) -> bool {
    let existing = root.ancestors().find(|directory| directory.exists());
    existing.is_some_and(|directory| is_shared(directory).unwrap_or(false))
}

/// Returns why the layers of a snapshotter with files in `root` should not be EROFS files, or `None` if they can be.
fn why_no_files(root: &Path) -> Option<String> {
    /// A success stays one as long as this process. A failure may be one of the moment.
    static TRIED: Mutex<Option<(Instant, Option<String>)>> = Mutex::new(None);
    if !is_enabled(BOOT_UNIT, &UNIT_DIRECTORIES.map(Path::new)) {
        return Some(format!("{BOOT_UNIT}, which mounts them at a start of the machine, is not enabled"));
    }
    let mut tried = TRIED.lock();
    match &*tried {
        Some((_, None)) => None,
        Some((at, why)) if at.elapsed() < TRY_AGAIN_AFTER => why.clone(),
        _ => {
            let why = store::mount::why_no_lasting_mounts(&root.join(containerd::STAGING_ROOT));
            tried.insert((Instant::now(), why)).1.clone()
        }
    }
}

/// Returns true if a unit in one of these directories starts this unit as well.
pub(crate) fn is_enabled(unit: &str, directories: &[&Path]) -> bool {
    let entries = directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok());
    let mut paths = entries.flatten().filter_map(Result::ok).map(|entry| entry.path());
    paths.any(|path| {
        let starts_others = path.extension().is_some_and(|kind| kind == "wants" || kind == "requires");
        starts_others && path.join(unit).exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_enabled_if_another_unit_starts_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let enabled = || is_enabled(BOOT_UNIT, &[&directory.path().join("missing"), &first, &second]);
        std::fs::create_dir_all(first.join("multi-user.target.wants")).expect("create");
        std::fs::create_dir_all(second.join("containerd.service.d")).expect("create");
        std::fs::write(first.join(BOOT_UNIT), "").expect("write");
        std::fs::write(second.join("containerd.service.d").join(BOOT_UNIT), "").expect("write");
        assert!(!enabled(), "it is installed only");
        for kind in ["wants", "requires"] {
            let directory = second.join(format!("containerd.service.{kind}"));
            std::fs::create_dir(&directory).expect("create");
            std::fs::write(directory.join(BOOT_UNIT), "").expect("write");
            assert!(enabled(), "{kind}");
            std::fs::remove_dir_all(directory).expect("remove");
        }
        assert!(!enabled());
    }
}
