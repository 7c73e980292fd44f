//! Cases: stats and events.

use std::future::poll_fn;
use std::time::Duration;

use super::super::bench::{Outcome, check, check_eq};
use super::bench::{RuntimeBench, failed};
use super::{Program, Stop};
use crate::{ContainerEventKind, ContainerStatsFilter, Kind, PodSandboxStatsFilter};

pub(super) async fn running_containers_have_stats(bench: &RuntimeBench<'_>) -> Outcome {
    let (pod, other) = (bench.pod("one").await?, bench.pod("other").await?);
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    bench.started(&other, "main", Program::Sleeps).await?;
    let service = bench.service();
    let stats = service.container_stats(&id).await.map_err(|e| failed("stats", &e))?;
    check_eq!((&stats.attributes.id, stats.attributes.metadata.name.as_str()), (&id, "main"), "whose they are");
    check!(stats.cpu.is_some_and(|cpu| cpu.timestamp > 0), "no CPU: {stats:?}");
    check!(stats.memory.is_some_and(|memory| memory.working_set_bytes.is_some()), "no memory: {stats:?}");
    for filter in [
        ContainerStatsFilter { id: Some(id.clone()), ..ContainerStatsFilter::default() },
        ContainerStatsFilter { pod_sandbox_id: Some(pod.id.clone()), ..ContainerStatsFilter::default() },
    ] {
        let listed = service.list_container_stats(Some(&filter)).await.map_err(|e| failed("list stats", &e))?;
        let ids: Vec<&String> = listed.iter().map(|stats| &stats.attributes.id).collect();
        check_eq!(ids, [&id], "list with {filter:?}");
    }
    let all = service.list_container_stats(None).await.map_err(|e| failed("list all stats", &e))?;
    check!(all.len() >= 2, "two containers run, {} have stats", all.len());
    bench.refused("stats of what never was", service.container_stats("no-such").await, &[Kind::NotFound])
}

pub(super) async fn pods_have_stats(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    let service = bench.service();
    let stats = service.pod_sandbox_stats(&pod.id).await.map_err(|e| failed("stats", &e))?;
    check_eq!((&stats.attributes.id, &stats.attributes.metadata), (&pod.id, &pod.config.metadata), "whose they are");
    let of: Vec<&String> = stats.containers.iter().map(|stats| &stats.attributes.id).collect();
    check_eq!(of, [&id], "containers with stats");
    let filter = PodSandboxStatsFilter { id: Some(pod.id.clone()), ..PodSandboxStatsFilter::default() };
    let listed = service.list_pod_sandbox_stats(Some(&filter)).await.map_err(|e| failed("list stats", &e))?;
    check_eq!(listed.len(), 1, "list with {filter:?}");
    Ok(())
}

pub(super) async fn events_are_reported(bench: &RuntimeBench<'_>) -> Outcome {
    let mut events = bench.service().container_events();
    // The first poll opens the call; a runtime that does not implement it returns an error at once.
    let first = tokio::time::timeout(Duration::from_millis(500), poll_fn(|cx| events.as_mut().poll_next(cx))).await;
    match first {
        Ok(Some(Err(error))) => return Err(failed("events", &error)),
        Ok(None) => return Err(Stop::Failed("the events end before they begin".into())),
        Ok(Some(Ok(_))) | Err(_) => {}
    }
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Ends(5)).await?;
    let mut seen = Vec::new();
    while seen.last() != Some(&ContainerEventKind::Stopped) {
        let event = match poll_fn(|cx| events.as_mut().poll_next(cx)).await {
            Some(Ok(event)) => event,
            Some(Err(error)) => return Err(failed("events", &error)),
            None => return Err(Stop::Failed(format!("the events end after {seen:?}"))),
        };
        if event.container_id == id {
            let sandbox = event.sandbox.map(|sandbox| sandbox.id);
            check_eq!(sandbox, Some(pod.id.clone()), "sandbox of the event");
            seen.push(event.kind);
        }
    }
    let want = [ContainerEventKind::Created, ContainerEventKind::Started, ContainerEventKind::Stopped];
    check_eq!(seen, want, "events of the container");
    Ok(())
}
