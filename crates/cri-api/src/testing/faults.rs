//! Faults that a test injects into a fake: errors, and gates at which calls wait. It knows nothing of what the calls
//! do; the fakes ask [`Faults::pass`] before they do anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, watch};

use crate::{Error, Result};

/// The calls of both services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// `list_images`.
    ListImages,
    /// `image_status`.
    ImageStatus,
    /// `pull_image`.
    PullImage,
    /// `remove_image`.
    RemoveImage,
    /// `image_fs_info`.
    ImageFsInfo,
    /// `image_usage`.
    ImageUsage,
    /// `version`.
    Version,
    /// `status` of the runtime.
    RuntimeStatus,
    /// `list_pod_sandboxes`.
    ListPodSandboxes,
    /// `list_containers`.
    ListContainers,
}

/// Locks a mutex of a fake. A test that panicked while it held one has failed anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Errors and gates, by kind of call.
#[derive(Debug, Default)]
pub struct Faults {
    /// Guards what each kind of call meets next.
    by_kind: Mutex<HashMap<CallKind, Fault>>,
}

#[derive(Debug, Default)]
struct Fault {
    gate: Option<Gate>,
    error: Option<(Error, Option<usize>)>,
}

impl Faults {
    /// Every call of this kind fails, until [`Faults::clear`].
    pub fn fail(&self, kind: CallKind, error: Error) {
        lock(&self.by_kind).entry(kind).or_default().error = Some((error, None));
    }

    /// The next `times` calls of this kind fail.
    pub fn fail_times(&self, kind: CallKind, times: usize, error: Error) {
        lock(&self.by_kind).entry(kind).or_default().error = (times > 0).then_some((error, Some(times)));
    }

    /// From now on calls of this kind wait at the gate. A gate that nobody opens is a call that hangs.
    #[must_use = "a gate that is let go hangs its calls for good"]
    pub fn hold(&self, kind: CallKind) -> Gate {
        let gate = Gate::new();
        lock(&self.by_kind).entry(kind).or_default().gate = Some(gate.clone());
        gate
    }

    /// Calls of this kind work again. Calls that wait at a gate go on.
    pub fn clear(&self, kind: CallKind) {
        if let Some(Fault { gate: Some(gate), .. }) = lock(&self.by_kind).remove(&kind) {
            gate.open();
        }
    }

    /// What a call of a fake goes through first: the gate, then the error.
    pub(super) async fn pass(&self, kind: CallKind) -> Result<()> {
        let gate = lock(&self.by_kind).get(&kind).and_then(|fault| fault.gate.clone());
        if let Some(gate) = gate {
            gate.pass().await;
        }
        let mut by_kind = lock(&self.by_kind);
        let Some(fault) = by_kind.get_mut(&kind) else { return Ok(()) };
        let Some((error, times)) = &mut fault.error else { return Ok(()) };
        let error = error.clone();
        if let Some(times) = times {
            *times -= 1;
            if *times == 0 {
                fault.error = None;
            }
        }
        Err(error)
    }
}

/// A gate at which calls wait until a test lets them through.
#[derive(Clone, Debug)]
pub struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    permits: Semaphore,
    traffic: watch::Sender<Traffic>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    arrived: usize,
    waiting: usize,
}

impl Gate {
    fn new() -> Self {
        Self(Arc::new(GateState { permits: Semaphore::new(0), traffic: watch::Sender::new(Traffic::default()) }))
    }

    /// Lets `calls` of those that wait, or of those that come, through: first come, first served.
    pub fn let_through(&self, calls: usize) {
        self.0.permits.add_permits(calls);
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        self.0.permits.close();
    }

    /// How many calls ever came to the gate.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.0.traffic.borrow().arrived
    }

    /// How many calls wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.traffic.borrow().waiting
    }

    /// Waits until `calls` have come to the gate since it was made.
    pub async fn until_arrived(&self, calls: usize) {
        self.until(|traffic| traffic.arrived >= calls).await;
    }

    /// Waits until exactly `calls` wait at the gate.
    pub async fn until_waiting(&self, calls: usize) {
        self.until(|traffic| traffic.waiting == calls).await;
    }

    async fn until(&self, holds: impl Fn(&Traffic) -> bool) {
        let mut traffic = self.0.traffic.subscribe();
        let _ = traffic.wait_for(|traffic| holds(traffic)).await.expect("this gate holds the sender");
    }

    async fn pass(&self) {
        struct Waiting<'a>(&'a GateState);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.traffic.send_modify(|traffic| traffic.waiting -= 1);
            }
        }
        self.0.traffic.send_modify(|traffic| {
            traffic.arrived += 1;
            traffic.waiting += 1;
        });
        let _waiting = Waiting(&self.0);
        // An error says that the gate is open for good.
        if let Ok(permit) = self.0.permits.acquire().await {
            permit.forget();
        }
    }
}
