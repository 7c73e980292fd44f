//! The wait of a long-running process for a container runtime that is not up yet, as after a boot, which does not order the starts of
//! services. Called by `run` and `serve`.

use std::time::Duration;

use agent::admin::{Admin, AdminAddress, AdminServer};
use agent::node::notify::Notify;

use crate::app::App;
use crate::exit::{Code, Failure, Outcome};

/// Pause between two attempts to connect to an unavailable runtime.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns the value that `connect` makes. A long-running process (`waits` has the address of its admin endpoint) waits while the endpoint
/// is unreachable. It reports that once in the log, and to every client of its admin endpoint.
pub(crate) async fn until_available<T>(
    app: &App,
    waits: Option<&AdminAddress>,
    mut connect: impl AsyncFnMut() -> Outcome<T>,
) -> Outcome<T> {
    let mut waiting: Option<AdminServer> = None;
    loop {
        let (failure, address) = match (connect().await, waits) {
            (Err(failure), Some(address)) if failure.code() == Code::Unreachable => (failure, address),
            (result, _) => {
                if let Some(waiting) = waiting {
                    waiting.stop().await;
                    if result.is_ok() {
                        tracing::info!("the container runtime is up");
                    }
                }
                return result;
            }
        };
        if waiting.is_none() {
            let error = failure.lines().join("; ");
            tracing::warn!(error, "waiting for the container runtime");
            let line = format!("waiting for the container runtime: {error}");
            Notify::new(app.environment.notify_socket.as_deref()).status("waiting for the container runtime");
            let mut admin = Admin::waiting(&line);
            admin.configuration = Some(app.configuration());
            waiting = Some(admin.start(address, &app.stop).await?);
        }
        tokio::select! {
            () = app.stop.cancelled() => return Err(Failure::new(app.signals.code(), "ended by a signal")),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}
