//! A cgroup that gives what runs in it only so much memory, page cache included. It is removed with the scratch that it is
//! named after. Version 1 and version 2.

use std::fs;
use std::path::{Path, PathBuf};

use super::scratch::Scratch;

/// The cgroup.
pub(crate) struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// A new one. `None`: this machine has no memory controller that a test can use, which is told.
    #[track_caller]
    #[expect(clippy::print_stderr, reason = "whoever reads the test's output is to know what was not tested")]
    pub(crate) fn new(scratch: &Scratch, bytes: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (hierarchy, limit) = if root.join("memory/tasks").exists() {
            (root.join("memory"), "memory.limit_in_bytes")
        } else if controllers(root).any(|name| name == "memory") {
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root.to_path_buf(), "memory.max")
        } else {
            eprintln!("this machine has no memory controller: the limit is not enforced, only the peak is looked at");
            return None;
        };
        let parent = hierarchy.join(scratch.cgroup().trim_start_matches('/'));
        let path = parent.join("limited");
        fs::create_dir_all(&parent).expect("make a cgroup");
        if limit == "memory.max" {
            fs::write(parent.join("cgroup.subtree_control"), "+memory").expect("hand the controller down");
        }
        fs::create_dir_all(&path).expect("make a cgroup");
        fs::write(path.join(limit), bytes.to_string()).expect("limit the memory of a cgroup");
        Some(Self(path))
    }

    /// What starts a program in it, for [`super::Imagelet::through`].
    pub(crate) fn words(&self) -> Vec<String> {
        let enter = "echo $$ >$0 && exec \"$@\"".to_owned();
        vec!["/bin/sh".into(), "-c".into(), enter, self.0.join("cgroup.procs").display().to_string()]
    }
}

fn controllers(root: &Path) -> impl Iterator<Item = String> {
    let names = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}
