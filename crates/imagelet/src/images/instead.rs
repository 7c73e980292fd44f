//! The command that helps if a runtime keeps the images and a command works on imagelet's own store. Called by
//! [`App`](crate::app::App).

use std::path::{Path, PathBuf};

use agent::admin::NoEngine;
use cri_api::RuntimeService as _;
use cri_grpc::Endpoint;
use cri_grpc::client::RemoteRuntimeService;

use super::{ImageKeeper, Images};
use crate::config::Config;
use crate::endpoint::{client_options, parse_endpoint};
use crate::exit::Failure;

/// The socket that `ctr` uses without a flag.
const CTR_SOCKET: &str = "/run/containerd/containerd.sock";
/// Commands that read or change layers in the store of a runtime.
const IN_RUNTIME: [&str; 6] = ["cat", "check", "convert", "cp", "history", "ls"];

/// The component that keeps the images.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Keeper {
    /// The containerd at a socket.
    Containerd(PathBuf),
    Crio,
    /// An agent's own store in a root.
    Agent(String),
    Other,
}

impl Images {
    /// Returns the failure of a command, such as `tag`, that works on a store of imagelet's own, and the command that does the same where the
    /// images are. `own_root` is the root that a command uses by default.
    pub(crate) async fn no_engine(&self, config: &Config, own_root: &Path, what: &str) -> Failure {
        let failure = NoEngine { what: what.to_owned(), endpoint: self.endpoint_text() };
        let ImageKeeper::Runtime(endpoint) = &self.keeper else { return failure.into() };
        let command = what.split(' ').next().unwrap_or_default();
        let behind = match &self.agent {
            Some(agent) => agent.images().await,
            None => None,
        };
        let instead = match &behind {
            Some(behind) if IN_RUNTIME.contains(&command) => {
                format!("`imagelet -i {behind} {command}` works on the store of the runtime")
            }
            _ => instead(command, &self.keeper_behind(config, endpoint, behind.as_deref()).await, own_root),
        };
        Failure::failed(format!("{failure}: {instead}"))
    }

    /// Finds out what keeps the images behind an endpoint. `behind` is the endpoint of the runtime behind an agent.
    async fn keeper_behind(&self, config: &Config, endpoint: &Endpoint, behind: Option<&str>) -> Keeper {
        let runtime = match behind.map(parse_endpoint) {
            Some(Ok(runtime)) => runtime,
            _ => match &self.agent {
                Some(agent) => return agent.root().await.map_or(Keeper::Other, Keeper::Agent),
                None => endpoint.clone(),
            },
        };
        let version = RemoteRuntimeService::of(&runtime, client_options(config)).version().await;
        match version.as_ref().map(|version| version.runtime_name.as_str()) {
            Ok("containerd") => Keeper::Containerd(runtime.path().to_owned()),
            Ok("cri-o") => Keeper::Crio,
            _ => Keeper::Other,
        }
    }
}

/// Returns what to use in place of a command.
fn instead(command: &str, keeper: &Keeper, own_root: &Path) -> String {
    let own = own_root.display();
    match (keeper, command) {
        (Keeper::Agent(root), _) => format!("`--root {root}` selects the store of that agent"),
        (Keeper::Containerd(_) | Keeper::Crio, "export" | "push" | "save") => {
            format!("`imagelet --root {own} pull IMAGE`, then `imagelet --root {own} {command} IMAGE`")
        }
        (Keeper::Containerd(socket), "tag" | "untag" | "mount" | "import" | "load") => {
            let words = match command {
                "tag" => "tag IMAGE NAME",
                "untag" => "rm NAME",
                "mount" => "mount IMAGE DIR",
                _ => "import FILE",
            };
            let address = match socket.to_str() {
                Some(CTR_SOCKET) => String::new(),
                _ => format!(" -a {}", socket.display()),
            };
            format!("use `ctr{address} -n k8s.io images {words}`")
        }
        (Keeper::Crio, "tag" | "untag" | "mount" | "import" | "load") => {
            let words = match command {
                "tag" => "tag IMAGE NAME",
                "untag" => "untag IMAGE NAME",
                "mount" => "image mount IMAGE",
                _ => "load -i FILE",
            };
            format!("use `podman {words}`, which works on the storage of CRI-O")
        }
        _ => format!("`--root {own}` selects imagelet's own store"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_replacement() {
        let root = Path::new("/var/lib/imagelet");
        let ctr = Keeper::Containerd(CTR_SOCKET.into());
        let k3s = Keeper::Containerd("/run/k3s/containerd/containerd.sock".into());
        for (command, keeper, want) in [
            ("tag", &ctr, "use `ctr -n k8s.io images tag IMAGE NAME`"),
            ("load", &k3s, "use `ctr -a /run/k3s/containerd/containerd.sock -n k8s.io images import FILE`"),
            (
                "push",
                &ctr,
                "`imagelet --root /var/lib/imagelet pull IMAGE`, then `imagelet --root /var/lib/imagelet push IMAGE`",
            ),
            ("untag", &Keeper::Crio, "use `podman untag IMAGE NAME`, which works on the storage of CRI-O"),
            ("gc", &ctr, "`--root /var/lib/imagelet` selects imagelet's own store"),
            ("tag", &Keeper::Other, "`--root /var/lib/imagelet` selects imagelet's own store"),
            ("tag", &Keeper::Agent("/data".to_owned()), "`--root /data` selects the store of that agent"),
        ] {
            assert_eq!(instead(command, keeper, root), want, "{command}");
        }
    }
}
