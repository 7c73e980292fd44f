//! `imagelet run`: keeps the pods of manifests running until a signal arrives, and with `--listen` also serves images on a CRI socket. In
//! the foreground: [`super::run_once`]; dry run: [`super::run_dry`].

use std::time::Duration;

use agent::admin::Admin;
use agent::node::lock::PodsLock;
use agent::node::notify::Notify;
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::args::Run;
use crate::exit::{Failure, Outcome};
use crate::wiring::cluster_pods::ClusterPods;
use crate::wiring::reload::{ReloadSignal, Users};
use crate::wiring::serving::{self, Listening};
use crate::wiring::{cluster, kubelet_api, node, status_page, watchdog};

/// How long active pulls may take at the end of the process. The next process continues with the fetched data.
const LAST_PULLS: Duration = Duration::from_secs(3);

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    if args.dry_run {
        return super::run_dry::run(app, args).await;
    }
    if !args.files.is_empty() {
        return super::run_once::run(app, args).await;
    }
    let reload = ReloadSignal::listen()?;
    let listening = Listening::of(app)?;
    let _lock = PodsLock::take(&app.config.root).await?;
    let mut sources = node::sources(&app.config, &args.manifests);
    let cluster = cluster::open(app).await?;
    let pods = cluster.as_ref().map(|cluster| ClusterPods::new(cluster, &app.config));
    sources.extend(pods.as_ref().map(ClusterPods::source));
    let server = pods.as_ref().map(ClusterPods::server_side);
    if let Some(pods) = &pods {
        app.gets_tokens(pods.tokens());
    }
    let mut reading = node::reading(&app.config, true);
    if let Some(cluster) = &cluster {
        cluster.records(&mut reading);
    }
    let made = async {
        let waits = node::admin_address(&app.config);
        let runtime = match &listening {
            Some(listening) => {
                let runtime = listening.runtime(app, &waits).await?;
                listening.images(app, &waits).await?;
                runtime
            }
            None => None,
        };
        Ok::<_, Failure>((node::open(app, reading, sources, server).await?, runtime))
    };
    let (node, runtime) = match made.await {
        // It was asked to end while it waited for the runtime.
        Err(_) if app.stop.is_cancelled() => return Ok(()),
        made => made?,
    };
    let client = cluster.as_ref().map(|cluster| cluster.client.clone());
    let in_cluster = match cluster {
        Some(cluster) => Some(cluster.node(app, &node).await?),
        None => None,
    };
    let images = app.images().await?;
    let managed = app.managed_already();
    let cri = match (listening, managed) {
        (Some(listening), Some(managed)) => {
            let collects = app.config.gc.enabled.unwrap_or(true);
            let service = serving::service(images, &node.collection, managed.metrics(), &app.board, collects);
            Some(listening.open(service.to_clients, runtime)?)
        }
        _ => None,
    };
    let registered = |registry: &mut Registry| {
        node.register(registry);
        if let Some(managed) = managed {
            managed.register(registry);
        }
        app.traces.iter().for_each(|traces| traces.register(registry));
    };
    let mut admin = Admin::new(registered, app.service().await?);
    app.open_to_requests(&mut admin).await?;
    admin.collection = Some(node.collection.clone());
    admin.pods = Some(node.board());
    admin.manager = managed.map(|managed| managed.manager.clone());
    let admin = admin.start(&node::admin_address(&app.config), &app.stop).await?;
    let port = match &client {
        Some(client) => kubelet_api::open(app, client, &node, admin.metrics()).await?,
        None => None,
    };
    let page =
        status_page::open(app, &node.collection, managed.map(|managed| managed.manager.clone()), Some(&node)).await?;
    let notify = Notify::new(app.environment.notify_socket.as_deref());
    let status = match &cri {
        Some(cri) => format!("running pods, and serving images on {}", cri.endpoint()),
        None => "running pods".to_owned(),
    };
    if let Some(cri) = &cri {
        app.printer.lines([cri.endpoint().to_string()])?;
    }
    notify.ready(&status);
    let ending = async {
        app.stop.cancelled().await;
        notify.stopping("ending; containers go on");
        tracing::info!("ending; containers go on");
        if let Some(managed) = managed {
            managed.manager.drain(LAST_PULLS).await;
        }
    };
    let tending = images.tend(app.stop.clone());
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
    let serving = async {
        match cri {
            Some(cri) => {
                let served = cri.run(app).await;
                // If the server ends by itself, everything ends.
                app.stop.cancel();
                served
            }
            None => Ok(()),
        }
    };
    let users = Users { managed, records: managed.map(|managed| managed.records()), collection: &node.collection };
    let since_turn = || node.agent.since_turn();
    let of_manager = async {
        tokio::join!(
            reload.keep((app, &app.stop), users, &notify, &status),
            watchdog::keep(app.environment.watchdog, &app.stop, &notify, Some(&since_turn))
        )
    };
    let showing = status_page::run(page, &app.stop);
    let background = async { tokio::join!(ending, tending, of_server, answering, of_manager, showing) };
    let ((), _, ended, served) = tokio::join!(node.keep(&app.stop), background, clustered, serving);
    admin.stop().await;
    ended.and(served)
}
