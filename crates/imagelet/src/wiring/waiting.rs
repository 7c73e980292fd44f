//! The wait of a process that stays for a container runtime that is not up yet, as services have to after a boot: nothing orders
//! their starts. Called by `run` and `serve`.

use std::time::Duration;

use agent::admin::{Admin, AdminAddress, AdminServer};
use agent::node::notify::Notify;

use crate::app::App;
use crate::exit::{Code, Failure, Outcome};

/// Pause between two attempts to connect to a runtime that is not there.
const PAUSE: Duration = Duration::from_secs(1);

/// The value that `connect` makes. A process that stays (`waits` has the address of its admin endpoint) waits for whoever does not
/// answer, and says so once, in the log and to whoever asks its admin endpoint.
pub(crate) async fn until_there<T>(
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
