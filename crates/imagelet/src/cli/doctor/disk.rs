//! Checks of file systems: free bytes and inodes against the thresholds of `evictionHard` and of collection. Measures, and frees nothing.

use std::path::{Path, PathBuf};

use image_manager::gc::{DiskSpace, Signal, Thresholds, measure};

use super::finding::{Finding, blocking};
use crate::app::App;
use crate::config::eviction;
use crate::output::units;

const STORE_DISK: &str = "store-disk";
/// Remedy for a disk that is full.
const FREE: &str =
    "free space: `imagelet gc --dry-run` shows which images would be removed, `imagelet df` what they take";

/// Checks the file system of imagelet's root, with the thresholds of images or of the node.
pub(super) async fn of_store(app: &App, has_images: bool) -> Finding {
    of_path(STORE_DISK, app, app.config.root.clone(), has_images).await
}

/// Checks the file system of a directory, or of its nearest existing parent.
pub(super) async fn of_path(check: &'static str, app: &App, path: PathBuf, has_images: bool) -> Finding {
    let limits = Limits {
        thresholds: eviction::thresholds(&app.config.eviction),
        high_percent: u64::try_from(app.config.gc.high).unwrap_or(100),
        has_images,
    };
    blocking(check, move || {
        let existing = path.ancestors().find(|directory| directory.exists()).unwrap_or(Path::new("/")).to_owned();
        match measure(&existing) {
            Ok(space) => judge(check, &existing, space.clamped(), &limits),
            Err(error) => Finding::skipped(check, format!("measure {}: {error}", existing.display())),
        }
    })
    .await
}

/// The limits of a file system.
struct Limits {
    thresholds: Thresholds,
    /// Percentage of use at which collection starts.
    high_percent: u64,
    /// True for the file system of images.
    has_images: bool,
}

fn judge(check: &'static str, path: &Path, space: DiskSpace, limits: &Limits) -> Finding {
    let inodes = match space.inodes {
        // The file system makes inodes as it needs them.
        0 => String::new(),
        all => format!(", {} of {all} inodes free", space.inodes_free),
    };
    let (free, all) = (units::bytes(space.available), units::bytes(space.capacity));
    let message = format!("{}: {free} of {all} free{inodes}", path.display());
    if space.capacity == 0 {
        return Finding::error(
            check,
            format!("{}: the file system has no size", path.display()),
            "put the store on another one",
        );
    }
    let concerns = |signal: Signal| match signal {
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => limits.has_images,
        Signal::NodeFsAvailable | Signal::NodeFsInodesFree => !limits.has_images,
    };
    for (signal, amount) in limits.thresholds.iter().filter(|(signal, _)| concerns(*signal)) {
        let (all, free) = match signal {
            Signal::ImageFsAvailable | Signal::NodeFsAvailable => (space.capacity, space.available),
            Signal::ImageFsInodesFree | Signal::NodeFsInodesFree => (space.inodes, space.inodes_free),
        };
        if all > 0 && free < amount.of(all) {
            return Finding::error(check, format!("{message}: below evictionHard {signal}<{amount}"), FREE);
        }
    }
    if space.available == 0 || (space.inodes > 0 && space.inodes_free == 0) {
        return Finding::error(check, message, FREE);
    }
    if limits.has_images && space.used_percent() >= limits.high_percent {
        let percent = limits.high_percent;
        return Finding::warning(check, format!("{message}: images are collected above {percent}% used"), FREE);
    }
    Finding::ok(check, message)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn bytes_and_inodes_count_by_the_thresholds_of_the_disk() {
        let limits = |has_images| Limits { thresholds: Thresholds::default(), high_percent: 85, has_images };
        let none = Limits { thresholds: Thresholds::none(), high_percent: 100, has_images: true };
        let space = |available, inodes, inodes_free| DiskSpace {
            capacity: 100_000_000_000,
            available,
            inodes,
            inodes_free,
            device: 1,
        };
        let judged = |space, limits: &Limits| judge("disk", Path::new("/data"), space, limits);
        let good = judged(space(40_000_000_000, 1000, 500), &limits(true));
        assert_eq!(
            (good.result, good.message.as_str()),
            (Verdict::Ok, "/data: 40GB of 100GB free, 500 of 1000 inodes free")
        );
        assert_eq!(judged(space(40_000_000_000, 0, 0), &limits(true)).message, "/data: 40GB of 100GB free");
        for (available, inodes_free, has_images, result, words) in [
            (14_000_000_000, 500, true, Verdict::Error, "imagefs.available<15%"),
            (14_000_000_000, 500, false, Verdict::Ok, ""),
            (9_000_000_000, 500, false, Verdict::Error, "nodefs.available<10%"),
            (40_000_000_000, 49, true, Verdict::Error, "imagefs.inodesFree<5%"),
            (40_000_000_000, 49, false, Verdict::Error, "nodefs.inodesFree<5%"),
            (15_000_000_000, 500, true, Verdict::Warning, "above 85% used"),
        ] {
            let finding = judged(space(available, 1000, inodes_free), &limits(has_images));
            assert!(finding.result == result && finding.details().contains(words), "{words}: {finding:?}");
        }
        assert_eq!(judged(space(2_000_000_000, 1000, 500), &none).result, Verdict::Ok);
        assert_eq!(judged(space(1, 1000, 0), &none).result, Verdict::Error);
        assert_eq!(judged(DiskSpace::default(), &none).result, Verdict::Error);
    }
}
