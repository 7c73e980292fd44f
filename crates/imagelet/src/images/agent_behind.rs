//! [`AgentBehind`]: an agent of imagelet that serves images on the endpoint that a user names as a runtime's. The agent pulls by its own
//! configuration, and its admin API answers what CRI does not. Called by [`Images`](super::Images).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use agent::api::client::{self, AskError, Method};
use agent::api::wire::AgentVersion;
use async_trait::async_trait;
use cri_api::engine::runtime_store::{DamagedLayer, RuntimeImageFacts};
use cri_api::engine::{ConvertReport, ConvertRequest, ImageLayers};
use cri_api::{Error, Kind};
use cri_grpc::Endpoint;
use cri_grpc::client::AgentAddress;
use image_service::PullEngine;
use serde::Deserialize;
use serde_json::Value;

use super::opening::{own_platform, own_reach};
use crate::config::Config;
use crate::exit::{Code, Failure, Outcome, chain};

/// First word of an engine's description if imagelet pulls.
const EMBEDDED: &str = "embedded";

/// An agent that serves images on a CRI socket.
#[derive(Debug)]
pub(super) struct AgentBehind {
    /// The agent's admin socket.
    socket: PathBuf,
}

impl fmt::Display for AgentBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent on {}", self.socket.display())
    }
}

impl AgentBehind {
    /// Verifies that the agent of a CRI socket is the one that answers on its admin socket: in another mount namespace, the path may
    /// lead to another agent. If nothing can be asked there, each later question has that error.
    ///
    /// # Errors
    /// Another agent answers.
    pub(super) async fn verified(address: &AgentAddress, endpoint: &Endpoint) -> Outcome<Self> {
        let socket = address.socket.clone();
        let found: Result<AgentVersion, AskError> = client::ask_json(&socket, Method::GET, "/v1/version").await;
        match found {
            Ok(found) if found.instance != address.instance => {
                let socket = socket.display();
                let message = format!(
                    "another agent than the one on {endpoint} answers on its admin socket {socket}: that path is of another \
                     mount namespace; use the command where the agent runs"
                );
                Err(Failure::new(Code::Config, message))
            }
            _ => Ok(Self { socket }),
        }
    }

    /// Returns the agent's admin socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the engine that pulls for the agent, with the reason for the choice.
    async fn ask_engine(&self) -> Result<String, AskError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            pull_engine: Option<String>,
        }
        let status: Status = client::ask_json(&self.socket, Method::GET, "/v1/status").await?;
        Ok(status.pull_engine.unwrap_or_else(|| format!("{EMBEDDED}: it fills the store of imagelet")))
    }

    /// Returns the endpoint of the runtime whose images the agent serves; `None` if the agent has a store of its own, or does not answer.
    pub(super) async fn images(&self) -> Option<String> {
        let text = self.setting("imageServiceEndpoint").await.ok()?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns the root of the agent; `None` if the agent does not answer.
    pub(super) async fn root(&self) -> Option<String> {
        self.setting("root").await.ok()
    }

    /// Returns a setting of the agent; empty if it is not set.
    async fn setting(&self, field: &str) -> Result<String, AskError> {
        let configuration: Value = client::ask_json(&self.socket, Method::GET, "/configz").await?;
        Ok(configuration["imageletconfig"][field].as_str().unwrap_or_default().to_owned())
    }

    /// Refuses settings of this process that the agent's pulls would not follow.
    pub(super) async fn check_pull(&self, config: &Config, endpoint: &Endpoint) -> Outcome {
        let unknown = |error: AskError| Failure::from(error);
        if let Some(policy) = &config.engine.signature_policy
            && Path::new(&self.setting("signaturePolicy").await.map_err(unknown)?) != policy
        {
            let message = format!("signaturePolicy is {}, and {self}, which pulls, uses another one", policy.display());
            return Err(Failure::new(Code::Config, message));
        }
        if config.pull_engine == PullEngine::Embedded {
            let engine = self.ask_engine().await.map_err(unknown)?;
            if !engine.starts_with(EMBEDDED) {
                let message = format!("pullEngine is embedded, and the engine of {self} is {engine}");
                return Err(Failure::new(Code::Config, message));
            }
        }
        own_reach(config, self)?;
        own_platform(&config.engine.platform, endpoint)
    }
}

#[async_trait]
impl RuntimeImageFacts for AgentBehind {
    async fn image_layers(&self) -> cri_api::Result<Option<ImageLayers>> {
        Ok(None)
    }

    /// The agent's own collection knows the times.
    async fn pull_times(&self) -> cri_api::Result<BTreeMap<String, i64>> {
        Ok(BTreeMap::new())
    }

    async fn pull_engine(&self) -> String {
        match self.ask_engine().await {
            Ok(engine) => engine,
            Err(error) => format!("not known, because its agent cannot be asked: {}", chain(&error)),
        }
    }

    async fn hidden_records(&self, _: bool) -> cri_api::Result<Option<Vec<String>>> {
        Ok(None)
    }

    async fn damaged_layers(&self, _: bool) -> cri_api::Result<Option<Vec<DamagedLayer>>> {
        Ok(None)
    }

    async fn convert_layers(&self, _: &ConvertRequest) -> cri_api::Result<Option<ConvertReport>> {
        Err(Error::new(Kind::Unimplemented, format!("{self} does not convert the layers of other commands")))
    }
}
