//! Cases: sandboxes.

use super::super::bench::{Outcome, check, check_eq};
use super::bench::{RuntimeBench, failed};
use super::{Program, RuntimeDeviation};
use crate::{Kind, PodSandboxFilter, PodSandboxMetadata};

pub(super) async fn a_sandbox_passes_through_its_states(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let service = bench.service();
    let status = service.pod_sandbox_status(&pod.id, false).await.map_err(|e| failed("status", &e))?;
    check!(status.ready, "a new sandbox is not ready");
    check_eq!(status.id, pod.id, "id");
    check_eq!(status.metadata, pod.config.metadata, "metadata");
    check_eq!(status.labels, pod.config.labels, "labels");
    check_eq!(status.annotations, pod.config.annotations, "annotations");
    check!(status.created_at > 0, "no time of creation");
    check!(status.info.is_empty(), "information that was not asked for");
    let listed = bench.sandboxes().await?;
    check_eq!(listed.len(), 1, "number of sandboxes");
    let one = &listed[0];
    check_eq!((&one.id, &one.metadata, one.ready), (&pod.id, &pod.config.metadata, true), "entry of the list");
    check_eq!(one.created_at, status.created_at, "time of creation in the list");
    check_eq!((&one.labels, &one.annotations), (&status.labels, &status.annotations), "labels in the list");
    let verbose = service.pod_sandbox_status(&pod.id, true).await.map_err(|e| failed("verbose status", &e))?;
    check!(!verbose.info.is_empty(), "no information, and it was asked for");

    service.stop_pod_sandbox(&pod.id).await.map_err(|e| failed("stop", &e))?;
    let status = service.pod_sandbox_status(&pod.id, false).await.map_err(|e| failed("status after the stop", &e))?;
    check!(!status.ready, "a stopped sandbox is ready");
    check!(bench.sandboxes().await?.iter().all(|sandbox| !sandbox.ready), "the list says that it is ready");
    service.remove_pod_sandbox(&pod.id).await.map_err(|e| failed("remove", &e))?;
    bench.refused("status after the removal", service.pod_sandbox_status(&pod.id, false).await, &[Kind::NotFound])?;
    check_eq!(bench.sandboxes().await?.len(), 0, "number of sandboxes after the removal");
    Ok(())
}

pub(super) async fn a_sandbox_without_a_name_is_refused(bench: &RuntimeBench<'_>) -> Outcome {
    let mut config = bench.sandbox_config("nameless");
    config.metadata = PodSandboxMetadata::default();
    bench.refused("run", bench.try_run(&config, "").await, &[Kind::InvalidArgument])
}

pub(super) async fn a_sandbox_is_not_made_twice(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let again = bench.try_run(&pod.config, "").await;
    let deviation = RuntimeDeviation::TakenNamesAreUnknown;
    bench.refused_but_for(deviation, "run again", again, &[Kind::FailedPrecondition])
}

pub(super) async fn the_next_attempt_is_another_sandbox(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let mut config = pod.config.clone();
    config.metadata.attempt = 1;
    let next = bench.try_run(&config, "").await.map_err(|e| failed("run the next attempt", &e))?;
    check!(next != pod.id, "both have the id {next}");
    let attempts = bench.sandboxes().await?;
    let newer = attempts.iter().find(|sandbox| sandbox.id == next).map(|sandbox| sandbox.created_at);
    let older = attempts.iter().find(|sandbox| sandbox.id == pod.id).map(|sandbox| sandbox.created_at);
    check!(newer > older && older.is_some(), "times of creation: {older:?}, then {newer:?}");
    Ok(())
}

pub(super) async fn an_unknown_handler_is_refused(bench: &RuntimeBench<'_>) -> Outcome {
    let config = bench.sandbox_config("one");
    bench.refused("run", bench.try_run(&config, "no-such-handler").await, &[Kind::InvalidArgument])
}

pub(super) async fn ending_a_sandbox_is_idempotent(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let service = bench.service();
    for _ in 0..2 {
        service.stop_pod_sandbox(&pod.id).await.map_err(|e| failed("stop", &e))?;
    }
    for _ in 0..2 {
        service.remove_pod_sandbox(&pod.id).await.map_err(|e| failed("remove", &e))?;
    }
    service.stop_pod_sandbox(&pod.id).await.map_err(|e| failed("stop what is gone", &e))?;
    service.stop_pod_sandbox("no-such-sandbox").await.map_err(|e| failed("stop what never was", &e))?;
    service.remove_pod_sandbox("no-such-sandbox").await.map_err(|e| failed("remove what never was", &e))
}

pub(super) async fn a_ready_sandbox_can_be_removed(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    bench.started(&pod, "main", Program::Sleeps).await?;
    bench.service().remove_pod_sandbox(&pod.id).await.map_err(|e| failed("remove", &e))?;
    check_eq!((bench.sandboxes().await?.len(), bench.containers().await?.len()), (0, 0), "what is left");
    Ok(())
}

pub(super) async fn an_absent_sandbox_has_no_status(bench: &RuntimeBench<'_>) -> Outcome {
    let status = bench.service().pod_sandbox_status("no-such-sandbox", false).await;
    bench.refused("status", status, &[Kind::NotFound])
}

pub(super) async fn filters_select_sandboxes(bench: &RuntimeBench<'_>) -> Outcome {
    let (ready, stopped) = (bench.pod("ready").await?, bench.pod("stopped").await?);
    let service = bench.service();
    service.stop_pod_sandbox(&stopped.id).await.map_err(|e| failed("stop", &e))?;
    let case = bench.sandbox_config("any").labels["case"].clone();
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    let of_case = PodSandboxFilter { labels: labels(&[("case", &case)]), ..PodSandboxFilter::default() };
    let both = || vec![ready.id.clone(), stopped.id.clone()];
    let cases = [
        (of_case.clone(), both()),
        (PodSandboxFilter { ready: Some(true), ..of_case.clone() }, vec![ready.id.clone()]),
        (PodSandboxFilter { ready: Some(false), ..of_case.clone() }, vec![stopped.id.clone()]),
        (PodSandboxFilter { id: Some(stopped.id.clone()), ..PodSandboxFilter::default() }, vec![stopped.id.clone()]),
        (PodSandboxFilter { id: Some(stopped.id.clone()), ready: Some(true), ..PodSandboxFilter::default() }, vec![]),
        (
            PodSandboxFilter { labels: labels(&[("case", &case), ("pod", "ready")]), ..PodSandboxFilter::default() },
            vec![ready.id.clone()],
        ),
        (PodSandboxFilter { labels: labels(&[("case", "another")]), ..PodSandboxFilter::default() }, vec![]),
        (PodSandboxFilter { id: Some("no-such-sandbox".into()), ..PodSandboxFilter::default() }, vec![]),
    ];
    for (filter, mut want) in cases {
        let listed = service.list_pod_sandboxes(Some(&filter)).await.map_err(|e| failed("list", &e))?;
        let mut ids: Vec<String> = listed.into_iter().map(|sandbox| sandbox.id).collect();
        ids.sort();
        want.sort();
        check_eq!(ids, want, "list with {filter:?}");
    }
    Ok(())
}
