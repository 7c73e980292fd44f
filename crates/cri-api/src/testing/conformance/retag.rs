//! Cases: a tag that means another image from one pull to the next.

use super::bench::{Bench, Checked, Outcome, check_eq, needs};
use crate::Image;
use crate::testing::fixtures::{MOVING_NEW, MOVING_OLD, MOVING_TAG};

/// The tag moves to the new image; the old one stays listed, by its digest alone, for garbage collection to find.
pub(super) async fn moved_tag_follows_the_pull(bench: &Bench<'_>) -> Outcome {
    let name = moving_name(bench);
    let (old, new) = pull_moved(bench).await?;
    check_eq!(new.id, bench.identity(&MOVING_NEW)?.id.to_string(), "image id behind the moved tag");
    check_eq!(new.repo_tags, [name], "repo tags of the new image");
    let left = bench.present(&old.id).await?;
    check_eq!(left.repo_tags, Vec::<String>::new(), "repo tags of the old image");
    check_eq!(left.repo_digests, old.repo_digests, "repo digests of the old image");
    check_eq!(bench.listed(&old.id).await?, Some(left.clone()), "entry of the old image in the list");
    check_eq!(bench.present(&old.repo_digests[0]).await?, left, "status by the old digest");
    Ok(())
}

/// The image that lost its tag can be removed by its id, without effect on the new one.
pub(super) async fn tagless_image_stays_and_can_be_removed(bench: &Bench<'_>) -> Outcome {
    let (old, new) = pull_moved(bench).await?;
    bench.remove(&old.id).await?;
    bench.absent(&old.id).await?;
    bench.absent(&old.repo_digests[0]).await?;
    check_eq!(bench.present(&moving_name(bench)).await?, new, "status of the moved tag");
    Ok(())
}

fn moving_name(bench: &Bench<'_>) -> String {
    format!("{}:{}", bench.repository(MOVING_TAG.0), MOVING_TAG.1)
}

/// Pulls the tag before and after it moved; the registry is as before afterwards.
async fn pull_moved(bench: &Bench<'_>) -> Checked<(Image, Image)> {
    let name = moving_name(bench);
    let (repository, tag) = MOVING_TAG;
    let moved = bench.harness().move_tag(repository, tag, &MOVING_OLD).await;
    needs(moved.then_some(()), "way to move a tag")?;
    bench.pull(&name).await?;
    let old = bench.present(&name).await?;
    check_eq!(old.repo_tags, std::slice::from_ref(&name), "repo tags before the move");
    bench.harness().move_tag(repository, tag, &MOVING_NEW).await;
    let pulled = bench.pull(&name).await;
    bench.harness().move_tag(repository, tag, &MOVING_OLD).await;
    pulled?;
    Ok((old, bench.present(&name).await?))
}
