//! The form of layers in containerd's default snapshotter, and of those that podman and CRI-O read: the setting `runtimeLayers`, and what this machine allows. Called by
//! [`super::runtime`] and [`super::opening`].

use std::path::Path;
use std::sync::{Arc, OnceLock};

use base::layer_mount::{LayerRoots, is_shared};
use containerd::{LayerSettings, RuntimeLayers};
use store::LayerFormat;

use crate::config::Config;

/// The unit that mounts layers before the runtime starts.
pub(crate) const BOOT_UNIT: &str = "imagelet-mounts.service";
/// Directories where systemd finds the units that a target or another unit wants: `<name>.wants/<unit>`.
const UNIT_DIRECTORIES: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];

/// Returns how layers become snapshots of a containerd, by the configuration.
pub(super) fn layer_settings(config: &Config) -> LayerSettings {
    let form = match config.runtime_layers {
        LayerFormat::Auto => RuntimeLayers::Auto(Arc::new(why_no_files)),
        LayerFormat::Dir => RuntimeLayers::Dir,
        LayerFormat::Erofs | LayerFormat::NestedErofs => RuntimeLayers::Erofs,
    };
    LayerSettings { form, roots: LayerRoots::of(&config.root) }
}

/// Returns where the layers of the view for podman and CRI-O are recorded, if they can be EROFS files by the configuration and this machine.
/// The store tries what the kernel can do.
pub(super) fn view_layers(config: &Config) -> Option<LayerRoots> {
    let is_wanted = match config.runtime_layers {
        LayerFormat::Auto => is_enabled(BOOT_UNIT) && is_seen_by_others(&config.root),
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
    /// The kernel stays the same as long as this process.
    static KERNEL: OnceLock<Option<String>> = OnceLock::new();
    if !is_enabled(BOOT_UNIT) {
        return Some(format!("{BOOT_UNIT}, which mounts them at a start of the machine, is not enabled"));
    }
    KERNEL.get_or_init(|| store::mount::why_no_lasting_mounts(&root.join(containerd::STAGING_ROOT))).clone()
}

/// Returns true if systemd starts the unit with another one.
fn is_enabled(unit: &str) -> bool {
    let directories = UNIT_DIRECTORIES.iter().filter_map(|directory| std::fs::read_dir(directory).ok());
    let wants = directories.flatten().filter_map(Result::ok).map(|entry| entry.path());
    let mut wants = wants.filter(|path| path.extension().is_some_and(|kind| kind == "wants" || kind == "requires"));
    wants.any(|directory| directory.join(unit).exists())
}
