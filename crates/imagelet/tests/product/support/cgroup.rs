//! A cgroup that limits its processes' memory, page cache included, or their threads. It is removed with the
//! scratch that it is named after. Version 1 and version 2.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::scratch::Scratch;

/// The cgroup.
pub(crate) struct Cgroup {
    path: PathBuf,
    /// The file with the limit.
    limit: &'static str,
}

impl Cgroup {
    /// A new cgroup with so much memory, in bytes. Fails the test where the machine has no memory controller.
    #[track_caller]
    pub(crate) fn of_memory(scratch: &Scratch, bytes: u64) -> Self {
        // Pages of a file count where they are first read: a test's build of the program is larger than such a limit.
        let mut program = File::open(super::cli::PROGRAM).expect("open the program");
        io::copy(&mut program, &mut io::sink()).expect("read the program");
        Self::new(scratch, "memory", ["memory.limit_in_bytes", "memory.max"], bytes)
    }

    /// Creates one with a limit on processes and threads.
    #[track_caller]
    pub(crate) fn of_threads(scratch: &Scratch, threads: u64) -> Self {
        Self::new(scratch, "pids", ["pids.max", "pids.max"], threads)
    }

    #[track_caller]
    fn new(scratch: &Scratch, controller: &str, limits: [&'static str; 2], most: u64) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let enable = format!("+{controller}");
        let is_old = root.join(controller).join("tasks").exists();
        let hierarchy = if is_old {
            root.join(controller)
        } else if controllers(root).any(|name| name == controller) {
            let _ = fs::write(root.join("cgroup.subtree_control"), &enable);
            root.to_path_buf()
        } else {
            panic!("this machine has no cgroup controller {controller}, which this test limits a process with");
        };
        let parent = hierarchy.join(scratch.cgroup().trim_start_matches('/'));
        let path = parent.join("limited");
        fs::create_dir_all(&parent).expect("make a cgroup");
        if !is_old {
            fs::write(parent.join("cgroup.subtree_control"), enable).expect("hand the controller down");
        }
        fs::create_dir_all(&path).expect("make a cgroup");
        let cgroup = Self { path, limit: limits[usize::from(!is_old)] };
        cgroup.set(most);
        cgroup
    }

    /// Changes the limit.
    #[track_caller]
    pub(crate) fn set(&self, most: u64) {
        fs::write(self.path.join(self.limit), most.to_string()).expect("limit a cgroup");
    }

    /// Bytes of files, and of devices' metadata, that its processes have read into memory.
    #[track_caller]
    pub(crate) fn cached(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("memory.stat")).expect("read a cgroup's memory");
        let value = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        value("cache ").or_else(|| value("file ")).expect("a cgroup says how much memory files have")
    }

    /// The command that starts a program in the cgroup, for [`super::Imagelet::through`].
    pub(crate) fn words(&self) -> Vec<String> {
        let enter = "echo $$ >$0 && exec \"$@\"".to_owned();
        vec!["/bin/sh".into(), "-c".into(), enter, self.path.join("cgroup.procs").display().to_string()]
    }
}

fn controllers(root: &Path) -> impl Iterator<Item = String> {
    let names = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}
