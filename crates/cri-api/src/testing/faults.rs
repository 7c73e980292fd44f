//! Faults that a test injects into a fake: errors, delays, lost answers, absence, and gates at which calls wait. It knows
//! nothing of what the calls do; the fakes ask [`Faults::pass`] before they do anything.

use base::lock::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

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
    /// `version`.
    Version,
    /// `status` of the runtime.
    RuntimeStatus,
    /// `list_pod_sandboxes`.
    ListPodSandboxes,
    /// `list_containers`.
    ListContainers,
    /// `run_pod_sandbox`.
    RunPodSandbox,
    /// `stop_pod_sandbox`.
    StopPodSandbox,
    /// `remove_pod_sandbox`.
    RemovePodSandbox,
    /// `pod_sandbox_status`.
    PodSandboxStatus,
    /// `create_container`.
    CreateContainer,
    /// `start_container`.
    StartContainer,
    /// `stop_container`.
    StopContainer,
    /// `remove_container`.
    RemoveContainer,
    /// `container_status`.
    ContainerStatus,
    /// `exec_sync`.
    ExecSync,
    /// `update_container_resources`.
    UpdateContainerResources,
    /// `update_pod_sandbox_resources`.
    UpdatePodSandboxResources,
    /// `reopen_container_log`.
    ReopenContainerLog,
    /// `exec`.
    Exec,
    /// `attach`.
    Attach,
    /// `port_forward`.
    PortForward,
    /// `container_stats` and the list of them.
    ContainerStats,
    /// `pod_sandbox_stats` and the list of them.
    PodSandboxStats,
    /// `update_runtime_config`.
    UpdateRuntimeConfig,
    /// `runtime_config`.
    RuntimeConfig,
}

/// Errors, gates and delays, by kind of call, and for calls of the runtime by what they are about as well.
#[derive(Debug, Default)]
pub struct Faults {
    /// Guards what calls meet next. A subject is an id, or a name of a pod or container; `None` is every call of the kind.
    by_call: Mutex<HashMap<(CallKind, Option<String>), Fault>>,
    /// Guards the error of every call of any kind: the peer is absent.
    absent: Mutex<Option<Error>>,
}

#[derive(Debug, Default)]
struct Fault {
    gate: Option<Gate>,
    delay: Duration,
    /// Before the call does anything; with the number of calls that are left, where it ends by itself.
    error: Option<(Error, Option<usize>)>,
    /// After the call has done everything: the answer is lost.
    lost: Option<(Error, Option<usize>)>,
}

/// Takes the error for a call from those that are left.
fn take(error: &mut Option<(Error, Option<usize>)>) -> Option<Error> {
    let (met, times) = error.as_mut()?;
    let met = met.clone();
    if let Some(times) = times {
        *times -= 1;
        if *times == 0 {
            *error = None;
        }
    }
    Some(met)
}

impl Faults {
    fn change(&self, kind: CallKind, subject: Option<&str>, change: impl FnOnce(&mut Fault)) {
        change(self.by_call.lock().entry((kind, subject.map(str::to_owned))).or_default());
    }

    /// Fails every call of this kind, until [`Faults::clear`].
    pub fn fail(&self, kind: CallKind, error: Error) {
        self.change(kind, None, |fault| fault.error = Some((error, None)));
    }

    /// Fails the next `times` calls of this kind.
    pub fn fail_times(&self, kind: CallKind, times: usize, error: Error) {
        self.change(kind, None, |fault| fault.error = (times > 0).then_some((error, Some(times))));
    }

    /// Fails every call of this kind about one object: an ID, or a name of a pod or container.
    pub fn fail_for(&self, kind: CallKind, subject: &str, error: Error) {
        self.change(kind, Some(subject), |fault| fault.error = Some((error, None)));
    }

    /// Performs the next `times` calls of this kind and fails them nevertheless: their answer is lost.
    pub fn lose_answers(&self, kind: CallKind, times: usize, error: Error) {
        self.change(kind, None, |fault| fault.lost = (times > 0).then_some((error, Some(times))));
    }

    /// Delays calls of this kind before they do anything.
    pub fn delay(&self, kind: CallKind, delay: Duration) {
        self.change(kind, None, |fault| fault.delay = delay);
    }

    /// Makes every call of any kind fail at once, until [`Faults::return_to_duty`].
    pub fn be_absent(&self, error: Error) {
        *self.absent.lock() = Some(error);
    }

    /// Makes the peer answer again.
    pub fn return_to_duty(&self) {
        *self.absent.lock() = None;
    }

    /// Makes calls of this kind wait at the gate. A call hangs until its gate is opened.
    #[must_use = "a gate that is let go hangs its calls for good"]
    pub fn hold(&self, kind: CallKind) -> Gate {
        let gate = Gate::new();
        self.change(kind, None, |fault| fault.gate = Some(gate.clone()));
        gate
    }

    /// Makes calls of this kind about one thing wait at the gate: an id, or a name of a pod or container.
    #[must_use = "a gate that is let go hangs its calls for good"]
    pub fn hold_for(&self, kind: CallKind, subject: &str) -> Gate {
        let gate = Gate::new();
        self.change(kind, Some(subject), |fault| fault.gate = Some(gate.clone()));
        gate
    }

    /// Makes calls of this kind work again, and releases those that wait at a gate.
    pub fn clear(&self, kind: CallKind) {
        self.by_call.lock().retain(|(other, _), fault| {
            if *other == kind
                && let Some(gate) = &fault.gate
            {
                gate.open();
            }
            *other != kind
        });
    }

    /// Steps before a call of a fake: the gate, the delay, then the error.
    pub(super) async fn pass(&self, kind: CallKind) -> Result<()> {
        self.pass_about(kind, &[]).await
    }

    /// Like `pass`, for a call about an object.
    pub(super) async fn pass_about(&self, kind: CallKind, subjects: &[&str]) -> Result<()> {
        let keys = || std::iter::once(None).chain(subjects.iter().copied().map(Some));
        for subject in keys() {
            let met = |fault: &Fault| (fault.gate.clone(), fault.delay);
            let (gate, delay) =
                self.by_call.lock().get(&(kind, subject.map(str::to_owned))).map(met).unwrap_or_default();
            if let Some(gate) = gate {
                gate.pass().await;
            }
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
        }
        if let Some(error) = &*self.absent.lock() {
            return Err(error.clone());
        }
        let mut by_call = self.by_call.lock();
        let mut errors = keys().filter_map(|subject| {
            by_call.get_mut(&(kind, subject.map(str::to_owned))).and_then(|fault| take(&mut fault.error))
        });
        errors.next().map_or(Ok(()), Err)
    }

    /// Hands an answer on, or loses it.
    pub(super) fn answer<T>(&self, kind: CallKind, answer: T) -> Result<T> {
        let lost = self.by_call.lock().get_mut(&(kind, None)).and_then(|fault| take(&mut fault.lost));
        lost.map_or(Ok(answer), Err)
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

    /// Lets this many waiting or later calls through: first come, first served.
    pub fn let_through(&self, calls: usize) {
        self.0.permits.add_permits(calls);
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        self.0.permits.close();
    }

    /// Returns how many calls have ever reached the gate.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.0.traffic.borrow().arrived
    }

    /// Returns the number of waiting calls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.traffic.borrow().waiting
    }

    /// Waits until `calls` have reached the gate since it was made.
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
        // An error means that the gate is open for good.
        if let Ok(permit) = self.0.permits.acquire().await {
            permit.forget();
        }
    }
}
