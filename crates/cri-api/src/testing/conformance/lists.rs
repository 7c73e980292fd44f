//! Cases: ListImages.

use std::collections::BTreeSet;

use super::bench::{Bench, Outcome, Stop, check, check_eq};
use super::harness::Deviation;
use crate::testing::fixtures;
use crate::{ImageFilter, ImageSpec};

/// critest "listed and status immediately after pull".
pub(super) async fn image_is_listed_right_after_its_pull(bench: &Bench<'_>) -> Outcome {
    let id = bench.pull(&bench.name(&fixtures::TAGGED)).await?;
    check!(bench.listed(&id).await?.is_some(), "the list lacks {id}");
    bench.present(&id).await?;
    Ok(())
}

/// critest "listImage should get exactly 3 image in the result list".
// upstream: kuberuntime/TestListImages
pub(super) async fn three_images_are_listed_with_one_tag_each(bench: &Bench<'_>) -> Outcome {
    let before: BTreeSet<String> = bench.list(None).await?.into_iter().map(|image| image.id).collect();
    for fixture in fixtures::LISTED {
        bench.pulled(fixture).await?;
    }
    let mut added = bench.list(None).await?;
    added.retain(|image| !before.contains(&image.id));
    check_eq!(added.len(), 3, "number of images that are listed more than before");
    for fixture in fixtures::LISTED {
        let id = bench.identity(fixture)?.id.to_string();
        let tags = added.iter().find(|image| image.id == id).map(|image| image.repo_tags.clone());
        check_eq!(tags, Some(vec![bench.name(fixture)]), "repo tags of {id} in the list");
    }
    Ok(())
}

/// critest "listImage should get exactly 3 repoTags in the result image".
pub(super) async fn three_tags_of_one_image_are_listed_once(bench: &Bench<'_>) -> Outcome {
    let mut names: Vec<String> = bench.names(&fixtures::MANY_NAMES).into_iter().take(3).collect();
    let mut ids = BTreeSet::new();
    for name in &names {
        ids.insert(bench.pull(name).await?);
    }
    check_eq!(ids.len(), 1, "number of different image refs");
    names.sort();
    for id in ids {
        let tags = bench.listed(&id).await?.map(|image| image.repo_tags);
        check_eq!(tags, Some(names.clone()), "repo tags in the list");
    }
    Ok(())
}

/// The same config from several repositories is one image with the names and digests of all.
pub(super) async fn names_of_two_repositories_are_one_image(bench: &Bench<'_>) -> Outcome {
    let mut names = bench.names(&fixtures::MANY_NAMES);
    if let Some(domain) = bench.harness().other_domain() {
        names.extend(fixtures::MANY_NAMES.names.iter().map(|(repository, tag)| format!("{domain}/{repository}:{tag}")));
    }
    for name in &names {
        bench.pull(name).await?;
    }
    names.sort();
    let digest = bench.identity(&fixtures::MANY_NAMES)?.digest;
    let repository = |name: &String| name.rsplit_once(':').map(|(repository, _)| format!("{repository}@{digest}"));
    let digests: BTreeSet<String> = names.iter().filter_map(repository).collect();
    let image = bench.present(&names[0]).await?;
    check_eq!(image.repo_tags, names, "repo tags");
    check_eq!(image.repo_digests, digests.into_iter().collect::<Vec<_>>(), "repo digests");
    check_eq!(bench.listed(&image.id).await?, Some(image), "entry of the list");
    Ok(())
}

/// A filter is a lookup: it lists the one image that it resolves to, or none; of a repository alone, all of its images.
pub(super) async fn filter_lists_the_image_it_resolves_to(bench: &Bench<'_>) -> Outcome {
    let image = bench.pulled(fixtures::LISTED[0]).await?;
    bench.pulled(fixtures::LISTED[1]).await?;
    let all = bench.list(None).await?;
    let absent = format!("{}:no-such-tag", bench.repository(fixtures::TAGGED.names[0].0));
    let cases = [
        (bench.name(fixtures::LISTED[0]), vec![image.clone()]),
        (image.id.clone(), vec![image.clone()]),
        (image.id.trim_start_matches("sha256:")[..12].to_owned(), vec![image.clone()]),
        (image.repo_digests[0].clone(), vec![image]),
        (absent, vec![]),
    ];
    let repository = bench.repository(fixtures::LISTED[0].names[0].0);
    let is_of = |name: &String| name.strip_prefix(&repository).is_some_and(|rest| rest.starts_with([':', '@']));
    let mut of_repository = all.clone();
    of_repository.retain(|image| image.repo_tags.iter().chain(&image.repo_digests).any(is_of));
    of_repository.sort_by(|a, b| a.id.cmp(&b.id));
    let cases = cases.into_iter().chain([(repository, of_repository)]);
    for (name, want) in cases {
        let mut listed = bench.list(Some(&ImageFilter { image: Some(ImageSpec::new(&name)) })).await?;
        if bench.deviates(Deviation::ListFilterIgnored) {
            check_eq!(listed.len(), all.len(), "number of images with the ignored filter {name}");
            continue;
        }
        listed.sort_by(|a, b| a.id.cmp(&b.id));
        check_eq!(listed, want, "list with filter {name}");
    }
    Ok(())
}

/// No filter, a filter without an image and a filter with an empty name all mean everything.
pub(super) async fn empty_filter_lists_everything(bench: &Bench<'_>) -> Outcome {
    for fixture in fixtures::LISTED {
        bench.pulled(fixture).await?;
    }
    let ids = |images: Vec<crate::Image>| images.into_iter().map(|image| image.id).collect::<BTreeSet<_>>();
    let all = ids(bench.list(None).await?);
    check!(all.len() >= 3, "three images were pulled, {} are listed", all.len());
    for filter in [ImageFilter { image: None }, ImageFilter { image: Some(ImageSpec::default()) }] {
        check_eq!(ids(bench.list(Some(&filter)).await?), all, "list with {filter:?}");
    }
    Ok(())
}

/// An image in the list equals the one in its status.
// upstream: kuberuntime/TestImageSize
pub(super) async fn list_and_status_agree(bench: &Bench<'_>) -> Outcome {
    for fixture in [&fixtures::TAGGED, &fixtures::USER_UID, &fixtures::INDEXED] {
        let image = bench.pulled(fixture).await?;
        let listed = bench.listed(&image.id).await?;
        let listed = listed.ok_or_else(|| Stop::Failed(format!("the list lacks {}", image.id)))?;
        check_eq!(listed, image, "entry of the list");
    }
    Ok(())
}
