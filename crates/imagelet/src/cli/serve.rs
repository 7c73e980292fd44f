//! `imagelet serve`: serves images on a CRI socket, those of our store or those of a runtime behind it.

use std::sync::Arc;

use agent::admin::Admin;
use agent::node::notify::Notify;
use cri_grpc::Endpoint;
use image_manager::{Clock, Instrumented, LogRecorder, Metrics};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::endpoint::admin_address;
use crate::exit::{Code, Failure, Outcome};
use crate::images::Images;
use crate::wiring::image_sets::{self, ImageSets};
use crate::wiring::reload::{ReloadSignal, Users};
use crate::wiring::serving::{self, Listening, ServedImages};
use crate::wiring::{image_set_list, status_page, watchdog};

pub(super) async fn run(app: &App) -> Outcome {
    match serve(app).await {
        // It was asked to end while it waited for the runtime.
        Err(_) if app.stop.is_cancelled() => Ok(()),
        outcome => outcome,
    }
}

async fn serve(app: &App) -> Outcome {
    let listening = Listening::of(app)?.ok_or_else(|| {
        Failure::usage("--listen ENDPOINT is needed: systemd passes no socket ($LISTEN_FDS), and there is no default")
    })?;
    let reload = ReloadSignal::listen()?;
    let waits = admin_address(&app.config);
    let runtime = listening.runtime(app, &waits).await?;
    let images = listening.images(app, &waits).await?;
    app.note_unprivileged().await?;
    note_containers(app, images, &listening.endpoint);
    let collects = collects(app, images)?;
    let metrics = Metrics::new();
    let clock: Clock = Arc::new(tokio::time::Instant::now);
    let counted = Arc::new(Instrumented::new(images.service(), Arc::clone(&metrics), clock));
    let records = app.records_to_prune().await;
    let collection = app
        .open_collection(images, counted, Some(Arc::clone(&metrics)), Arc::new(LogRecorder), records.clone())
        .await?;
    let collection = Arc::new(collection);
    if collects {
        collection.sees()?;
    }
    let ServedImages { to_clients, to_commands } =
        serving::service(images, &collection, &metrics, &app.board, collects);
    images.answer_with(Arc::clone(&to_commands));
    let server = listening.open(app, to_clients, runtime)?;
    let set_board = image_sets::board(&app.config);
    let registered = |registry: &mut Registry| {
        metrics.register(registry);
        set_board.iter().for_each(|board| board.register(registry));
        collection.register(registry);
        app.network.register(registry);
        app.traces.iter().for_each(|traces| traces.register(registry));
    };
    let mut admin = Admin::new(registered, images.service());
    // A kubelet of this node pulls through this process and runs its pods on that runtime.
    let next_to_kubelet = images.endpoint().is_some() || app.config.container_runtime_endpoint.is_some();
    admin.own_prefix = app.config.metrics_prefix.is_own(next_to_kubelet);
    let listed_sets = set_board.as_ref().map(image_set_list::source);
    admin.image_sets.clone_from(&listed_sets);
    admin.configuration = Some(app.configuration());
    admin.engine = images.own_engine();
    admin.pulls = Some(app.board.clone());
    *admin.images.lock() = Some(to_commands);
    admin.collection = Some(Arc::clone(&collection));
    let admin = admin.start(&admin_address(&app.config), &app.stop).await?;
    let page = status_page::open(app, &collection, None, None, listed_sets).await?;
    let sets = image_sets::open(app, images, &collection, collects, set_board).await?;
    let (tasks, stop) = (TaskTracker::new(), app.stop.child_token());
    let shown_until = stop.clone();
    tasks.spawn(async move { status_page::run(page, &shown_until).await });
    let (stopped, knows, collector) = (stop.clone(), collection.knows_containers(), Arc::clone(&collection));
    tasks.spawn(async move {
        match (collects, knows) {
            (true, _) => collector.run(&stopped).await,
            (false, true) => collector.watch(&stopped).await,
            (false, false) => {}
        }
    });
    let (pinned_until, pins) = (stop.clone(), Arc::clone(&collection));
    tasks.spawn(async move { pins.keep_pins_in_runtime(&pinned_until).await });
    let of_sets = sets.as_ref().map(ImageSets::managed);
    if let Some(sets) = sets {
        let followed_until = stop.clone();
        tasks.spawn(async move { sets.run(&followed_until).await });
    }
    tasks.spawn(images.tend(stop.clone()));
    tasks.close();
    app.printer.lines([server.endpoint().to_string()])?;
    let notify = Notify::new(app.environment.notify_socket.as_deref());
    let status = format!("serving images on {}", server.endpoint());
    notify.ready(&status);
    // If the server ends by itself, the reload and the watchdog end as well.
    let ended = CancellationToken::new();
    let ending = async {
        app.stop.cancelled().await;
        notify.stopping("ending; long calls go on until then");
    };
    let users = Users { managed: of_sets.as_deref().into_iter().collect(), records, collection: &collection };
    let background = async {
        let reloading = reload.keep((app, &ended), users, &notify, &status);
        let watching = watchdog::keep(app.environment.watchdog, &ended, &notify, None);
        tokio::join!(ended.run_until_cancelled(ending), reloading, watching)
    };
    let serving = async {
        let served = server.run(app).await;
        ended.cancel();
        served
    };
    let (served, _) = tokio::join!(serving, background);
    stop.cancel();
    admin.stop().await;
    tasks.wait().await;
    served
}

/// Warns at startup; a kubelet in front would otherwise report the problem only for each pod.
fn note_containers(app: &App, images: &Images, endpoint: &Endpoint) {
    if images.endpoint().is_some() {
        return;
    }
    let cannot = "a kubelet in front cannot start containers";
    let why = match &app.config.container_runtime_endpoint {
        None => "no container runtime is behind it".to_owned(),
        Some(runtime) => format!("{runtime} does not see these images"),
    };
    tracing::warn!(
        "{endpoint} serves the images of {}: {why}, so {cannot}. For a kubelet, serve the images of its runtime: -i and -r with \
         the runtime's endpoint",
        app.config.root.display()
    );
}

/// Returns true if this agent collects by itself. It must not guess which images are in use.
fn collects(app: &App, images: &Images) -> Outcome<bool> {
    let enabled = app.config.gc.enabled.unwrap_or(false);
    if enabled && images.endpoint().is_none() && app.config.container_runtime_endpoint.is_none() {
        return Err(Failure::new(
            Code::Config,
            "imageGC.enabled is true and containerRuntimeEndpoint is not set: it says who runs the containers whose images \
             must stay",
        ));
    }
    Ok(enabled)
}
