//! `imagelet serve`: the images on a CRI socket, ours or those of a runtime behind us.

use std::sync::Arc;

use agent::admin::{Admin, ListenError};
use cri_grpc::Endpoint;
use cri_grpc::server::{self, ServerOptions};
use image_manager::{Clock, Instrumented, LogRecorder, Metrics};
use prometheus_client::registry::Registry;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::args::Serve;
use crate::endpoint::{admin_address, connect_runtime, parse_endpoint};
use crate::exit::{Code, Failure, Outcome, chain};
use crate::images::Images;

pub(super) async fn run(app: &App, args: &Serve) -> Outcome {
    let endpoint = Endpoint::parse(&args.listen).map_err(|e| Failure::usage(format!("--listen: {}", chain(&e))))?;
    if let Some(warning) = endpoint.warning() {
        tracing::warn!("{warning}");
    }
    // First the root, then the socket: whoever has the root may replace the socket of one who died.
    let images = app.images_to_serve(endpoint.path().to_owned()).await?;
    app.note_unprivileged().await?;
    if let Some(behind) = images.endpoint()
        && behind.path() == endpoint.path()
    {
        return Err(Failure::usage(format!("--listen: {endpoint} is the endpoint that the images come from")));
    }
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
    let service = Arc::new(service);
    // Commands that find the root held are served alike.
    images.answer_with(Arc::clone(&service) as _);
    let mut options = ServerOptions::new(service, env!("CARGO_PKG_VERSION"));
    if let Some(text) = &app.config.container_runtime_endpoint {
        options.runtime = Some(connect_runtime(&app.config, &parse_endpoint(text)?).await?);
    }
    let bound = server::bind(&endpoint);
    let listener = bound.map_err(|error| ListenError::new(&endpoint, error))?;
    let registered = |registry: &mut Registry| {
        metrics.register(registry);
        collection.register(registry);
    };
    let mut admin = Admin::new(registered, images.service());
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
    tasks.close();
    app.printer.lines([endpoint.to_string()])?;
    let served = server::serve_on(listener, options, app.stop.clone()).await;
    stop.cancel();
    admin.stop().await;
    tasks.wait().await;
    served.map_err(|error| Failure::caused(Code::Failed, "serve", &error))
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
