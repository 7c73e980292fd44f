//! `imagelet fleet`: the commands of people about image sets, the controller, and the manifests that install it.

mod apply;
mod bake;
mod connection;
mod manifests;
mod pause;
mod picture;
mod status;
mod watch;
mod why;

use std::path::Path;
use std::sync::Arc;

use agent::admin::Admin;
use cluster::ClusterClient;
use fleet::controller::{Controller, ControllerMetrics, ControllerOptions, RegistryResolver};
use jiff::Timestamp;
use prometheus_client::registry::Registry;

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
        FleetAction::Install(args) => apply::install(app, args).await,
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
    let metrics = ControllerMetrics::default();
    let server = match app.config.metrics_address {
        Some(address) => {
            let registered = |registry: &mut Registry| {
                metrics.register(registry);
                app.traces.iter().for_each(|traces| traces.register(registry));
            };
            Some(Admin::running(registered).start_metrics(address, &app.stop).await?)
        }
        None => None,
    };
    let options = ControllerOptions {
        namespace,
        identity,
        leader_election: args.leader_election,
        clock: Arc::new(Timestamp::now),
        metrics,
    };
    let registries = registries(&app.config, &app.environment.proxies);
    let resolver = Arc::new(RegistryResolver::new(registries.client()));
    let controller = Controller::new(client.clone(), options, resolver);
    tokio::join!(client.follow_files(&app.stop), controller.run(&app.stop));
    if let Some(server) = server {
        server.stop().await;
    }
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
