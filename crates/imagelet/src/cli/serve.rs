//! `imagelet serve`: the images on a CRI socket, ours or those of a runtime behind us.

use std::sync::Arc;

use agent::admin::{Admin, ListenError};
use agent::collection::Logged;
use agent::node::notify::Notify;
use cri_grpc::Endpoint;
use cri_grpc::server::{self, Listener, ServerOptions};
use image_manager::{Clock, Instrumented, LogRecorder, Metrics};
use prometheus_client::registry::Registry;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::args::Serve;
use crate::endpoint::{admin_address, connect_passthrough, parse_endpoint};
use crate::exit::{Code, Failure, Outcome, chain};
use crate::images::Images;
use crate::wiring::waiting::until_there;

pub(super) async fn run(app: &App, args: &Serve) -> Outcome {
    match serve(app, args).await {
        // It was asked to end while it waited for the runtime.
        Err(_) if app.stop.is_cancelled() => Ok(()),
        outcome => outcome,
    }
}

async fn serve(app: &App, args: &Serve) -> Outcome {
    let (endpoint, passed) = listened(app, args)?;
    if let Some(warning) = endpoint.warning() {
        tracing::warn!("{warning}");
    }
    let waits = admin_address(&app.config);
    let mut runtime = None;
    if let Some(text) = &app.config.container_runtime_endpoint {
        let behind = parse_endpoint(text)?;
        refuse_itself(&endpoint, &behind, "the containers are behind")?;
        let connect = async || connect_passthrough(&app.config, &behind).await;
        runtime = Some(until_there(app, Some(&waits), connect).await?);
    }
    // First the root, then the socket: whoever has the root may replace the socket of one who died.
    let open = async || app.images_to_serve(endpoint.path().to_owned()).await;
    let images = until_there(app, Some(&waits), open).await?;
    app.note_unprivileged().await?;
    if let Some(behind) = images.endpoint() {
        refuse_itself(&endpoint, behind, "the images come from")?;
    }
    note_containers(app, images, &endpoint);
    let collects = collects(app, images)?;
    let metrics = Metrics::new();
    let clock: Clock = Arc::new(tokio::time::Instant::now);
    let counted = |metrics: &Arc<Metrics>| Instrumented::new(images.service(), Arc::clone(metrics), Arc::clone(&clock));
    let (service, records) = (Arc::new(counted(&metrics)), app.records_to_prune().await);
    let collection = Arc::new(
        app.open_collection(images, service, Some(Arc::clone(&metrics)), Arc::new(LogRecorder), records).await?,
    );
    if collects {
        collection.sees()?;
    }
    // Whoever asks here decides for himself: what there is to count is the service.
    let service = collection.served(Arc::new(counted(&metrics).with_pulls()), collects);
    let service = Arc::new(Logged::new(Arc::new(service), Arc::clone(&clock)));
    // Commands that find the root held are served alike.
    images.answer_with(Arc::clone(&service) as _);
    let options = ServerOptions { runtime, ..ServerOptions::new(service, env!("CARGO_PKG_VERSION")) };
    let listener = match passed {
        Some(listener) => listener,
        None => server::bind(&endpoint).map_err(|error| ListenError::new(&endpoint, error))?,
    };
    let registered = |registry: &mut Registry| {
        metrics.register(registry);
        collection.register(registry);
        app.traces.iter().for_each(|traces| traces.register(registry));
    };
    let mut admin = Admin::new(registered, images.service());
    admin.beside_a_kubelet = images.endpoint().is_some();
    admin.engine = images.own_engine();
    admin.collection = Some(Arc::clone(&collection));
    let admin = admin.start(&admin_address(&app.config), &app.stop).await?;
    let (tasks, stop) = (TaskTracker::new(), app.stop.child_token());
    let (stopped, knows) = (stop.clone(), collection.knows_containers());
    tasks.spawn(async move {
        match (collects, knows) {
            (true, _) => collection.run(&stopped).await,
            (false, true) => collection.watch(&stopped).await,
            (false, false) => {}
        }
    });
    tasks.spawn(images.tend(stop.clone()));
    tasks.close();
    app.printer.lines([endpoint.to_string()])?;
    let notify = Notify::new(app.environment.notify_socket.as_deref());
    notify.ready(&format!("serving images on {endpoint}"));
    let remains = listener.remains();
    let ending = async {
        app.stop.cancelled().await;
        // A service manager ends a service so, and starts the next one.
        if app.signals.code() == Code::Terminated {
            remains.leave();
        }
        notify.stopping("ending; long calls go on until then");
        std::future::pending().await
    };
    let served = tokio::select! {
        biased;
        served = ending => served,
        served = server::serve_on(listener, options, app.stop.clone()) => served,
    };
    stop.cancel();
    admin.stop().await;
    tasks.wait().await;
    served.map_err(|error| Failure::caused(Code::Failed, "serve", &error))
}

/// Where to listen: the endpoint of the command line, and the socket of it that systemd passed, if it did.
fn listened(app: &App, args: &Serve) -> Outcome<(Endpoint, Option<Listener>)> {
    let parse = |text: &String| Endpoint::parse(text).map_err(|e| Failure::usage(format!("--listen: {}", chain(&e))));
    let wanted = args.listen.as_ref().map(parse).transpose()?;
    let passed = server::inherited(wanted.as_ref(), app.passed_sockets())
        .map_err(|error| Failure::caused(Code::Config, "socket of systemd", &error))?;
    match (wanted, passed) {
        (Some(wanted), passed) => Ok((wanted, passed)),
        (None, Some(passed)) => Ok((passed.endpoint().clone(), Some(passed))),
        (None, None) => Err(Failure::usage(
            "--listen ENDPOINT is needed: systemd passes no socket ($LISTEN_FDS), and there is no default",
        )),
    }
}

fn refuse_itself(endpoint: &Endpoint, behind: &Endpoint, what: &str) -> Outcome {
    if behind.path() == endpoint.path() {
        return Err(Failure::usage(format!("--listen: {endpoint} is the endpoint that {what}")));
    }
    Ok(())
}

/// Says at once what a kubelet in front would otherwise learn from each pod.
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

/// Returns true if this agent collects by itself. It must not guess what is in use.
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
