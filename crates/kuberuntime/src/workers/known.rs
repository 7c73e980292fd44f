//! The wait for the first list of pods: until the sources and the runtime have reported their pods, a list without pods
//! does not mean that none run. Makes no requests; waits for changes of the shared state.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::WorkerState;
use super::shared::{AgentState, FIRST_ANSWER};

/// Time that sources have for their first answer, from the start of the process. A source that does not answer, such as a URL,
/// delays no caller after that.
const FIRST_READ: Duration = Duration::from_secs(5);

/// Returns when the list of pods has every pod that the sources want and that the runtime had at `begin`.
pub(super) async fn until_known(shared: &AgentState, begin: Instant) {
    let (mut changes, mut open) = (shared.board.changes(), shared.open.subscribe());
    let mut desired = shared.desired.clone();
    // Where a source is silent, the others count.
    let _ = timeout_at(begin + FIRST_READ, desired.wait_for(|desired| desired.ready || desired.reported)).await;
    let _ = open.wait_for(|open| *open).await;
    while !has_every_pod(shared) {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Returns true if each pod that has a manifest or a worker is in the list, with the state that the runtime reported.
fn has_every_pod(shared: &AgentState) -> bool {
    let views = shared.board.all();
    let is_known = |uid: &str| {
        views.iter().any(|view| {
            let waits = view.state == WorkerState::Queued && view.actions == FIRST_ANSWER;
            view.pod.metadata.uid == uid && !waits
        })
    };
    // A worker without a name has a directory alone to remove, and is in no list.
    let workers: Vec<String> = {
        let table = shared.table();
        let named = table.slots.values().filter(|slot| !slot.owner.name.is_empty());
        named.map(|slot| slot.owner.uid.clone()).collect()
    };
    workers.iter().all(|uid| is_known(uid)) && shared.desired.borrow().pods.keys().all(|uid| is_known(uid))
}
