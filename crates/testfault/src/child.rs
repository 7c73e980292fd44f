//! The child's side: messages to the tracer, sent as calls that no program makes. They cost nothing while the tracer does not
//! listen, but then they are refused, which a test must not take for an answer.

use std::io::ErrorKind;

use rustix::fs::SeekFrom;
use rustix::process::Signal;

use crate::calls::Class;

/// Which call is to fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which calls count.
    pub class: Class,
    /// The error that they answer.
    pub errno: rustix::io::Errno,
    /// The first one that fails, from 1.
    pub at: u16,
    /// All after it fail as well.
    pub lasting: bool,
}

/// The result of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How many calls of the class there were.
    pub calls: u32,
    /// How many of them failed.
    pub failed: u32,
}

/// No file is so long: by this the tracer knows its words.
pub(crate) const MAGIC: u64 = 0x1dea << 48;
pub(crate) const DISARM: u64 = 0xff;
pub(crate) const STEP: u64 = 0xfe;
/// Makes the tracer intercept every call from now on.
pub(crate) const WAKE: Signal = Signal::USR2;

/// From now on calls of the whole process count.
///
/// # Panics
/// This process is not traced.
pub fn arm(fault: Fault) {
    let errno = u64::from(fault.errno.raw_os_error().unsigned_abs());
    listen(u64::from(fault.class as u8) << 40 | u64::from(fault.lasting) << 32 | errno << 16 | u64::from(fault.at));
}

/// From now on the calls that make writes durable are recorded ([`crate::Traced::syncs`]), and one of them, counted from 1, is
/// not made although it returns success.
///
/// # Panics
/// This process is not traced.
pub fn arm_untrue_sync(at: Option<u16>) {
    listen(u64::from(Class::Sync as u8) << 40 | u64::from(at.unwrap_or(u16::MAX)));
}

/// Notes that another step of the work begins. Only for the list of calls.
pub fn note_step(number: u16) {
    let _ = say(STEP << 40 | u64::from(number));
}

fn listen(word: u64) {
    rustix::process::kill_process(rustix::process::getpid(), WAKE).expect("a process may signal itself");
    // Another thread may receive the signal, a moment later.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while say(word).is_none() {
        assert!(std::time::Instant::now() < until, "no tracer is attached to this process");
        std::thread::yield_now();
    }
}

/// From now on no call fails.
pub fn disarm() -> Seen {
    // While nothing is armed, the tracer does not answer.
    let answer = say(DISARM << 40).unwrap_or(0);
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).expect("thirty-two bits");
    Seen { calls: half(answer), failed: half(answer >> 32) }
}

fn say(word: u64) -> Option<u64> {
    match rustix::fs::seek(std::io::stdin(), SeekFrom::Start(MAGIC | word)) {
        Ok(answer) => Some(answer),
        Err(error) if std::io::Error::from(error).kind() == ErrorKind::Interrupted => None,
        Err(_) => None,
    }
}
