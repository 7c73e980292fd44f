//! Images behind the endpoint of a runtime, pulled by our engine into the runtime's own store, or by the runtime. Called by
//! [`Images`](super::Images).

use std::sync::Arc;
use std::time::Duration;

use cri_api::ImageService;
use cri_grpc::Endpoint;
use cri_grpc::client::{RemoteRuntimeService, connect_image_service};
use image_service::{PullEngine, RuntimeImages};
use oci::Platform;
use tokio_util::sync::CancellationToken;

use super::layer_form::layer_settings;
use super::opening::{Opening, engine_options, open_failure, own_reach};
use crate::config::Config;
use crate::endpoint::client_options;
use crate::exit::{Code, Failure, Outcome, chain, code_of};

/// Pause between two sweeps of pulls' leftovers in the runtime's store.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

type Connected = (Arc<dyn ImageService>, Option<Arc<RuntimeImages>>);

/// Connects to the images behind an endpoint. The second value is present if our engine may pull them.
pub(super) async fn connect(config: &Config, endpoint: &Endpoint, opening: &Opening<'_>) -> Outcome<Connected> {
    let access = opening.access;
    if config.pull_engine == PullEngine::Runtime && access.pulls {
        leave_to_runtime(config, endpoint, "pullEngine is runtime")?;
    }
    let service: Arc<dyn ImageService> = match connect_image_service(endpoint, client_options(config)).await {
        Ok(service) => Arc::new(service),
        Err(error) => return Err(Failure::new(code_of(error.kind()), chain(&error))),
    };
    if config.pull_engine == PullEngine::Runtime || !access.pulls && !access.accounts {
        return Ok((service, None));
    }
    let runtime = fills(config, endpoint, opening, service).await?;
    // A runtime that does not answer yet may still be a suitable one: each call reports the error until it answers.
    let choice = match runtime.choice().await {
        Ok(choice) => Some(choice),
        Err(error) => {
            tracing::info!(%error, "pull engine not selected yet for {endpoint}");
            None
        }
    };
    if let Some(choice) = &choice {
        if access.reports_engine() {
            tracing::info!(pullEngine = %choice, "pull engine selected for {endpoint}");
        }
        if !choice.is_embedded && config.pull_engine == PullEngine::Embedded && !access.only_removes() {
            let message = format!("pullEngine is embedded, and {endpoint} cannot be filled: {}", choice.why);
            return Err(Failure::new(Code::Config, message));
        }
        if !choice.is_embedded && access.pulls {
            leave_to_runtime(config, endpoint, &format!("{endpoint} cannot be filled: {}", choice.why))?;
        }
    }
    Ok((Arc::clone(&runtime) as _, Some(runtime)))
}

/// Refuses settings that the runtime's own pull would not follow. `why` explains why the runtime pulls.
fn leave_to_runtime(config: &Config, endpoint: &Endpoint, why: &str) -> Outcome {
    if config.engine.signature_policy.is_some() {
        let message = format!("signaturePolicy is set, and {why}: the runtime would pull without asking the policy");
        return Err(Failure::new(Code::Config, message));
    }
    own_reach(config, endpoint)?;
    own_platform(&config.engine.platform, endpoint)
}

/// Refuses a platform of another machine: the runtime pulls only for its own.
fn own_platform(wanted: &Platform, endpoint: &Endpoint) -> Outcome {
    let own = Platform::host();
    if own.runnable().iter().any(|own| own.os == wanted.os && own.architecture == wanted.architecture) {
        return Ok(());
    }
    Err(Failure::usage(format!("platform {wanted} is for pulls of this process, and {endpoint} pulls, for {own}")))
}

async fn fills(
    config: &Config,
    endpoint: &Endpoint,
    opening: &Opening<'_>,
    service: Arc<dyn ImageService>,
) -> Outcome<Arc<RuntimeImages>> {
    let runtime = Arc::new(RemoteRuntimeService::of(endpoint, client_options(config)));
    let finder = containerd::Finder::new(endpoint.path(), runtime, layer_settings(config))
        .map_err(|error| Failure::caused(Code::Config, format!("endpoint {endpoint}"), &error))?;
    let mut options = engine_options(config, opening.proxies, opening.backs_off, opening.bandwidth, None);
    options.store.command = Some(opening.access.command.clone());
    if opening.access.only_removes() {
        options.signature_policy = None;
    }
    let images = RuntimeImages::open(service, Arc::new(finder), options, config.pull_engine).await;
    images.map(Arc::new).map_err(|error| open_failure(&error))
}

/// Releases the leftovers of pulls, at once and then periodically until `stop`.
pub(super) async fn tend(runtime: &RuntimeImages, stop: &CancellationToken) {
    runtime.recover().await;
    let sweeps = async {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            runtime.sweep().await;
        }
    };
    stop.run_until_cancelled(async { tokio::join!(sweeps, runtime.tend_layers()) }).await;
}
