//! Protects the memory of the process, which holds passwords during pulls: it is not written to a core file, and no other process of the
//! same user may read it. Knows nothing of the secrets. Called once by `main`, before anything is read.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::exit::{Code, Failure, Outcome};

/// Forbids core files, and `ptrace` by processes without privileges. The core limit is inherited by credential providers and helpers, which
/// hold secrets as well; the dumpable flag is not. So the limit is set as well, although the kernel ignores it if the core pattern is a
/// pipe.
pub(crate) fn keep_to_itself() -> Outcome {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|e| Failure::caused(Code::Failed, "forbid core files", &e))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Failure::caused(Code::Failed, "keep memory out of core files", &e))
}
