//! Which images a command uses if its user selects none: those of the agent that runs on this machine. An agent is asked for its
//! configuration on its admin socket, and the command takes over the settings that select images. Starts nothing and changes nothing.
//! Called by `main`, and by the completion of shells.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use agent::api::client::{self, AskError, Method};
use agent::api::wire::AgentVersion;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::endpoint::admin_socket;
use crate::environment::Environment;
use crate::exit::{Failure, Outcome, chain, code_of};

/// End of the name of the root that imagelet-serve.service has next to the default one.
const OF_SERVE: &str = "-serve";

/// The agent whose images a command uses.
#[derive(Debug)]
pub(crate) struct FollowedAgent {
    socket: PathBuf,
    /// The endpoint or the directory of the images.
    images: String,
    logged: Once,
}

impl FollowedAgent {
    /// Logs once which images the command uses.
    pub(crate) fn log(&self) {
        let Self { socket, images, logged } = self;
        logged.call_once(|| {
            let socket = socket.display();
            tracing::info!("using the images of {images}, like the agent on {socket}; -i or --root selects others");
        });
    }
}

/// Changes `config` so that it selects the images of an agent that runs, unless the user selects images. Returns the agent if the command
/// would use other images without it.
pub(crate) async fn follow(config: &mut Config, environment: &Environment) -> Outcome<Option<FollowedAgent>> {
    if config.selects_images() {
        return Ok(None);
    }
    let before = (config.root.clone(), config.image_service_endpoint.clone());
    for socket in sockets(config, environment) {
        let Some(agent) = ask(&socket, environment.auth.uid).await? else { continue };
        config.adopt(&agent).map_err(|why| unknown(&socket, &why))?;
        if config.image_service_endpoint.is_some() && has_store(&socket).await? {
            // The runtime reads the images of the agent, which answers for both.
            config.image_service_endpoint = None;
        }
        if (&config.root, &config.image_service_endpoint) == (&before.0, &before.1) {
            return Ok(None);
        }
        let images = config.image_service_endpoint.clone().unwrap_or_else(|| config.root.display().to_string());
        return Ok(Some(FollowedAgent { socket, images, logged: Once::new() }));
    }
    Ok(None)
}

/// Returns the sockets on which an agent of this user answers: the configured one, and that of imagelet-serve.service. A command that
/// names the root names the agent.
pub(crate) fn sockets(config: &Config, environment: &Environment) -> Vec<PathBuf> {
    let configured = admin_socket(config);
    if config.is_of_command("root") {
        return vec![configured];
    }
    let mut root = OsString::from(environment.default_root());
    root.push(OF_SERVE);
    let of_serve = Path::new(&root).join("admin.sock");
    if config.admin_socket.is_some() || of_serve == configured { vec![configured] } else { vec![configured, of_serve] }
}

/// Returns the configuration of the agent on a socket; `None` if no agent of this user answers there.
async fn ask(socket: &Path, user: u32) -> Outcome<Option<Map<String, Value>>> {
    match tokio::fs::metadata(socket).await {
        Ok(found) if found.uid() != user => {
            let owner = found.uid();
            tracing::info!("the agent on {} is of user {owner}: its images are not used", socket.display());
            return Ok(None);
        }
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => {
            tracing::info!("the images of the agent on {} are not used: {error}", socket.display());
            return Ok(None);
        }
    }
    match client::ask_json::<Value>(socket, Method::GET, "/configz").await {
        Ok(mut answer) => match answer["imageletconfig"].take() {
            Value::Object(configuration) => Ok(Some(configuration)),
            _ => Err(unknown(socket, "its answer has no configuration")),
        },
        // The socket of a process that was killed.
        Err(AskError::NotListening(_)) => Ok(None),
        Err(AskError::Broken { .. }) => {
            tracing::info!("the agent on {} ended: its images are not used", socket.display());
            Ok(None)
        }
        Err(error) => {
            let failure = unknown(socket, &chain(&error));
            Err(failure.with_code(code_of(error.kind())))
        }
    }
}

/// Returns true if the agent on a socket keeps images in its own store, which the runtime behind it reads.
async fn has_store(socket: &Path) -> Outcome<bool> {
    match client::ask_json::<AgentVersion>(socket, Method::GET, "/v1/version").await {
        Ok(version) => Ok(version.has_store),
        Err(error) => Err(unknown(socket, &chain(&error)).with_code(code_of(error.kind()))),
    }
}

/// Returns the failure of a command that cannot know which images to use.
fn unknown(socket: &Path, why: &str) -> Failure {
    Failure::failed(format!(
        "find the images of the agent on {}: {why}; -i or --root selects images without asking it",
        socket.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_the_configured_one_and_that_of_the_unit() {
        let environment = Environment { privileged: true, ..Environment::default() };
        let mut config = Config::defaults(&environment);
        let shown = |config: &Config| -> Vec<String> {
            sockets(config, &environment).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(shown(&config), ["/var/lib/imagelet/admin.sock", "/var/lib/imagelet-serve/admin.sock"]);
        config.root = "/data".into();
        assert_eq!(shown(&config), ["/data/admin.sock", "/var/lib/imagelet-serve/admin.sock"]);
        config.admin_socket = Some("/run/imagelet/admin.sock".into());
        assert_eq!(shown(&config), ["/run/imagelet/admin.sock"]);
    }
}
