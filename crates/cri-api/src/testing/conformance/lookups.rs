//! Cases: ImageStatus by every kind of reference, and its content.

use super::bench::{Bench, Outcome, Stop, check, check_eq, failed, fails_with, needs};
use super::harness::Deviation;
use crate::testing::fixtures;
use crate::{ImageSpec, Kind};

const NO_SUCH_ID: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// critest "image status should support all kinds of references".
// upstream: kuberuntime/TestGetImageRef
// upstream: kuberuntime/TestGetImageRefReturnsImageIdNotRepoDigest
pub(super) async fn every_reference_gives_the_same_status(bench: &Bench<'_>) -> Outcome {
    for name in bench.names(&fixtures::MANY_NAMES) {
        bench.pull(&name).await?;
    }
    let image = bench.present(&bench.name(&fixtures::MANY_NAMES)).await?;
    let hex = image.id.trim_start_matches("sha256:").to_owned();
    let mut references = vec![image.id.clone(), hex[..12].to_owned(), format!("sha256:{}", &hex[..12]), hex];
    references.extend(image.repo_tags.iter().cloned());
    references.extend(image.repo_digests.iter().cloned());
    let digest = bench.identity(&fixtures::MANY_NAMES)?.digest;
    references.extend(image.repo_tags.iter().map(|tag| format!("{tag}@{digest}")));
    for reference in references {
        check_eq!(bench.present(&reference).await?, image, "status by {reference}");
    }
    Ok(())
}

/// Absence is an answer, not an error.
// upstream: kuberuntime/TestGetImageRefImageNotAvailableLocally
pub(super) async fn absent_images_have_no_status(bench: &Bench<'_>) -> Outcome {
    bench.pulled(&fixtures::TAGGED).await?;
    let repository = bench.repository(fixtures::TAGGED.names[0].0);
    let absent = [
        NO_SUCH_ID.to_owned(),
        "0000000000000".to_owned(),
        format!("{repository}:no-such-tag"),
        repository.clone(),
        format!("{repository}@{NO_SUCH_ID}"),
        format!("{}@{NO_SUCH_ID}", bench.name(&fixtures::TAGGED)),
        bench.name(&fixtures::LATEST),
        "conformance/never-pulled".to_owned(),
    ];
    for name in absent {
        bench.absent(&name).await?;
    }
    Ok(())
}

/// An empty name means no image at all.
pub(super) async fn status_of_an_empty_name_is_an_invalid_argument(bench: &Bench<'_>) -> Outcome {
    for pull in [false, true] {
        let only = if pull { Some(bench.pulled(&fixtures::TAGGED).await?) } else { None };
        let result = bench.service().image_status(&ImageSpec::default(), false).await;
        if bench.deviates(Deviation::EmptyNameIsIdPrefix) {
            check_eq!(result.map(|status| status.image), Ok(only), "status of an empty name");
        } else {
            fails_with("status of an empty name", result, &[Kind::InvalidArgument])?;
        }
    }
    Ok(())
}

/// The beginning of an id finds the image, with or without `sha256:`, from three digits on.
pub(super) async fn short_ids_resolve_from_three_digits(bench: &Bench<'_>) -> Outcome {
    let image = bench.pulled(&fixtures::TAGGED).await?;
    let hex = image.id.trim_start_matches("sha256:").to_owned();
    let others: Vec<String> = bench.list(None).await?.into_iter().map(|i| i.id).filter(|id| *id != image.id).collect();
    for digits in [3, 4, 12, 63] {
        let short = &hex[..digits];
        if others.iter().any(|id| id.trim_start_matches("sha256:").starts_with(short)) {
            continue;
        }
        for text in [short.to_owned(), format!("sha256:{short}")] {
            check_eq!(bench.present(&text).await?.id, image.id, "image of {text}");
        }
    }
    if bench.deviates(Deviation::ShorterIdsResolve) {
        // With other images there, so few digits may be ambiguous.
        if others.is_empty() {
            check_eq!(bench.present(&hex[..2]).await?.id, image.id, "image of {}", &hex[..2]);
        }
    } else {
        bench.absent(&hex[..2]).await?;
    }
    bench.absent(&format!("{}{}", &hex[..12], "0".repeat(20))).await
}

/// Several images begin like this: none of them is meant, and none is removed.
pub(super) async fn ambiguous_short_id_is_refused(bench: &Bench<'_>) -> Outcome {
    let prefix = fixtures::ALIKE[0].id_prefix;
    for fixture in fixtures::ALIKE {
        let id = bench.identity(fixture)?.id;
        check!(id.hex().starts_with(prefix), "the harness published {id}, which does not begin with {prefix}");
        bench.pulled(fixture).await?;
    }
    let status = bench.service().image_status(&ImageSpec::new(prefix), false).await;
    let removal = bench.service().remove_image(&ImageSpec::new(prefix)).await;
    let kind = if bench.deviates(Deviation::AmbiguousIdIsUnknown) { Kind::Unknown } else { Kind::InvalidArgument };
    fails_with("status of an ambiguous id", status, &[kind])?;
    fails_with("removal of an ambiguous id", removal, &[kind])?;
    for fixture in fixtures::ALIKE {
        bench.present(&bench.name(fixture)).await?;
    }
    Ok(())
}

/// Every spelling that normalises to a recorded name finds the image.
pub(super) async fn short_spelling_finds_the_image(bench: &Bench<'_>) -> Outcome {
    needs(bench.harness().serves_default_domain().then_some(()), "registry behind the default domain")?;
    let (repository, tag) = fixtures::OFFICIAL.names[0];
    let short = repository.trim_start_matches("library/");
    let id = bench.pull(&format!("docker.io/{repository}:{tag}")).await?;
    let spellings = [
        short.to_owned(),
        format!("{short}:{tag}"),
        repository.to_owned(),
        format!("docker.io/{short}"),
        format!("index.docker.io/{repository}:{tag}"),
        format!("docker.io/{repository}"),
        format!("{short}@{}", bench.identity(&fixtures::OFFICIAL)?.digest),
    ];
    for spelling in spellings {
        check_eq!(bench.present(&spelling).await?.id, id, "image of {spelling}");
    }
    Ok(())
}

/// critest "image status get image fields should not have Uid|Username empty".
pub(super) async fn user_is_reported_as_uid_or_name(bench: &Bench<'_>) -> Outcome {
    let cases = [
        (&fixtures::USER_UID, Some(1002), ""),
        (&fixtures::USER_NAME, None, "www-data"),
        (&fixtures::USER_UID_GROUP, Some(1003), ""),
        (&fixtures::USER_NAME_GROUP, None, "www-data"),
        (&fixtures::TAGGED, None, ""),
    ];
    for (fixture, uid, username) in cases {
        let image = bench.pulled(fixture).await?;
        check_eq!((image.uid, image.username.as_str()), (uid, username), "uid and user of USER {:?}", fixture.user);
    }
    Ok(())
}

/// Only a verbose status has information, and the config is in it.
pub(super) async fn verbose_status_tells_the_config(bench: &Bench<'_>) -> Outcome {
    let name = bench.name(&fixtures::USER_NAME_GROUP);
    let plain = bench.pulled(&fixtures::USER_NAME_GROUP).await?;
    let status = |verbose| {
        let (service, spec) = (bench.service(), ImageSpec::new(&name));
        async move { service.image_status(&spec, verbose).await.map_err(|e| failed("status", &e)) }
    };
    check!(status(false).await?.info.is_empty(), "a status that is not verbose has information");
    let verbose = status(true).await?;
    check_eq!(verbose.image, Some(plain), "image of the verbose status");
    let info = needs(verbose.info.get("info"), "information under the key info")
        .map_err(|_| Stop::Failed("the verbose status has no key info".into()))?;
    let info: serde_json::Value =
        serde_json::from_str(info).map_err(|e| Stop::Failed(format!("the verbose information is no JSON: {e}")))?;
    check_eq!(info["imageSpec"]["config"]["User"], fixtures::USER_NAME_GROUP.user, "USER in imageSpec");
    check!(
        info["imageSpec"]["rootfs"]["diff_ids"].as_array().is_some_and(|ids| ids.len() == 2),
        "imageSpec does not tell two layers"
    );
    let chain_id = info["chainID"].as_str();
    if bench.deviates(Deviation::NoChainId) {
        check_eq!(chain_id, None, "chainID");
    } else {
        check!(chain_id.is_some_and(|id| id.starts_with("sha256:")), "chainID is {chain_id:?}");
    }
    Ok(())
}

/// The same question has the same answer, names in the same order.
pub(super) async fn status_is_stable(bench: &Bench<'_>) -> Outcome {
    for name in bench.names(&fixtures::MANY_NAMES) {
        bench.pull(&name).await?;
    }
    let name = bench.name(&fixtures::MANY_NAMES);
    let first = bench.present(&name).await?;
    check!(first.repo_tags.is_sorted(), "repo tags are not sorted: {:?}", first.repo_tags);
    check!(first.repo_digests.is_sorted(), "repo digests are not sorted: {:?}", first.repo_digests);
    for _ in 0..10 {
        check_eq!(bench.present(&name).await?, first, "status");
    }
    Ok(())
}
