//! Cases: ImageFsInfo.

use std::time::Duration;

use super::bench::{Bench, Checked, Outcome, Stop, check};
use super::harness::Deviation;
use crate::testing::fixtures;

/// The first call of a kubelet works on whatever the store holds, an empty one included.
pub(super) async fn fs_info_works_always(bench: &Bench<'_>) -> Outcome {
    for pull in [false, true] {
        if pull {
            bench.pulled(&fixtures::TAGGED).await?;
        }
        let filesystem = bench.filesystem().await?;
        check!(filesystem.timestamp > 0, "the timestamp is {}", filesystem.timestamp);
        check!(filesystem.mountpoint.starts_with('/'), "the mount point is {:?}", filesystem.mountpoint);
        check!(filesystem.used_bytes.is_some(), "used bytes are not reported");
        check!(filesystem.inodes_used.is_some(), "used inodes are not reported");
    }
    Ok(())
}

/// Usage grows with a pull, and shrinks with a removal to what it was.
pub(super) async fn fs_usage_grows_and_shrinks(bench: &Bench<'_>) -> Outcome {
    let before = settled(bench).await?;
    let image = bench.pulled(&fixtures::TAGGED).await?;
    eventually(bench, "grow with the first pull", |now| now > before).await?;
    let one = settled(bench).await?;
    let second = bench.pulled(fixtures::LISTED[0]).await?;
    eventually(bench, "grow with the second pull", |now| now > one).await?;
    bench.remove(&second.id).await?;
    eventually(bench, "shrink with a removal", |now| now <= one).await?;
    bench.remove(&image.id).await?;
    eventually(bench, "shrink to what it was", |now| now <= before).await
}

/// The time of the numbers is the time of the question.
pub(super) async fn fs_info_time_does_not_go_back(bench: &Bench<'_>) -> Outcome {
    let mut last = 0;
    for _ in 0..5 {
        let now = bench.filesystem().await?.timestamp;
        check!(now >= last, "the timestamp went back from {last} to {now}");
        last = now;
    }
    Ok(())
}

async fn used(bench: &Bench<'_>) -> Checked<u64> {
    let used = bench.filesystem().await?.used_bytes;
    used.ok_or_else(|| Stop::Failed("used bytes are not reported".into()))
}

/// Returns the bytes in use now. A peer that samples may still count removed data, or may have sampled in the middle of a
/// pull: its number counts once it stays the same for longer than a period.
async fn settled(bench: &Bench<'_>) -> Checked<u64> {
    const LONGER_THAN_A_PERIOD: Duration = Duration::from_secs(12);
    let mut now = used(bench).await?;
    while bench.deviates(Deviation::FsUsageIsLate) {
        tokio::time::sleep(LONGER_THAN_A_PERIOD).await;
        let later = used(bench).await?;
        if later == now {
            break;
        }
        now = later;
    }
    Ok(now)
}

/// Waits until `holds` is true of the usage: at once, or for a peer that samples, within the time of the case.
async fn eventually(bench: &Bench<'_>, what: &str, holds: impl Fn(u64) -> bool) -> Outcome {
    loop {
        let now = used(bench).await?;
        if holds(now) {
            return Ok(());
        }
        check!(bench.deviates(Deviation::FsUsageIsLate), "used bytes do not {what}: {now}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
