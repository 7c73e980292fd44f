//! `imagelet run`: keeps the pods of manifests running until a signal arrives, and with `--listen` also serves images on a CRI socket. In
//! the foreground: [`super::run_foreground`]; dry run: [`super::run_dry`].

use std::time::Duration;

use ::cluster::ClusterClient;
use ::cluster::kubelet_api::KubeletApi;
use agent::admin::{Admin, AdminServer};
use agent::node::Node;
use agent::node::lock::PodsLock;
use agent::node::notify::Notify;
use agent::page::StatusPage;
use cri_grpc::client::RuntimePassthrough;
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::args::Run;
use crate::exit::{Failure, Outcome};
use crate::images::Images;
use crate::manager::Managed;
use crate::wiring::cluster::ClusterNode;
use crate::wiring::cluster_pods::ClusterPods;
use crate::wiring::image_sets::{self, ImageSets};
use crate::wiring::reload::{ReloadSignal, Users};
use crate::wiring::serving::{self, CriServer, Listening};
use crate::wiring::{cluster, image_set_list, kubelet_api, node, status_page, watchdog};

/// Time that active pulls may take at the end of the process. The next process continues with the fetched data.
const LAST_PULLS: Duration = Duration::from_secs(3);

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    if args.dry_run {
        return super::run_dry::run(app, args).await;
    }
    if !args.files.is_empty() {
        return super::run_foreground::run(app, args).await;
    }
    let reload = ReloadSignal::listen()?;
    match OpenedNode::open(app, args).await? {
        Some(opened) => Services::start(app, opened).await?.run(app, reload).await,
        None => Ok(()),
    }
}

/// The node with its pods, before anything answers other processes.
struct OpenedNode {
    node: Node,
    cluster: Option<InCluster>,
    /// The endpoint to serve images on, and the runtime to which its other calls go.
    cri: Option<(Listening, Option<RuntimePassthrough>)>,
    _lock: PodsLock,
}

/// The parts of a node that has an API server.
struct InCluster {
    client: ClusterClient,
    pods: ClusterPods,
    node: ClusterNode,
}

impl OpenedNode {
    /// Opens the node; `None` if the process is asked to end while it waits for the runtime.
    async fn open(app: &App, args: &Run) -> Outcome<Option<Self>> {
        let listening = Listening::of(app)?;
        let lock = PodsLock::take(&app.config.root).await?;
        let mut sources = node::sources(&app.config, &args.manifests);
        let cluster = cluster::open(app).await?;
        let pods = cluster.as_ref().map(|cluster| ClusterPods::new(cluster, &app.config));
        let mut reading = node::reading(&app.config, true);
        if let (Some(cluster), Some(pods)) = (&cluster, &pods) {
            sources.push(pods.source());
            app.gets_tokens(pods.tokens());
            cluster.records(&mut reading);
        }
        let opened = async {
            let waits = node::admin_address(&app.config);
            let cri = match listening {
                Some(listening) => {
                    let runtime = listening.runtime(app, &waits).await?;
                    listening.images(app, &waits).await?;
                    Some((listening, runtime))
                }
                None => None,
            };
            let server = pods.as_ref().map(ClusterPods::server_side);
            Ok::<_, Failure>((node::open(app, reading, sources, server).await?, cri))
        };
        let (node, cri) = match opened.await {
            Err(_) if app.stop.is_cancelled() => return Ok(None),
            opened => opened?,
        };
        let cluster = match (cluster, pods) {
            (Some(cluster), Some(pods)) => {
                let client = cluster.client.clone();
                Some(InCluster { client, pods, node: cluster.node(app, &node).await? })
            }
            _ => None,
        };
        Ok(Some(Self { node, cluster, cri, _lock: lock }))
    }
}

/// The node and everything that answers other processes.
struct Services<'a> {
    images: &'a Images,
    managed: Option<&'a Managed>,
    cri: Option<CriServer>,
    admin: AdminServer,
    port: Option<KubeletApi>,
    page: Option<StatusPage>,
    cluster: Option<InCluster>,
    image_sets: Option<ImageSets>,
    node: Node,
    _lock: PodsLock,
}

impl<'a> Services<'a> {
    /// Opens all sockets and ports.
    async fn start(app: &'a App, opened: OpenedNode) -> Outcome<Self> {
        let OpenedNode { node, cluster, cri, _lock } = opened;
        let images = app.images().await?;
        let managed = app.managed_already();
        let cri = match (cri, managed) {
            (Some((listening, runtime)), Some(managed)) => {
                let collects = app.config.gc.enabled.unwrap_or(true);
                let service = serving::service(images, &node.collection, managed.metrics(), &app.board, collects);
                Some(listening.open(app, service.to_clients, runtime)?)
            }
            _ => None,
        };
        let set_board = image_sets::board(&app.config);
        let registered = |registry: &mut Registry| {
            set_board.iter().for_each(|board| board.register(registry));
            node.register(registry);
            if let Some(managed) = managed {
                managed.register(registry);
            }
            app.traces.iter().for_each(|traces| traces.register(registry));
        };
        let manager = managed.map(|managed| managed.manager.clone());
        let mut admin = Admin::new(registered, app.service().await?);
        app.open_to_requests(&mut admin).await?;
        admin.collection = Some(node.collection.clone());
        admin.pods = Some(node.board());
        admin.manager.clone_from(&manager);
        let listed_sets = set_board.as_ref().map(image_set_list::source);
        admin.image_sets.clone_from(&listed_sets);
        let admin = admin.start(&node::admin_address(&app.config), &app.stop).await?;
        let port = match &cluster {
            Some(cluster) => kubelet_api::open(app, &cluster.client, &node, admin.metrics()).await?,
            None => None,
        };
        let page = status_page::open(app, &node.collection, manager, Some(&node), listed_sets).await?;
        let collects = app.config.gc.enabled.unwrap_or(true);
        let image_sets = image_sets::open(app, images, &node.collection, collects, set_board).await?;
        Ok(Self { images, managed, cri, admin, port, page, cluster, image_sets, node, _lock })
    }

    /// Reports that the node runs, and keeps it running until the process is asked to end or a part fails.
    async fn run(self, app: &App, reload: ReloadSignal) -> Outcome {
        let Self { images, managed, cri, admin, port, page, cluster, image_sets, node, _lock } = self;
        let notify = Notify::new(app.environment.notify_socket.as_deref());
        let status = match &cri {
            Some(cri) => format!("running pods, and serving images on {}", cri.endpoint()),
            None => "running pods".to_owned(),
        };
        if let Some(cri) = &cri {
            app.printer.lines([cri.endpoint().to_string()])?;
        }
        notify.ready(&status);
        let end_pulls = async {
            app.stop.cancelled().await;
            notify.stopping("ending; containers go on");
            tracing::info!("ending; containers go on");
            if let Some(managed) = managed {
                managed.manager.drain(LAST_PULLS).await;
            }
        };
        let of_sets = image_sets.as_ref().map(ImageSets::managed);
        let follow_image_sets = async {
            if let Some(image_sets) = image_sets {
                image_sets.run(&app.stop).await;
            }
        };
        let serve_port = async {
            if let Some(port) = port {
                port.run(&app.stop).await;
            }
        };
        let keep_in_cluster = async {
            match &cluster {
                Some(cluster) => tokio::join!(cluster.node.keep(&app.stop), cluster.pods.keep(&node, &app.stop)).0,
                None => Ok(()),
            }
        };
        let serve_images = async {
            let Some(cri) = cri else { return Ok(()) };
            let served = cri.run(app).await;
            // If the server ends by itself, everything ends.
            app.stop.cancel();
            served
        };
        let managers = managed.into_iter().chain(of_sets.as_deref()).collect();
        let users = Users { managed: managers, records: managed.map(Managed::records), collection: &node.collection };
        let since_turn = || node.agent.since_turn();
        let ((), (), (), (), (), (), ended, served) = tokio::join!(
            node.keep(&app.stop),
            end_pulls,
            images.tend(app.stop.clone()),
            serve_port,
            reload.keep((app, &app.stop), users, &notify, &status),
            async {
                tokio::join!(
                    watchdog::keep(app.environment.watchdog, &app.stop, &notify, Some(&since_turn)),
                    status_page::run(page, &app.stop),
                    follow_image_sets
                );
            },
            keep_in_cluster,
            serve_images,
        );
        admin.stop().await;
        ended.and(served)
    }
}
