//! Images behind the endpoint of a runtime, and who pulls them: our engine into the runtime's own store, or the runtime. Called by
//! [`Images`](super::Images).

use std::sync::Arc;
use std::time::Duration;

use cri_api::ImageService;
use cri_grpc::Endpoint;
use cri_grpc::client::connect_image_service;
use image_service::{PullEngine, RuntimeImages};
use oci::Platform;
use tokio_util::sync::CancellationToken;

use super::opening::{Opening, engine_options, own_reach};
use crate::config::Config;
use crate::endpoint::client_options;
use crate::exit::{Code, Failure, Outcome, chain, code_of};

/// Pause between two looks for what pulls left in the runtime's store.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

type Connected = (Arc<dyn ImageService>, Option<Arc<RuntimeImages>>);

/// Connects to the images behind an endpoint. The second is there where our engine may pull them.
pub(super) async fn connect(config: &Config, endpoint: &Endpoint, opening: &Opening<'_>) -> Outcome<Connected> {
    let access = opening.access;
    if config.pull_engine == PullEngine::Runtime {
        leave_to_runtime(config, endpoint, access.brings)?;
    }
    let service: Arc<dyn ImageService> = match connect_image_service(endpoint, client_options(config)).await {
        Ok(service) => Arc::new(service),
        Err(error) => return Err(Failure::new(code_of(error.kind()), chain(&error))),
    };
    if !access.brings && !access.accounts {
        return Ok((service, None));
    }
    let runtime = match config.pull_engine {
        PullEngine::Runtime => None,
        rule => Some(fills(config, endpoint, opening, Arc::clone(&service), rule)?),
    };
    let choice = match &runtime {
        Some(runtime) => Some(runtime.choice().await),
        None => None,
    };
    if let Some(choice) = choice.as_ref().filter(|_| access.says_who_pulls()) {
        tracing::info!(pullEngine = %choice, "who pulls images for {endpoint}");
    }
    // A runtime that does not answer yet may be a suitable one: each call says so until it does.
    let is_unsuited = choice.as_ref().is_some_and(|choice| !choice.is_embedded && !choice.is_temporary);
    if let Some(choice) = choice.filter(|_| config.pull_engine == PullEngine::Embedded && is_unsuited) {
        return Err(Failure::new(
            Code::Config,
            format!("pullEngine is embedded, and {endpoint} cannot be filled: {}", choice.why),
        ));
    }
    if is_unsuited && access.brings {
        leave_to_runtime(config, endpoint, true)?;
    }
    let service = runtime.as_ref().map_or(service, |runtime| Arc::clone(runtime) as _);
    Ok((service, runtime))
}

/// Says what of the configuration counts for nothing where the runtime pulls, and refuses what a command asked for in vain.
fn leave_to_runtime(config: &Config, endpoint: &Endpoint, brings: bool) -> Outcome {
    if let Some(policy) = &config.engine.signature_policy {
        let policy = policy.display();
        tracing::warn!("signaturePolicy {policy} is not looked at: {endpoint} pulls, and decides by its own policy");
    }
    if !brings {
        return Ok(());
    }
    own_reach(config, endpoint)?;
    own_platform(&config.engine.platform, endpoint)
}

/// Refuses a platform of another machine: the runtime pulls for its own.
fn own_platform(wanted: &Platform, endpoint: &Endpoint) -> Outcome {
    let own = Platform::host();
    if own.runnable().iter().any(|own| own.os == wanted.os && own.architecture == wanted.architecture) {
        return Ok(());
    }
    Err(Failure::usage(format!("platform {wanted} is for pulls of this process, and {endpoint} pulls, for {own}")))
}

fn fills(
    config: &Config,
    endpoint: &Endpoint,
    opening: &Opening<'_>,
    service: Arc<dyn ImageService>,
    rule: PullEngine,
) -> Outcome<Arc<RuntimeImages>> {
    let finder = containerd::Finder::new(endpoint.path())
        .map_err(|error| Failure::caused(Code::Config, format!("endpoint {endpoint}"), &error))?;
    let mut options = engine_options(config, opening.proxies, opening.backs_off, opening.bandwidth, None);
    options.store.command = Some(opening.access.command.clone());
    Ok(Arc::new(RuntimeImages::new(service, Arc::new(finder), options, rule)))
}

/// Gives up what pulls left, at once and then now and then until `stop`.
pub(super) async fn tend(runtime: &RuntimeImages, stop: &CancellationToken) {
    runtime.recover().await;
    let sweeps = async {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            runtime.sweep().await;
        }
    };
    stop.run_until_cancelled(sweeps).await;
}
