//! Images behind the endpoint of a runtime, pulled by our engine into the runtime's own store, or by the runtime. Called by
//! [`Images`](super::Images).

use std::sync::Arc;
use std::time::Duration;

use cri_api::ImageService;
use cri_api::engine::RuntimePins;
use cri_api::engine::runtime_store::RuntimeImageFacts as _;
use cri_grpc::Endpoint;
use cri_grpc::client::{RemoteRuntimeService, connect_image_service};
use image_service::{PullEngine, RuntimeImages};
use tokio_util::sync::CancellationToken;

use super::agent_behind::AgentBehind;
use super::layer_form::layer_settings;
use super::opening::{Opening, engine_options, open_failure, own_platform, own_reach};
use crate::config::Config;
use crate::endpoint::client_options;
use crate::exit::{Code, Failure, Outcome, chain, code_of};

/// Pause between two sweeps of pulls' leftovers in the runtime's store.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// The images behind an endpoint.
pub(super) struct Connected {
    pub(super) service: Arc<dyn ImageService>,
    /// Present if our engine may pull them, or reads their layers.
    pub(super) runtime: Option<Arc<RuntimeImages>>,
    /// Pins in the runtime; `None` if an agent is behind the endpoint.
    pub(super) pins: Option<Arc<dyn RuntimePins>>,
    /// The agent that serves them in place of a runtime.
    pub(super) agent: Option<Arc<AgentBehind>>,
}

/// Connects to the images behind an endpoint.
pub(super) async fn connect(config: &Config, endpoint: &Endpoint, opening: &Opening<'_>) -> Outcome<Connected> {
    let access = opening.access;
    if config.pull_engine == PullEngine::Runtime && access.pulls {
        leave_to_runtime(config, endpoint, "pullEngine is runtime")?;
    }
    let connected = connect_image_service(endpoint, client_options(config)).await;
    let remote = connected.map_err(|error| Failure::new(code_of(error.kind()), chain(&error)))?;
    let agent = match remote.agent() {
        Some(address) => Some(Arc::new(AgentBehind::verified(address, endpoint).await?)),
        None => None,
    };
    let service: Arc<dyn ImageService> = Arc::new(remote);
    if let Some(agent) = agent {
        if access.pulls && config.pull_engine != PullEngine::Runtime {
            agent.check_pull(config, endpoint).await?;
        }
        if access.reports_engine() {
            tracing::info!(pullEngine = %agent.pull_engine().await, "pull engine selected for {endpoint} by {agent}");
        }
        return Ok(Connected { service, runtime: None, pins: None, agent: Some(agent) });
    }
    let unusable = |error: containerd::Error| Failure::caused(Code::Config, format!("endpoint {endpoint}"), &error);
    // A root has one spelling in labels, from whichever directory imagelet is started.
    let root = std::path::absolute(&config.root).unwrap_or_else(|_| config.root.clone());
    let pins = containerd::PinLabels::new(endpoint.path(), &root).map_err(unusable)?;
    let pins: Option<Arc<dyn RuntimePins>> = Some(Arc::new(pins));
    if !access.pulls && !access.accounts {
        return Ok(Connected { service, runtime: None, pins, agent: None });
    }
    let runtime = fills(config, endpoint, opening, Arc::clone(&service)).await?;
    if config.pull_engine == PullEngine::Runtime {
        // Every call is the runtime's own; only the engine is reported.
        return Ok(Connected { service, runtime: Some(runtime), pins, agent: None });
    }
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
    Ok(Connected { service: Arc::clone(&runtime) as _, runtime: Some(runtime), pins, agent: None })
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

async fn fills(
    config: &Config,
    endpoint: &Endpoint,
    opening: &Opening<'_>,
    service: Arc<dyn ImageService>,
) -> Outcome<Arc<RuntimeImages>> {
    let runtime = Arc::new(RemoteRuntimeService::of(endpoint, client_options(config)));
    let finder = containerd::Finder::new(endpoint.path(), runtime, layer_settings(config))
        .map_err(|error| Failure::caused(Code::Config, format!("endpoint {endpoint}"), &error))?;
    let mut options = engine_options(config, opening.proxies, opening.backs_off, opening.network, None);
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
