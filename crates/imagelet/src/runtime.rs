//! The async runtime of the process, or one error line where the machine, or a limit of the process, refuses a thread. tokio panics then,
//! and waits for the threads that it did get. So a panic during startup is reported and ends the process. The same holds at any later time
//! for a thread that starts and gets no memory for its signal stack, since its waiters would wait forever. Does not know what runs on it.
//! Called by `main`.

use base::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::exit::{Code, Failure, Outcome};

/// Threads for blocking work that are started at once. If no more can be started later, work waits for one of these; without any, tokio
/// would panic in the middle of an operation. No blocking work waits for other blocking work.
const READY: usize = 4;

/// Keep-alive of threads: an ended thread might not be replaceable.
const STAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Prefix of tokio's panic message, before the cause.
const REFUSED: &str = "OS can't spawn worker thread: ";

/// Prefix of the standard library's panic message in a thread that has just started and gets no memory for its signal stack.
const NO_STACK: &str = "failed to allocate an alternative stack";

/// Starts the runtime. `refused` reports a missing thread and does not return.
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
        // If several threads fail, only one reports it.
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

/// Starts the blocking threads: each stays busy until all of them have been requested.
fn make_ready(runtime: &Runtime) {
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock();
    for _ in 0..READY {
        let gate = Arc::clone(&gate);
        // The handles are not awaited: each task ends when the gate opens.
        drop(runtime.spawn_blocking(move || drop(gate.lock())));
    }
    drop(held);
}
