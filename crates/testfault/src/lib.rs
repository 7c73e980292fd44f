//! For tests alone: a child whose system calls fail where the test wants them to, below all code of the program. The test's
//! process traces the child ([`trace`]); the child itself selects the call that is to fail ([`arm`]) and gets the result
//! ([`disarm`]); or the fault is armed for a whole program, which knows nothing of it ([`trace_program`]). A call that is to fail
//! is not made: the kernel does nothing, and the child gets the error; or, of a sync, the answer that it was made
//! ([`arm_untrue_sync`]). Knows system calls and the directory that they must concern; knows no store. On machines that are not
//! x86-64 this crate is empty.

#![cfg(target_arch = "x86_64")]

mod calls;
mod child;
mod tracer;

pub use calls::Class;
pub use child::{Fault, Seen, arm, arm_untrue_sync, disarm, note_step};
pub use tracer::{Sync, Traced, trace, trace_program};
