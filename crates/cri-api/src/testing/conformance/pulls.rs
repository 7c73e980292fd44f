//! Cases: the record and the result of a pull, its failures, and its leftovers when the caller disconnects.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::lock::Mutex;
use tokio::task::JoinSet;

use super::bench::{Bench, Checked, Outcome, Stop, check, check_eq, fails_with, needs};
use super::harness::Deviation;
use crate::testing::fixtures;
use crate::{BeforeVisible, Error, ImageSpec, Kind, PodSandboxConfig, ProgressSink, PullEvent, PullImageRequest};

/// critest "public image with tag should be pulled and removed".
pub(super) async fn pull_by_tag_records_tag_and_digest(bench: &Bench<'_>) -> Outcome {
    let name = bench.name(&fixtures::TAGGED);
    bench.absent(&name).await?;
    let image = bench.pulled(&fixtures::TAGGED).await?;
    check_eq!(image.repo_tags, std::slice::from_ref(&name), "repo tags");
    check_eq!(image.repo_digests, [bench.by_digest(&fixtures::TAGGED)?], "repo digests");
    check!(image.size > 0, "the size is 0");
    bench.remove(&image.id).await?;
    bench.absent(&name).await
}

/// critest "public image without tag should be pulled and removed".
pub(super) async fn pull_without_tag_means_latest(bench: &Bench<'_>) -> Outcome {
    let repository = bench.repository(fixtures::LATEST.names[0].0);
    bench.pull(&repository).await?;
    let image = bench.present(&repository).await?;
    check_eq!(image.repo_tags, [format!("{repository}:latest")], "repo tags");
    bench.remove(&image.id).await?;
    bench.absent(&repository).await
}

/// critest "public image with digest should be pulled and removed".
pub(super) async fn pull_by_digest_records_only_the_digest(bench: &Bench<'_>) -> Outcome {
    let name = bench.by_digest(&fixtures::TAGGED)?;
    bench.pull(&name).await?;
    let image = bench.present(&name).await?;
    check_eq!(image.repo_tags, Vec::<String>::new(), "repo tags");
    check_eq!(image.repo_digests, std::slice::from_ref(&name), "repo digests");
    bench.absent(&bench.name(&fixtures::TAGGED)).await?;
    bench.remove(&image.id).await?;
    bench.absent(&name).await
}

/// The digest alone decides; docker's normal form has no tag then.
pub(super) async fn pull_by_tag_and_digest_drops_the_tag(bench: &Bench<'_>) -> Outcome {
    let digest = bench.identity(&fixtures::TAGGED)?.digest;
    let name = format!("{}@{digest}", bench.name(&fixtures::TAGGED));
    bench.pull(&name).await?;
    let image = bench.present(&name).await?;
    check_eq!(image.repo_tags, Vec::<String>::new(), "repo tags");
    check_eq!(image.repo_digests, [bench.by_digest(&fixtures::TAGGED)?], "repo digests");
    Ok(())
}

/// The digest of a name is that of the document which its tag resolves to.
pub(super) async fn pull_of_an_index_records_the_index_digest(bench: &Bench<'_>) -> Outcome {
    let identity = bench.identity(&fixtures::INDEXED)?;
    let image = bench.pulled(&fixtures::INDEXED).await?;
    check_eq!(image.id, identity.id.to_string(), "image id");
    check_eq!(image.repo_digests, [bench.by_digest(&fixtures::INDEXED)?], "repo digests");
    Ok(())
}

/// CRI: the image ref of a pull must equal `Image.id`; here it is the digest of the config.
pub(super) async fn pull_answers_the_image_id(bench: &Bench<'_>) -> Outcome {
    for fixture in [&fixtures::TAGGED, &fixtures::INDEXED, fixtures::LISTED[0]] {
        let name = bench.name(fixture);
        let identity = bench.identity(fixture)?;
        let image_ref = bench.pull(&name).await?;
        check_eq!(image_ref, identity.id.to_string(), "image ref of {name}");
        check_eq!(bench.present(&name).await?.id, image_ref, "id in the status of {name}");
        check!(bench.listed(&image_ref).await?.is_some(), "the list lacks {image_ref}");
    }
    Ok(())
}

/// A pull of what is present answers the same and leaves one image with the same names.
pub(super) async fn pull_again_changes_nothing(bench: &Bench<'_>) -> Outcome {
    let before = bench.pulled(&fixtures::TAGGED).await?;
    let again = bench.pulled(&fixtures::TAGGED).await?;
    check_eq!(again, before, "status after the second pull");
    check!(bench.listed(&before.id).await?.is_some(), "the image is not listed");
    Ok(())
}

/// `name` is `docker.io/library/name:latest`, and that is what is recorded.
pub(super) async fn pull_in_short_spelling_is_recorded_in_normal_form(bench: &Bench<'_>) -> Outcome {
    needs(bench.harness().serves_default_domain().then_some(()), "registry behind the default domain")?;
    let (repository, tag) = fixtures::OFFICIAL.names[0];
    let short = repository.trim_start_matches("library/");
    bench.pull(short).await?;
    let image = bench.present(short).await?;
    check_eq!(image.repo_tags, [format!("docker.io/{repository}:{tag}")], "repo tags");
    let digest = bench.identity(&fixtures::OFFICIAL)?.digest;
    check_eq!(image.repo_digests, [format!("docker.io/{repository}@{digest}")], "repo digests");
    Ok(())
}

/// The registry has the repository, but not the tag.
pub(super) async fn pull_of_a_missing_tag_is_not_found(bench: &Bench<'_>) -> Outcome {
    let name = format!("{}:no-such-tag", bench.repository(fixtures::TAGGED.names[0].0));
    fails_with(&format!("pull {name}"), bench.try_pull(PullImageRequest::new(&name)).await, &[Kind::NotFound])?;
    bench.absent(&name).await
}

/// The registry does not know the repository.
pub(super) async fn pull_of_a_missing_repository_is_not_found(bench: &Bench<'_>) -> Outcome {
    let name = format!("{}:latest", bench.repository("conformance/no-such-repository"));
    fails_with(&format!("pull {name}"), bench.try_pull(PullImageRequest::new(&name)).await, &[Kind::NotFound])?;
    bench.absent(&name).await
}

/// A text that is no reference is refused before any registry is asked.
pub(super) async fn pull_of_a_bad_reference_is_an_invalid_argument(bench: &Bench<'_>) -> Outcome {
    let domain = bench.harness().domain();
    let kinds: &[Kind] =
        if bench.deviates(Deviation::BadReferenceIsUnknown) { &[Kind::Unknown] } else { &[Kind::InvalidArgument] };
    let long = format!("{domain}/{}", "a".repeat(256));
    let bad = [
        "",
        "UPPER",
        "http://localhost/image",
        &"a".repeat(64),
        &long,
        &format!("{domain}/conformance/tagged:"),
        &format!("{domain}/conformance/tagged@sha256:abc"),
        &format!("{domain}/../etc"),
    ];
    for name in bad {
        fails_with(&format!("pull {name:?}"), bench.try_pull(PullImageRequest::new(name)).await, kinds)?;
    }
    Ok(())
}

/// CRI: a request for a runtime handler that is not known should be refused; the empty one is the default.
pub(super) async fn pull_for_an_unknown_runtime_handler_is_refused(bench: &Bench<'_>) -> Outcome {
    let known = needs(bench.harness().runtime_handlers(), "configured runtime handlers")?;
    let request = |handler: &str| {
        let mut request = PullImageRequest::new(bench.name(&fixtures::TAGGED));
        handler.clone_into(&mut request.image.runtime_handler);
        request
    };
    let unknown = bench.try_pull(request("no-such-handler")).await;
    fails_with("pull for handler no-such-handler", unknown, &[Kind::InvalidArgument, Kind::NotFound])?;
    bench.absent(&bench.name(&fixtures::TAGGED)).await?;
    for handler in known.iter().map(String::as_str).chain([""]) {
        let result = bench.try_pull(request(handler)).await;
        check!(result.is_ok(), "pull for handler {handler:?}: {result:?}");
    }
    Ok(())
}

/// Fields that the kubelet sends in addition to the name do no harm.
pub(super) async fn pull_works_with_annotations_and_sandbox(bench: &Bench<'_>) -> Outcome {
    let name = bench.name(&fixtures::TAGGED);
    let mut sandbox = PodSandboxConfig { hostname: "conformance".into(), ..PodSandboxConfig::default() };
    sandbox.metadata.name = "pod".into();
    sandbox.metadata.namespace = "conformance".into();
    sandbox.metadata.uid = "0000-1111".into();
    sandbox.labels.insert("app".into(), "conformance".into());
    let mut image = ImageSpec::new(&name);
    image.user_specified_image.clone_from(&name);
    image.annotations.insert("imagelet.dev/conformance".into(), "yes".into());
    let request = PullImageRequest { image, sandbox: Some(sandbox), ..PullImageRequest::default() };
    let id = bench.try_pull(request).await.map_err(|e| Stop::Failed(format!("pull: {e}")))?;
    check_eq!(bench.present(&name).await?.id, id, "image id");
    Ok(())
}

/// imagelet: the step that a request wants before its image is visible ends before any client sees the image.
pub(super) async fn image_is_absent_while_the_step_before_it_runs(bench: &Bench<'_>) -> Outcome {
    let (name, id) = (bench.name(&fixtures::TAGGED), bench.identity(&fixtures::TAGGED)?.id.to_string());
    let other = bench.name(fixtures::LISTED[0]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let step = {
        let (service, seen, name) = (bench.service(), Arc::clone(&seen), name.clone());
        move || {
            let (service, seen, name) = (Arc::clone(&service), Arc::clone(&seen), name.clone());
            let (id, other) = (id.clone(), other.clone());
            async move {
                // As long as another pull takes, so that this one could be at its end.
                service.pull_image(PullImageRequest::new(other)).await?;
                let shown = service.image_status(&ImageSpec::new(name), false).await?.image.is_some();
                let listed = service.list_images(None).await?.iter().any(|image| image.id == id);
                seen.lock().push(shown || listed);
                Ok(())
            }
        }
    };
    let request = PullImageRequest { before_visible: BeforeVisible::new(step), ..PullImageRequest::new(&name) };
    bench.try_pull(request).await.map_err(|e| Stop::Failed(format!("pull {name}: {e}")))?;
    let seen = seen.lock().clone();
    check!(!seen.is_empty(), "the step was not done");
    check!(!seen.contains(&true), "the image was there while the step ran");
    bench.present(&name).await.map(drop)
}

/// imagelet: a pull whose step fails, fails with its error, and its image does not appear.
pub(super) async fn image_stays_absent_if_the_step_before_it_fails(bench: &Bench<'_>) -> Outcome {
    let (name, id) = (bench.name(&fixtures::TAGGED), bench.identity(&fixtures::TAGGED)?.id.to_string());
    let step = || std::future::ready(Err(Error::new(Kind::FailedPrecondition, "the step failed")));
    let request = PullImageRequest { before_visible: BeforeVisible::new(step), ..PullImageRequest::new(&name) };
    let result = bench.try_pull(request).await;
    fails_with(&format!("pull {name} whose step fails"), result, &[Kind::FailedPrecondition])?;
    bench.absent(&name).await?;
    check_eq!(bench.listed(&id).await?, None, "the list after the step failed");
    bench.pulled(&fixtures::TAGGED).await.map(drop)
}

/// imagelet: progress names the digest that the reference stands for, and ends with the commit. What CRI cannot say, a remote
/// runtime does not report.
pub(super) async fn pull_reports_its_progress(bench: &Bench<'_>) -> Outcome {
    let (name, digest) = (bench.name(&fixtures::INDEXED), bench.identity(&fixtures::INDEXED)?.digest);
    let events = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&events);
    let progress = ProgressSink::new(move |event| reported.lock().push(event));
    let request = PullImageRequest { progress, ..PullImageRequest::new(&name) };
    bench.try_pull(request).await.map_err(|e| Stop::Failed(format!("pull {name}: {e}")))?;
    let events = events.lock().clone();
    if !bench.harness().reports_progress() {
        check_eq!(events, [], "events of a service that reports none");
        return Ok(());
    }
    let resolved = events.iter().find_map(|event| match event {
        PullEvent::Resolved { digest, layers } => Some((digest, layers.len())),
        _ => None,
    });
    check_eq!(resolved, Some((&digest, 2)), "digest and number of layers in {events:?}");
    check_eq!(events.last(), Some(&PullEvent::Committing), "the last event");
    Ok(())
}

/// critest "public image should timeout if requested": a caller that disconnects stops its pull, and no partial image
/// is visible.
pub(super) async fn dropped_pull_leaves_nothing(bench: &Bench<'_>) -> Outcome {
    let name = bench.name(&fixtures::TAGGED);
    let mut hold = needs(bench.harness().hold_pulls(), "way to hold a pull back")?;
    let service = bench.service();
    {
        let mut pull = pin!(service.pull_image(PullImageRequest::new(&name)));
        tokio::select! {
            biased;
            result = &mut pull => return Err(Stop::Failed(format!("a pull ended while it was held back: {result:?}"))),
            () = hold.reached() => {}
        }
    }
    bench.absent(&name).await?;
    hold.given_up().await;
    hold.release();
    // A pull that continued in secret would become visible now. Poll for a while: it must not.
    let id = bench.identity(&fixtures::TAGGED)?.id.to_string();
    for _ in 0..20 {
        check_eq!(bench.listed(&id).await?, None, "the list after the pull was dropped");
        bench.absent(&name).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.pulled(&fixtures::TAGGED).await?;
    Ok(())
}

/// Of two callers of the same pull one disconnects; the other gets its image.
pub(super) async fn dropped_pull_leaves_its_twin_alone(bench: &Bench<'_>) -> Outcome {
    let name = bench.name(&fixtures::TAGGED);
    let mut hold = needs(bench.harness().hold_pulls(), "way to hold a pull back")?;
    let (first, second) = (bench.service(), bench.service());
    let mut twin = pin!(second.pull_image(PullImageRequest::new(&name)));
    {
        let mut pull = pin!(first.pull_image(PullImageRequest::new(&name)));
        tokio::select! {
            biased;
            result = &mut pull => return Err(Stop::Failed(format!("a pull ended while it was held back: {result:?}"))),
            result = &mut twin => return Err(Stop::Failed(format!("a pull ended while it was held back: {result:?}"))),
            () = hold.reached() => {}
        }
    }
    hold.release();
    let id = twin.await.map_err(|e| Stop::Failed(format!("the pull whose twin was dropped: {e}")))?;
    bench.remember(&id);
    check_eq!(bench.present(&name).await?.id, id, "image id");
    Ok(())
}

/// A pull that is given up right after it began, as by a deadline of no length.
pub(super) async fn pull_dropped_at_once_does_no_harm(bench: &Bench<'_>) -> Outcome {
    let service = bench.service();
    for _ in 0..5 {
        let mut pull = pin!(service.pull_image(PullImageRequest::new(bench.name(&fixtures::TAGGED))));
        if let Poll::Ready(result) = pull.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            check!(result.is_ok(), "pull: {result:?}");
        }
    }
    bench.pulled(&fixtures::TAGGED).await?;
    Ok(())
}

/// Any number of callers pull one name at the same time; all get the same answer.
pub(super) async fn pulls_of_one_name_at_once_agree(bench: &Bench<'_>) -> Outcome {
    let ids = pull_at_once(bench, &vec![bench.name(&fixtures::INDEXED); 8]).await?;
    check_eq!(ids, BTreeSet::from([bench.identity(&fixtures::INDEXED)?.id.to_string()]), "image refs");
    let image = bench.present(&bench.name(&fixtures::INDEXED)).await?;
    check_eq!(image.repo_tags, [bench.name(&fixtures::INDEXED)], "repo tags");
    Ok(())
}

/// Several names of one image are pulled at the same time; none gets lost.
pub(super) async fn pulls_of_many_names_at_once_keep_every_name(bench: &Bench<'_>) -> Outcome {
    let mut names = bench.names(&fixtures::MANY_NAMES);
    let ids = pull_at_once(bench, &names).await?;
    check_eq!(ids.len(), 1, "number of different image refs");
    names.sort();
    check_eq!(bench.present(&names[0]).await?.repo_tags, names, "repo tags");
    Ok(())
}

async fn pull_at_once(bench: &Bench<'_>, names: &[String]) -> Checked<BTreeSet<String>> {
    let mut pulls = JoinSet::new();
    for name in names.iter().cloned() {
        let service = bench.service();
        pulls.spawn(async move { service.pull_image(PullImageRequest::new(name)).await });
    }
    let mut ids = BTreeSet::new();
    while let Some(result) = pulls.join_next().await {
        let result = result.map_err(|e| Stop::Failed(format!("a pull panicked: {e}")))?;
        let id = result.map_err(|e| Stop::Failed(format!("a pull among many: {e}")))?;
        bench.remember(&id);
        ids.insert(id);
    }
    Ok(ids)
}
