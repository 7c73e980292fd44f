//! [`confined`]: work on a thread of its own, which the kernel (Landlock) keeps from everything outside of one directory: it can
//! make, remove, rename, link, open or cut nothing elsewhere, whatever a hostile layer talks the unpacker into. A second wall
//! only: the first is that all is done through descriptors of directories.
//!
//! Landlock does not check files that were opened before, nor changes of modes, owners, times and extended attributes. Where the
//! kernel does not support it (before 5.19, or without Landlock), the work is done all the same, and that is logged once. A
//! thread stays confined to its end, and so do threads that it starts; the waiting thread is not. The ingest calls it.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::Once;
use std::{io, thread};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError,
};

/// Rights that newer kernels can deny as well are denied there.
const NEWEST: ABI = ABI::V6;
/// The oldest that will do: before it, nothing could be renamed or linked from one directory to another.
const OLDEST: ABI = ABI::V2;

thread_local! {
    static CONFINED: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the calling thread is one of `confined`: it must start no thread that outlives its work.
#[must_use]
pub fn is_confined() -> bool {
    CONFINED.get()
}

/// Does the work on a thread that can change nothing outside of `within`, and read nothing outside of it and of `readable`.
///
/// # Errors
/// No thread could be started. A panic of the work continues in the caller.
pub(crate) fn confined<T: Send>(
    within: BorrowedFd<'_>,
    readable: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let span = tracing::Span::current();
    thread::scope(|scope| {
        let work = || {
            let _span = span.enter();
            CONFINED.set(true);
            if let Err(error) = confine(within, readable) {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!(%error, "the threads that unpack layers are not confined: this kernel's Landlock cannot do it");
                });
            }
            work()
        };
        let thread = thread::Builder::new().name("unpack".into()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn confine(within: BorrowedFd<'_>, readable: BorrowedFd<'_>) -> Result<(), RulesetError> {
    let inside = AccessFs::from_all(NEWEST) & !AccessFs::Execute;
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .create()?
        .add_rule(PathBeneath::new(readable, AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rule(PathBeneath::new(within, inside))?
        .restrict_self()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_confined_thread_changes_nothing_outside() {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
        fs::create_dir_all(inside.join("d")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("canary"), "alive").unwrap();
        fs::write(inside.join("mine"), "mine").unwrap();
        symlink(&outside, inside.join("way")).unwrap();
        let (within, elsewhere) = (File::open(&inside).unwrap(), File::open(&outside).unwrap());
        let denied = |result: io::Result<()>| {
            let error = result.expect_err("it must not work");
            assert!(matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::CrossesDevices), "{error}");
        };
        let work = || {
            assert!(is_confined());
            for outside in [outside.clone(), inside.join("way")] {
                denied(fs::write(outside.join("new"), "x"));
                denied(fs::write(outside.join("canary"), "dead"));
                denied(File::options().append(true).open(outside.join("canary")).map(drop));
                denied(fs::read(outside.join("canary")).map(drop));
                denied(fs::read_dir(&outside).map(drop));
                denied(fs::remove_file(outside.join("canary")));
                denied(fs::rename(outside.join("canary"), outside.join("other")));
                denied(fs::rename(outside.join("canary"), inside.join("stolen")));
                denied(fs::rename(inside.join("mine"), outside.join("canary")));
                denied(fs::hard_link(inside.join("mine"), outside.join("linked")));
                denied(fs::hard_link(outside.join("canary"), inside.join("linked")));
                denied(fs::create_dir(outside.join("new")));
                denied(symlink("x", outside.join("new")));
                denied(fs::remove_dir(outside.join("../inside/../outside")));
                let made = rustix::fs::mknodat(
                    rustix::fs::CWD,
                    outside.join("new"),
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RUSR,
                    0,
                );
                denied(made.map_err(io::Error::from));
            }
            // A thread of such a thread is no way out.
            thread::scope(|scope| scope.spawn(|| denied(fs::write(outside.join("new"), "x"))).join().unwrap());
            // All other work succeeds, inside.
            fs::write(inside.join("new"), "x").unwrap();
            fs::rename(inside.join("new"), inside.join("d/new")).unwrap();
            fs::hard_link(inside.join("mine"), inside.join("d/mine")).unwrap();
            fs::remove_file(inside.join("d/new")).unwrap();
            symlink("x", inside.join("d/l")).unwrap();
        };
        confined(within.as_fd(), within.as_fd(), work).unwrap();
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["canary"]);
        assert_eq!(fs::read(outside.join("canary")).unwrap(), b"alive");
        // The calling thread is as free as before, and readable files can be read.
        assert!(!is_confined());
        fs::write(outside.join("free"), "x").unwrap();
        let read = || fs::read(outside.join("canary")).unwrap();
        assert_eq!(confined(within.as_fd(), elsewhere.as_fd(), read).unwrap(), b"alive");
    }

    #[test]
    fn panic_is_resumed_on_the_waiting_thread() {
        let top = tempfile::tempdir().unwrap();
        let directory = File::open(top.path()).unwrap();
        let result = std::panic::catch_unwind(|| confined(directory.as_fd(), directory.as_fd(), || panic!("told")));
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&"told"));
    }
}
