//! The async runtime of the process, or one line where the machine, or a limit of the process, gives it no thread. tokio
//! knows no other answer to that than a panic, after which it waits for the threads that it got; so a panic of the start
//! is told, and ends the process. So does, whenever it comes, a thread that was started and gets no memory for its own stack of
//! signals: what waits for its work would wait for ever. Knows nothing of what runs on it. Called by `main`.

use lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::exit::{Code, Failure, Outcome};

/// Threads for blocking work that are there from the beginning. Where no more can be started, work waits for one of these: with
/// none there, tokio would panic in the middle of something. None of that work waits for other such work.
const READY: usize = 4;

/// Threads stay: one that has gone may not be had again.
const STAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// tokio's words before the cause.
const REFUSED: &str = "OS can't spawn worker thread: ";

/// The standard library's words, before the cause, in a thread that has just begun and gets no memory for what it needs.
const NO_STACK: &str = "failed to allocate an alternative stack";

/// Starts it. `refused` tells that a thread is missing, and does not come back.
pub(crate) fn start(refused: impl Fn(Failure) + Send + Sync + 'static) -> Outcome<Runtime> {
    let usual = std::panic::take_hook();
    let is_up = Arc::new(AtomicBool::new(false));
    let (up, one) = (Arc::clone(&is_up), Mutex::new(()));
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        if up.load(Ordering::Relaxed) && !text.starts_with(NO_STACK) {
            return usual(panic);
        }
        // Of several threads that miss something, one tells it.
        let _one = one.lock();
        let cause = text.strip_prefix(REFUSED).unwrap_or(text);
        refused(Failure::failed(format!("start the program's threads: {cause}")));
    }));
    let built = Builder::new_multi_thread().enable_all().thread_keep_alive(STAY).build();
    if let Ok(runtime) = &built {
        make_ready(runtime);
    }
    is_up.store(true, Ordering::Relaxed);
    built.map_err(|error| Failure::caused(Code::Failed, "start the program", &error))
}

/// Has the threads started: each is busy until all have been asked for.
fn make_ready(runtime: &Runtime) {
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock();
    for _ in 0..READY {
        let gate = Arc::clone(&gate);
        // Nobody waits for them.
        drop(runtime.spawn_blocking(move || drop(gate.lock())));
    }
    drop(held);
}
