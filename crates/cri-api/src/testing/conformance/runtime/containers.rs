//! Cases: containers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::bench::{Outcome, check, check_eq};
use super::bench::{RuntimeBench, failed};
use super::{Program, RuntimeDeviation, Stop};
use crate::{ContainerFilter, ContainerState, EnvVar, ImageSpec, Kind, LinuxContainerResources};

/// Long enough for a container that ends on request.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn a_container_passes_through_its_states(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.created(&pod, "main", Program::Sleeps).await?;
    let status = bench.status(&id).await?;
    check_eq!(status.state, ContainerState::Created, "state of a new container");
    check!(status.created_at > 0, "no time of creation");
    check_eq!((status.started_at, status.finished_at), (0, 0), "times of start and end");

    let service = bench.service();
    service.start_container(&id).await.map_err(|e| failed("start", &e))?;
    let status = bench.status(&id).await?;
    check_eq!(status.state, ContainerState::Running, "state of a started container");
    check!(status.started_at >= status.created_at, "started at {} before {}", status.started_at, status.created_at);
    check_eq!(status.finished_at, 0, "time of end");
    let listed = bench.containers().await?;
    check_eq!(listed.len(), 1, "number of containers");
    let one = &listed[0];
    check_eq!((&one.id, &one.pod_sandbox_id, one.state), (&id, &pod.id, ContainerState::Running), "entry of the list");
    check_eq!(one.created_at, status.created_at, "time of creation in the list");

    service.stop_container(&id, PATIENCE).await.map_err(|e| failed("stop", &e))?;
    let status = bench.status(&id).await?;
    check_eq!(status.state, ContainerState::Exited, "state of a stopped container");
    check!(status.finished_at >= status.started_at, "ended at {} before {}", status.finished_at, status.started_at);
    service.remove_container(&id).await.map_err(|e| failed("remove", &e))?;
    bench.refused("status after the removal", service.container_status(&id, false).await, &[Kind::NotFound])?;
    check_eq!(bench.containers().await?.len(), 0, "number of containers after the removal");
    check!(bench.sandboxes().await?[0].ready, "the sandbox went with its container");
    Ok(())
}

pub(super) async fn exit_codes_are_reported(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    for (name, code, reason) in [("good", 0, "Completed"), ("bad", 7, "Error"), ("worst", 255, "Error")] {
        let id = bench.started(&pod, name, Program::Ends(code)).await?;
        let status = bench.ended(&id).await?;
        check_eq!((status.exit_code, status.reason.as_str()), (code, reason), "end of {name}");
    }
    check!(bench.sandboxes().await?[0].ready, "a sandbox ended with its containers");
    Ok(())
}

pub(super) async fn a_containers_configuration_is_returned(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let mut config = bench.container_config("main", Program::Sleeps);
    config.metadata.attempt = 3;
    let id = bench.try_create(&pod, &config).await.map_err(|e| failed("create", &e))?;
    let status = bench.status(&id).await?;
    check_eq!((&status.id, &status.metadata), (&id, &config.metadata), "id and metadata");
    check_eq!((&status.labels, &status.annotations), (&config.labels, &config.annotations), "labels and annotations");
    check!(!status.image.image.is_empty() && !status.image_ref.is_empty(), "no image: {status:?}");
    let log = format!("{}/main.log", pod.config.log_directory);
    check_eq!(status.log_path, if pod.config.log_directory.is_empty() { String::new() } else { log }, "log path");
    let listed = bench.containers().await?;
    check_eq!((&listed[0].metadata, &listed[0].labels), (&config.metadata, &config.labels), "entry of the list");
    let verbose = bench.service().container_status(&id, true).await.map_err(|e| failed("verbose status", &e))?;
    check!(status.info.is_empty() && !verbose.info.is_empty(), "information without being asked, or none when asked");
    Ok(())
}

pub(super) async fn a_container_needs_a_sandbox_that_is_ready(bench: &RuntimeBench<'_>) -> Outcome {
    let mut pod = bench.pod("one").await?;
    let config = bench.container_config("main", Program::Sleeps);
    bench.service().stop_pod_sandbox(&pod.id).await.map_err(|e| failed("stop", &e))?;
    // Some refuse to make it, some to start it.
    let result = match bench.try_create(&pod, &config).await {
        Ok(id) => bench.service().start_container(&id).await,
        Err(error) => Err(error),
    };
    let kinds = [Kind::FailedPrecondition, Kind::NotFound];
    let deviation = RuntimeDeviation::StoppedSandboxIsUnknown;
    bench.refused_but_for(deviation, "a container in a stopped sandbox", result, &kinds)?;
    pod.id = "no-such-sandbox".into();
    bench.refused("a container in no sandbox", bench.try_create(&pod, &config).await, &[Kind::NotFound])
}

pub(super) async fn a_container_needs_its_image(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let mut config = bench.container_config("main", Program::Sleeps);
    config.image = ImageSpec::new("conformance.invalid/no-such-image:1");
    bench.refused("a container of an absent image", bench.try_create(&pod, &config).await, &[Kind::NotFound])?;
    check_eq!(bench.containers().await?.len(), 0, "number of containers");
    Ok(())
}

pub(super) async fn a_container_is_not_made_twice(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let mut config = bench.container_config("main", Program::Sleeps);
    let first = bench.try_create(&pod, &config).await.map_err(|e| failed("create", &e))?;
    let again = bench.try_create(&pod, &config).await;
    let deviation = RuntimeDeviation::TakenNamesAreUnknown;
    bench.refused_but_for(deviation, "create again", again, &[Kind::FailedPrecondition])?;
    config.metadata.attempt = 1;
    let second = bench.try_create(&pod, &config).await.map_err(|e| failed("create the next attempt", &e))?;
    check!(first != second, "both have the id {first}");
    Ok(())
}

pub(super) async fn a_container_starts_once(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    bench.refused("start again", bench.service().start_container(&id).await, &[Kind::FailedPrecondition])?;
    let ended = bench.started(&pod, "ended", Program::Ends(0)).await?;
    bench.ended(&ended).await?;
    bench.refused("start what ended", bench.service().start_container(&ended).await, &[Kind::FailedPrecondition])?;
    bench.refused("start what never was", bench.service().start_container("no-such").await, &[Kind::NotFound])
}

pub(super) async fn a_stop_asks_first(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    bench.service().stop_container(&id, PATIENCE).await.map_err(|e| failed("stop", &e))?;
    check_eq!(bench.ended(&id).await?.exit_code, 143, "exit code");
    Ok(())
}

pub(super) async fn a_stop_kills_in_the_end(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "stubborn", Program::IgnoresSignals).await?;
    let began = tokio::time::Instant::now();
    let time = Duration::from_secs(1);
    bench.service().stop_container(&id, time).await.map_err(|e| failed("stop", &e))?;
    let took = began.elapsed();
    check!(took >= time, "it was killed after {took:?}");
    check_eq!(bench.ended(&id).await?.exit_code, 137, "exit code");
    Ok(())
}

pub(super) async fn a_stop_without_time_kills_at_once(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "stubborn", Program::IgnoresSignals).await?;
    bench.service().stop_container(&id, Duration::ZERO).await.map_err(|e| failed("stop", &e))?;
    check_eq!(bench.ended(&id).await?.exit_code, 137, "exit code");
    Ok(())
}

pub(super) async fn ending_a_container_is_idempotent(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let service = bench.service();
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    let stop = |id: String| async move { service.stop_container(&id, PATIENCE).await.map_err(|e| failed("stop", &e)) };
    for _ in 0..2 {
        stop(id.clone()).await?;
    }
    let created = bench.created(&pod, "new", Program::Sleeps).await?;
    stop(created.clone()).await?;
    for _ in 0..2 {
        for id in [&id, &created] {
            service.remove_container(id).await.map_err(|e| failed("remove", &e))?;
        }
    }
    stop(id).await?;
    stop("no-such-container".into()).await?;
    service.remove_container("no-such-container").await.map_err(|e| failed("remove what never was", &e))
}

pub(super) async fn a_running_container_can_be_removed(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "stubborn", Program::IgnoresSignals).await?;
    bench.service().remove_container(&id).await.map_err(|e| failed("remove", &e))?;
    check_eq!(bench.containers().await?.len(), 0, "number of containers");
    Ok(())
}

pub(super) async fn an_absent_container_has_no_status(bench: &RuntimeBench<'_>) -> Outcome {
    let status = bench.service().container_status("no-such-container", false).await;
    bench.refused("status", status, &[Kind::NotFound])
}

pub(super) async fn filters_select_containers(bench: &RuntimeBench<'_>) -> Outcome {
    let (one, two) = (bench.pod("one").await?, bench.pod("two").await?);
    let running = bench.started(&one, "running", Program::Sleeps).await?;
    let created = bench.created(&one, "created", Program::Sleeps).await?;
    let exited = bench.started(&two, "exited", Program::Ends(1)).await?;
    bench.ended(&exited).await?;
    let case = bench.sandbox_config("any").labels["case"].clone();
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    let of_case = ContainerFilter { labels: labels(&[("case", &case)]), ..ContainerFilter::default() };
    let state = |state| ContainerFilter { state: Some(state), ..of_case.clone() };
    let cases = [
        (of_case.clone(), vec![&running, &created, &exited]),
        (state(ContainerState::Running), vec![&running]),
        (state(ContainerState::Created), vec![&created]),
        (state(ContainerState::Exited), vec![&exited]),
        (ContainerFilter { pod_sandbox_id: Some(one.id.clone()), ..of_case.clone() }, vec![&running, &created]),
        (ContainerFilter { id: Some(exited.clone()), ..ContainerFilter::default() }, vec![&exited]),
        (
            ContainerFilter { labels: labels(&[("case", &case), ("container", "created")]), ..Default::default() },
            vec![&created],
        ),
        (ContainerFilter { pod_sandbox_id: Some("no-such".into()), ..of_case.clone() }, vec![]),
        (ContainerFilter { id: Some("no-such-container".into()), ..ContainerFilter::default() }, vec![]),
    ];
    for (filter, want) in cases {
        let listed = bench.service().list_containers(Some(&filter)).await.map_err(|e| failed("list", &e))?;
        let mut ids: Vec<String> = listed.into_iter().map(|container| container.id).collect();
        let mut want: Vec<String> = want.into_iter().cloned().collect();
        ids.sort();
        want.sort();
        check_eq!(ids, want, "list with {filter:?}");
    }
    Ok(())
}

pub(super) async fn containers_end_with_their_sandbox(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "stubborn", Program::IgnoresSignals).await?;
    bench.service().stop_pod_sandbox(&pod.id).await.map_err(|e| failed("stop the sandbox", &e))?;
    check_eq!(bench.ended(&id).await?.exit_code, 137, "exit code");
    Ok(())
}

pub(super) async fn containers_go_with_their_sandbox(bench: &RuntimeBench<'_>) -> Outcome {
    let (pod, other) = (bench.pod("one").await?, bench.pod("other").await?);
    bench.started(&pod, "main", Program::Ends(0)).await?;
    let stays = bench.started(&other, "main", Program::Sleeps).await?;
    let service = bench.service();
    service.stop_pod_sandbox(&pod.id).await.map_err(|e| failed("stop the sandbox", &e))?;
    bench.remove_after_exit(&pod.id).await?;
    let left: Vec<String> = bench.containers().await?.into_iter().map(|container| container.id).collect();
    check_eq!(left, vec![stays.clone()], "containers that are left");
    check_eq!(bench.status(&stays).await?.state, ContainerState::Running, "state of the other pod's container");
    Ok(())
}

pub(super) async fn resources_can_be_changed(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    let resources = LinuxContainerResources { cpu_shares: 512, ..LinuxContainerResources::default() };
    let update = |id: String, resources: LinuxContainerResources| async move {
        bench.service().update_container_resources(&id, &resources, &BTreeMap::new()).await
    };
    update(id.clone(), resources.clone()).await.map_err(|e| failed("update", &e))?;
    if let Some(told) = bench.status(&id).await?.resources {
        check_eq!(told.cpu_shares, 512, "CPU shares afterwards");
    }
    let absent = update("no-such-container".into(), resources).await;
    bench.refused("update of what never was", absent, &[Kind::NotFound])
}

pub(super) async fn a_log_is_written(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let mut config = bench.container_config("speaker", Program::Speaks);
    config.envs = vec![EnvVar::new("GREETING", "good day")];
    config.args = vec!["and good bye".into()];
    let id = bench.try_create(&pod, &config).await.map_err(|e| failed("create", &e))?;
    bench.service().start_container(&id).await.map_err(|e| failed("start", &e))?;
    let status = bench.ended(&id).await?;
    check_eq!(status.exit_code, 0, "exit code");
    let Some(log) = bench.harness().log(&status.log_path) else {
        return Err(Stop::NotApplicable("this runtime writes no logs".into()));
    };
    // TIME STREAM TAG LINE; the tag F is a full line.
    let mut lines: Vec<(&str, &str, &str)> = Vec::new();
    for line in log.lines() {
        let mut parts = line.splitn(4, ' ').skip(1);
        lines.push((parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next().unwrap_or("")));
    }
    lines.sort_unstable();
    let want = [("stderr", "F", "oh"), ("stdout", "F", "and good bye"), ("stdout", "F", "good day")];
    check_eq!(lines, want, "lines of the log");
    Ok(())
}

pub(super) async fn a_log_can_be_reopened(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    bench.service().reopen_container_log(&id).await.map_err(|e| failed("reopen the log", &e))?;
    bench.service().stop_container(&id, Duration::ZERO).await.map_err(|e| failed("stop", &e))?;
    bench.ended(&id).await?;
    let ended = bench.service().reopen_container_log(&id).await;
    bench.refused("the log of what ended", ended, &[Kind::FailedPrecondition])
}
