//! Images on a CRI socket, as a part of a long-running process: the endpoint, the service that answers on it, and the server until its end.
//! Decides nothing about images. Called by `serve`, and by `run` with `--listen`.

use std::sync::Arc;

use agent::admin::{AdminAddress, ListenError};
use agent::collection::{Collection, Logged};
use cri_api::ImageService;
use cri_grpc::Endpoint;
use cri_grpc::client::RuntimePassthrough;
use cri_grpc::server::{self, Listener, ServerOptions, SocketRemains};
use image_manager::{Clock, Instrumented, Metrics, PullBoard, WantedBy, WatchedPulls};

use super::waiting::until_available;
use crate::app::App;
use crate::endpoint::{admin_socket, connect_passthrough, parse_endpoint};
use crate::exit::{Code, Failure, Outcome};
use crate::images::Images;

/// The endpoint to serve images on, and its socket, if systemd passed one.
pub(crate) struct Listening {
    pub(crate) endpoint: Endpoint,
    passed: Option<Listener>,
}

impl Listening {
    /// Returns the configured endpoint, or the socket that systemd passes; `None`: images are not served.
    pub(crate) fn of(app: &App) -> Outcome<Option<Self>> {
        let wanted = app.config.listen.as_deref().map(parse_endpoint).transpose()?;
        let passed = server::inherited(wanted.as_ref(), app.passed_sockets())
            .map_err(|error| Failure::caused(Code::Config, "socket of systemd", &error))?;
        let Some(endpoint) = wanted.or_else(|| passed.as_ref().map(|passed| passed.endpoint().clone())) else {
            return Ok(None);
        };
        if let Some(warning) = endpoint.warning() {
            tracing::warn!("{warning}");
        }
        Ok(Some(Self { endpoint, passed }))
    }

    /// Connects to the runtime to which calls for pods are forwarded.
    pub(crate) async fn runtime(&self, app: &App, waits: &AdminAddress) -> Outcome<Option<RuntimePassthrough>> {
        let Some(text) = &app.config.container_runtime_endpoint else { return Ok(None) };
        let behind = parse_endpoint(text)?;
        self.refuse(&behind, "the containers are behind")?;
        let connect = async || connect_passthrough(&app.config, &behind).await;
        until_available(app, Some(waits), connect).await.map(Some)
    }

    /// Opens the images to serve: first the root, then the socket, since only the owner of the root may replace the socket of a dead
    /// process.
    pub(crate) async fn images<'a>(&self, app: &'a App, waits: &AdminAddress) -> Outcome<&'a Images> {
        let open = async || app.images_to_serve(self.endpoint.path().to_owned()).await;
        let images = until_available(app, Some(waits), open).await?;
        if let Some(behind) = images.endpoint() {
            self.refuse(behind, "the images come from")?;
        }
        Ok(images)
    }

    fn refuse(&self, behind: &Endpoint, what: &str) -> Outcome {
        if behind.path() == self.endpoint.path() {
            return Err(Failure::usage(format!("--listen: {} is the endpoint that {what}", self.endpoint)));
        }
        Ok(())
    }

    /// Listens. Calls wait until [`CriServer::run`] answers them.
    pub(crate) fn open(
        self,
        app: &App,
        service: Arc<dyn ImageService>,
        runtime: Option<RuntimePassthrough>,
    ) -> Outcome<CriServer> {
        let listener = match self.passed {
            Some(listener) => listener,
            None => server::bind(&self.endpoint).map_err(|error| ListenError::new(&self.endpoint, error))?,
        };
        let admin_socket = Some(admin_socket(&app.config));
        let options = ServerOptions { runtime, admin_socket, ..ServerOptions::new(service, env!("CARGO_PKG_VERSION")) };
        Ok(CriServer { endpoint: self.endpoint, remains: listener.remains(), listener, options })
    }
}

/// The image services for other processes. Clients make their own pull decisions, so only calls of the service are counted.
pub(crate) struct ServedImages {
    /// For clients of the CRI socket.
    pub(crate) to_clients: Arc<dyn ImageService>,
    /// For commands that find the root held by this process.
    pub(crate) to_commands: Arc<dyn ImageService>,
}

/// Returns the image services for other processes, counted, logged, and shown on the board.
pub(crate) fn service(
    images: &Images,
    collection: &Collection,
    metrics: &Arc<Metrics>,
    board: &PullBoard,
    collects: bool,
) -> ServedImages {
    let clock: Clock = Arc::new(tokio::time::Instant::now);
    let counted = Instrumented::new(images.service(), Arc::clone(metrics), Arc::clone(&clock)).with_pulls();
    let served = collection.served(Arc::new(counted), collects);
    let served: Arc<dyn ImageService> = Arc::new(served);
    let watched = |by: WantedBy| -> Arc<dyn ImageService> {
        let watched = WatchedPulls::new(Arc::clone(&served), board.clone(), by);
        Arc::new(Logged::new(Arc::new(watched), Arc::clone(&clock)))
    };
    ServedImages { to_clients: images.for_clients(watched(WantedBy::Client)), to_commands: watched(WantedBy::Command) }
}

/// A socket on which images are served.
pub(crate) struct CriServer {
    endpoint: Endpoint,
    listener: Listener,
    remains: SocketRemains,
    options: ServerOptions,
}

impl CriServer {
    /// Returns the endpoint, for messages.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Serves until the process is asked to end, and long calls have ended or their time is over.
    pub(crate) async fn run(self, app: &App) -> Outcome {
        let Self { endpoint: _, listener, remains, options } = self;
        let ending = async {
            app.stop.cancelled().await;
            // A service manager stops a service by SIGTERM, and the next process takes over the socket.
            if app.signals.code() == Code::Terminated {
                remains.leave();
            }
            std::future::pending().await
        };
        let served = tokio::select! {
            biased;
            served = ending => served,
            served = server::serve_on(listener, options, app.stop.clone()) => served,
        };
        served.map_err(|error| Failure::caused(Code::Failed, "serve", &error))
    }
}
