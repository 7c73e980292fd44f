//! The keep-alive for systemd's watchdog (`WatchdogSec=`). It is sent only while the process is alive: async workers and blocking threads
//! take work, and the sync loop of pods makes progress. An unresponsive runtime or registry is no reason for a restart. Called by `run` and
//! `serve`.

use std::time::Duration;

use agent::node::notify::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Returns the time since a loop began its last turn.
pub(crate) type SinceTurn<'a> = &'a dyn Fn() -> Duration;

/// Minimum time that a turn of a loop may take, since machines may be slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Notifies systemd, if it asks for that (`limit`), that the process is alive, until `stop`.
pub(crate) async fn keep(
    limit: Option<Duration>,
    stop: &CancellationToken,
    notify: &Notify,
    since_turn: Option<SinceTurn<'_>>,
) {
    let Some(limit) = limit else { return };
    let mut ticks = tokio::time::interval(limit / 3);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        // If all blocking threads are stuck, no keep-alive is sent.
        let threads = tokio::task::spawn_blocking(|| {});
        if stop.run_until_cancelled(threads).await.is_none() {
            return;
        }
        match since_turn.map(|since| since()).filter(|since| *since > PATIENCE.max(limit)) {
            None => notify.alive(),
            Some(since) => tracing::error!(duration = ?since, "the loop of pods hangs: systemd's watchdog is not fed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_keeps_the_word_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_nonblocking(true).expect("set");
        let words = || {
            let mut bytes = [0; 64];
            std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count()
        };
        let (notify, stop, since) = (Notify::new(Some(path.as_os_str())), CancellationToken::new(), AtomicU64::new(2));
        let since_turn = || Duration::from_secs(since.load(Ordering::Relaxed));
        let limit = Duration::from_secs(30);
        let watching = async {
            tokio::time::sleep(Duration::from_secs(35)).await;
            let alive = words();
            since.store(31, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let hanging = words();
            stop.cancel();
            (alive, hanging)
        };
        let ((), (alive, hanging)) = tokio::join!(keep(Some(limit), &stop, &notify, Some(&since_turn)), watching);
        assert!(alive >= 3 && hanging == 0, "{alive} {hanging}");
        keep(None, &CancellationToken::new(), &notify, None).await;
    }
}
