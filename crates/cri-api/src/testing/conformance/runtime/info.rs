//! Cases: the information of a runtime about itself.

use super::super::bench::{Outcome, check, check_eq};
use super::bench::{RuntimeBench, failed};

pub(super) async fn version_tells_who_it_is(bench: &RuntimeBench<'_>) -> Outcome {
    let version = bench.service().version().await.map_err(|e| failed("version", &e))?;
    check_eq!(version.version, "0.1.0", "version of the kubelet's runtime API");
    check_eq!(version.runtime_api_version, "v1", "version of CRI");
    check!(!version.runtime_name.is_empty() && !version.runtime_version.is_empty(), "no name or version: {version:?}");
    Ok(())
}

pub(super) async fn status_tells_the_conditions(bench: &RuntimeBench<'_>) -> Outcome {
    for verbose in [false, true] {
        let status = bench.service().status(verbose).await.map_err(|e| failed("status", &e))?;
        check!(status.holds("RuntimeReady"), "the runtime is not ready: {:?}", status.conditions);
        check!(status.conditions.iter().any(|c| c.kind == "NetworkReady"), "no NetworkReady: {:?}", status.conditions);
        check!(verbose || status.info.is_empty(), "information that was not asked for");
        check!(!verbose || !status.info.is_empty(), "no information, and it was asked for");
    }
    Ok(())
}

pub(super) async fn runtime_config_tells_the_cgroup_driver(bench: &RuntimeBench<'_>) -> Outcome {
    let config = bench.service().runtime_config().await.map_err(|e| failed("runtime config", &e))?;
    check!(config.cgroup_driver.is_some(), "no cgroup driver");
    Ok(())
}
