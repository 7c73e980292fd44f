//! `imagelet fleet`: the commands of people about image sets, the controller, and the manifests that install it.

mod apply;
mod bake;
mod manifests;
mod pause;
mod picture;
mod status;
mod watch;
mod why;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::ClusterClient;
use cluster::client::Failure as Cause;
use fleet::console::{FleetRequests, RequestError};
use fleet::controller::{Controller, ControllerOptions, RegistryResolver};
use jiff::Timestamp;

use crate::app::App;
use crate::args::{Fleet, FleetAction, FleetController};
use crate::exit::{Code, Failure, Outcome};
use crate::images::registries;
use crate::output::Printer;

/// Runs what needs no configuration.
pub(crate) fn run_without_configuration(printer: Printer, args: &Fleet) -> Option<Outcome> {
    match args.action {
        FleetAction::Manifests => Some(printer.yaml_stream(&fleet::manifests::install())),
        _ => None,
    }
}

pub(super) async fn run(app: &App, args: &Fleet) -> Outcome {
    match &args.action {
        FleetAction::Apply(args) => apply::run(app, args).await,
        FleetAction::Status(args) => status::run(app, args).await,
        FleetAction::Watch(args) => watch::run(app, args).await,
        FleetAction::Why(args) => why::run(app, args).await,
        FleetAction::Pause(args) => pause::run(app, args, true).await,
        FleetAction::Resume(args) => pause::run(app, args, false).await,
        FleetAction::Bake(args) => bake::run(app, args).await,
        FleetAction::Controller(args) => control(app, args).await,
        FleetAction::Manifests => app.printer.yaml_stream(&fleet::manifests::install()),
    }
}

async fn control(app: &App, args: &FleetController) -> Outcome {
    let client = client(app.config.cluster.kubeconfig.as_deref()).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace());
    let identity = args.identity.clone().unwrap_or_else(identity);
    let options = ControllerOptions {
        namespace,
        identity,
        leader_election: args.leader_election,
        clock: Arc::new(Timestamp::now),
    };
    let registries = registries(&app.config, &app.environment.proxies);
    let resolver = Arc::new(RegistryResolver::new(registries.client()));
    let controller = Controller::new(client.clone(), options, resolver);
    tokio::join!(client.follow_files(&app.stop), controller.run(&app.stop));
    Ok(())
}

async fn client(kubeconfig: Option<&Path>) -> Outcome<ClusterClient> {
    let client = match kubeconfig {
        Some(path) => ClusterClient::open(path).await,
        None => ClusterClient::in_cluster(),
    };
    let hint = if kubeconfig.is_none() { " (outside of a pod, give --kubeconfig)" } else { "" };
    client.map_err(|error| Failure::caused(Code::Config, format!("connect to the API server{hint}"), &error))
}

/// Returns a name that no other replica has.
fn identity() -> String {
    let machine = rustix::system::uname();
    let number = (cluster::retry::system_random())();
    format!("{}_{:08x}", machine.nodename().to_string_lossy(), (number.to_bits() >> 20) & 0xffff_ffff)
}

/// Returns the requests of the user: with the kubeconfig of the setting, else the files of `$KUBECONFIG`, else `~/.kube/config`.
async fn requests(app: &App) -> Outcome<FleetRequests> {
    let files = match (&app.config.cluster.kubeconfig, app.environment.kubeconfigs.as_slice()) {
        (Some(path), _) => vec![path.clone()],
        (None, []) => app.environment.home.iter().map(|home| home.join(".kube/config")).collect::<Vec<PathBuf>>(),
        (None, files) => files.to_vec(),
    };
    if !files.iter().any(|path| path.exists()) {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        let line = format!("no kubeconfig: {} does not exist (--kubeconfig names another one)", names.join(", "));
        return Err(Failure::new(Code::Config, line));
    }
    Ok(FleetRequests::new(ClusterClient::open_merged(&files).await?))
}

/// Words a failed request.
fn failed(error: &RequestError) -> Failure {
    if error.is_not_installed() {
        let hint = "the kinds of a fleet are not installed: `kubectl apply -f deploy/fleet/install.yaml`";
        return Failure::failed(format!("{error} ({hint})"));
    }
    let code = match error.failure() {
        Cause::Forbidden | Cause::Unauthorized => Code::NotPermitted,
        Cause::Unavailable | Cause::TooManyRequests => Code::Unreachable,
        _ => Code::Failed,
    };
    Failure::new(code, error.to_string())
}

/// Returns the failure for a set that does not exist.
async fn no_set(requests: &FleetRequests, name: &str) -> Failure {
    let sets = requests.sets().await.unwrap_or_default();
    let names = sets.iter().filter_map(|set| set.metadata.name.as_deref());
    let hint = base::nearest(name, names)
        .map_or_else(|| "`imagelet fleet status` lists the sets".to_owned(), |near| format!("did you mean {near}?"));
    Failure::failed(format!("there is no ImageSet {name}; {hint}"))
}
