//! Cases: RemoveImage.

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use super::bench::{Bench, Outcome, Stop, check, check_eq, fails_with};
use super::harness::Deviation;
use crate::testing::fixtures;
use crate::{Image, ImageSpec, Kind, PullImageRequest};

const NO_SUCH_ID: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// critest "not listed and no status immediately after removal".
// upstream: kuberuntime/TestRemoveImage
pub(super) async fn removed_image_is_absent_at_once(bench: &Bench<'_>) -> Outcome {
    let image = bench.pulled(&fixtures::TAGGED).await?;
    bench.remove(&image.id).await?;
    check_eq!(bench.listed(&image.id).await?, None, "entry of the list");
    for reference in image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]) {
        bench.absent(reference).await?;
    }
    Ok(())
}

/// critest "removing image by one tag should remove all tags", by the tag itself and not by the id.
pub(super) async fn removal_by_one_tag_removes_every_name(bench: &Bench<'_>) -> Outcome {
    let names: Vec<String> = bench.names(&fixtures::MANY_NAMES).into_iter().take(3).collect();
    for name in &names {
        bench.pull(name).await?;
    }
    let image = bench.present(&names[0]).await?;
    check_eq!(image.repo_tags.len(), 3, "number of repo tags");
    bench.remove(&names[1]).await?;
    for name in names.iter().chain([&image.id]).chain(&image.repo_digests) {
        bench.absent(name).await?;
    }
    check_eq!(bench.listed(&image.id).await?, None, "entry of the list");
    Ok(())
}

/// critest "removing image from one registry should remove all tags from other registries".
pub(super) async fn removal_in_one_repository_removes_the_others(bench: &Bench<'_>) -> Outcome {
    let mut names = bench.names(&fixtures::MANY_NAMES);
    if let Some(domain) = bench.harness().other_domain() {
        names.extend(fixtures::MANY_NAMES.names.iter().map(|(repository, tag)| format!("{domain}/{repository}:{tag}")));
    }
    for name in &names {
        bench.pull(name).await?;
    }
    let image = bench.present(&names[0]).await?;
    check_eq!(image.repo_tags.len(), names.len(), "number of repo tags");
    bench.remove(&names[3]).await?;
    for name in names.iter().chain([&image.id]).chain(&image.repo_digests) {
        bench.absent(name).await?;
    }
    Ok(())
}

/// Whatever finds an image removes it.
pub(super) async fn removal_by_any_reference_works(bench: &Bench<'_>) -> Outcome {
    let identity = bench.identity(&fixtures::TAGGED)?;
    let name = bench.name(&fixtures::TAGGED);
    let references = [
        identity.id.to_string(),
        identity.id.hex().to_owned(),
        identity.id.hex()[..12].to_owned(),
        name.clone(),
        bench.by_digest(&fixtures::TAGGED)?,
        format!("{name}@{}", identity.digest),
    ];
    for reference in references {
        bench.pulled(&fixtures::TAGGED).await?;
        bench.remove(&reference).await?;
        bench.absent(&name).await.map_err(|stop| stop.context(format_args!("after removal of {reference}")))?;
    }
    Ok(())
}

/// critest "RemoveImage should not return an error if not found".
// upstream: kuberuntime/TestRemoveImageNoOpIfImageNotLocal
pub(super) async fn removal_of_an_absent_image_is_no_error(bench: &Bench<'_>) -> Outcome {
    let repository = bench.repository("conformance/never-pulled");
    let absent =
        [NO_SUCH_ID.to_owned(), format!("{repository}:v1"), format!("{repository}@{NO_SUCH_ID}"), "000000000".into()];
    for name in absent {
        bench.remove(&name).await?;
        bench.remove(&name).await?;
    }
    let image = bench.pulled(&fixtures::TAGGED).await?;
    for _ in 0..2 {
        bench.remove(&image.id).await?;
    }
    bench.absent(&image.id).await
}

/// An empty name means no image at all, least of all every image, or the only one.
pub(super) async fn removal_of_an_empty_name_is_an_invalid_argument(bench: &Bench<'_>) -> Outcome {
    let image = bench.pulled(&fixtures::TAGGED).await?;
    let result = bench.service().remove_image(&ImageSpec::default()).await;
    if bench.deviates(Deviation::EmptyNameRemovesTheOnlyImage) {
        check_eq!(result, Ok(()), "removal of an empty name");
        return bench.absent(&image.id).await;
    }
    fails_with("removal of an empty name", result, &[Kind::InvalidArgument])?;
    bench.present(&image.id).await?;
    Ok(())
}

/// critest: five concurrent removals; after each of them the image is not present.
pub(super) async fn five_removals_at_once_all_succeed(bench: &Bench<'_>) -> Outcome {
    for name in bench.names(&fixtures::MANY_NAMES) {
        bench.pull(&name).await?;
    }
    let id = bench.present(&bench.name(&fixtures::MANY_NAMES)).await?.id;
    let mut removals = JoinSet::new();
    for _ in 0..5 {
        let (service, spec) = (bench.service(), ImageSpec::new(&id));
        removals.spawn(async move {
            service.remove_image(&spec).await?;
            service.image_status(&spec, false).await
        });
    }
    while let Some(result) = removals.join_next().await {
        let status = result.map_err(|e| Stop::Failed(format!("a removal panicked: {e}")))?;
        let status = status.map_err(|e| Stop::Failed(format!("removal or status right after it: {e}")))?;
        check_eq!(status.image, None, "status right after a removal");
    }
    check_eq!(bench.listed(&id).await?, None, "entry of the list");
    Ok(())
}

/// All fixtures share a layer; removing one leaves the others whole.
pub(super) async fn removal_leaves_images_with_shared_layers(bench: &Bench<'_>) -> Outcome {
    let [first, second, third] = fixtures::LISTED;
    let removed = bench.pulled(first).await?;
    let (second_before, third_before) = (bench.pulled(second).await?, bench.pulled(third).await?);
    bench.remove(&removed.id).await?;
    check_eq!(bench.present(&second_before.id).await?, second_before, "status of another image");
    check_eq!(bench.present(&third_before.id).await?, third_before, "status of another image");
    Ok(())
}

/// A removal leaves nothing that spoils the next pull.
pub(super) async fn removed_image_can_be_pulled_again(bench: &Bench<'_>) -> Outcome {
    // The image was pulled again, so its time of pull may differ.
    let timeless = |image: Image| Image { pulled_at: None, ..image };
    let before = timeless(bench.pulled(&fixtures::INDEXED).await?);
    for _ in 0..3 {
        bench.remove(&before.id).await?;
        check_eq!(timeless(bench.pulled(&fixtures::INDEXED).await?), before, "status after pull, removal and pull");
    }
    Ok(())
}

/// Workers pull and remove one image concurrently, as critest's benchmark does. No call fails, and in the end the image is
/// whole or absent.
pub(super) async fn pulls_and_removals_at_once_stay_whole(bench: &Bench<'_>) -> Outcome {
    const WORKERS: usize = 4;
    const ROUNDS: usize = 5;
    let names = bench.names(&fixtures::MANY_NAMES);
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (service, name) = (bench.service(), names[worker % names.len()].clone());
        let pulls_may_fail = bench.deviates(Deviation::PullsFailDuringRemoval);
        workers.spawn(async move {
            for _ in 0..ROUNDS {
                match service.pull_image(PullImageRequest::new(&name)).await {
                    Err(error) if pulls_may_fail && error.kind() == Kind::NotFound => {}
                    pulled => drop(pulled?),
                }
                service.image_status(&ImageSpec::new(&name), false).await?;
                service.remove_image(&ImageSpec::new(&name)).await?;
            }
            Ok::<(), crate::Error>(())
        });
    }
    while let Some(result) = workers.join_next().await {
        let result = result.map_err(|e| Stop::Failed(format!("a worker panicked: {e}")))?;
        check!(result.is_ok(), "pulls and removals at once: {result:?}");
    }
    let id = bench.identity(&fixtures::MANY_NAMES)?.id.to_string();
    bench.remove(&id).await?;
    let left: BTreeSet<String> = bench.list(None).await?.into_iter().flat_map(|image| image.repo_tags).collect();
    for name in &names {
        check!(!left.contains(name), "{name} is still listed");
        bench.absent(name).await?;
    }
    let image = bench.pulled(&fixtures::MANY_NAMES).await?;
    check_eq!(image.repo_tags, [names[0].clone()], "repo tags of the image pulled last");
    Ok(())
}
