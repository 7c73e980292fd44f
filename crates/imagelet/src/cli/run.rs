//! `imagelet run`: pods from manifests, kept as they should be until a signal comes. In the foreground:
//! [`super::run_once`]; told and not done: [`super::run_dry`].

use agent::admin::Admin;
use agent::node::lock::PodsLock;
use agent::node::notify::Notify;
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::args::Run;
use crate::exit::Outcome;
use crate::wiring::cluster_pods::ClusterPods;
use crate::wiring::{cluster, kubelet_api, node};

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    if args.dry_run {
        return super::run_dry::run(app, args).await;
    }
    if !args.files.is_empty() {
        return super::run_once::run(app, args).await;
    }
    let _lock = PodsLock::take(&app.config.root).await?;
    let mut sources = node::sources(&app.config, &args.manifests);
    let cluster = cluster::open(app).await?;
    let pods = cluster.as_ref().map(|cluster| ClusterPods::new(cluster.client.clone(), &app.config));
    sources.extend(pods.as_ref().map(ClusterPods::source));
    let server = pods.as_ref().map(ClusterPods::server_side);
    let mut reading = node::reading(&app.config, true);
    if let Some(cluster) = &cluster {
        cluster.records(&mut reading);
    }
    let made = node::open(app, reading, sources, server).await;
    let node = match made {
        // It was asked to end while it waited for the runtime.
        Err(_) if app.stop.is_cancelled() => return Ok(()),
        made => made?,
    };
    let client = cluster.as_ref().map(|cluster| cluster.client.clone());
    let in_cluster = match cluster {
        Some(cluster) => Some(cluster.node(app, &node).await?),
        None => None,
    };
    let managed = app.managed_already();
    let registered = |registry: &mut Registry| {
        node.register(registry);
        if let Some(managed) = managed {
            managed.register(registry);
        }
        app.traces.iter().for_each(|traces| traces.register(registry));
    };
    let mut admin = Admin::new(registered, app.service().await?);
    admin.engine = app.images().await?.own_engine();
    admin.collection = Some(node.collection.clone());
    admin.pods = Some(node.board());
    admin.manager = managed.map(|managed| managed.manager.clone());
    let admin = admin.start(&node::admin_address(&app.config), &app.stop).await?;
    let port = match &client {
        Some(client) => kubelet_api::open(app, client, &node, admin.metrics()).await?,
        None => None,
    };
    let notify = Notify::new(app.environment.notify_socket.as_deref());
    notify.ready("running pods");
    let ending = async {
        app.stop.cancelled().await;
        notify.stopping("ending; containers go on");
        tracing::info!("ending; containers go on");
    };
    let tending = app.images().await?.tend(app.stop.clone());
    let clustered = async {
        match &in_cluster {
            Some(node) => node.keep(&app.stop).await,
            None => Ok(()),
        }
    };
    let answering = async {
        if let Some(port) = port {
            port.run(&app.stop).await;
        }
    };
    let of_server = async {
        if let Some(pods) = &pods {
            pods.keep(&node, &app.stop).await;
        }
    };
    let background = async { tokio::join!(ending, tending, of_server, answering) };
    let ((), _, ended) = tokio::join!(node.keep(&app.stop), background, clustered);
    admin.stop().await;
    ended
}
