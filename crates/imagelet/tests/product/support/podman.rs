//! Debian's podman with a store of its own, which has a store of imagelet's as its additional image store. Configured by its files, as
//! an administrator would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Scratch;
use super::process::{run, tool};

/// Podman. All containers end with it.
pub(crate) struct Podman {
    conf: PathBuf,
    storage: PathBuf,
    graph_root: PathBuf,
    /// Podman takes no path of more than 50 characters for it.
    _run_root: tempfile::TempDir,
}

impl Podman {
    /// Podman with `view` as its additional store.
    #[track_caller]
    pub(crate) fn with_additional_store(scratch: &Scratch, view: &Path) -> Self {
        let home = scratch.directory("podman");
        let run_root = tempfile::Builder::new().prefix("podman-").tempdir_in("/run").expect("a directory");
        let path = |name: &str| home.join(name).display().to_string();
        let (conf, storage) = (home.join("containers.conf"), home.join("storage.conf"));
        // Locks in files: those in shared memory are one table for every podman of the machine. The limits are such that a machine
        // without CAP_SYS_RESOURCE can set them.
        let text = format!(
            "[containers]\nnetns = \"none\"\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nlock_type = \"file\"\nruntime = \"runc\"\n\
             tmp_dir = \"{}\"\n",
            path("tmp")
        );
        fs::write(&conf, text).expect("write a configuration");
        let text = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n\
             [storage.options]\nadditionalimagestores = [\"{}\"]\n",
            path("root"),
            run_root.path().display(),
            view.display()
        );
        fs::write(&storage, text).expect("write a configuration");
        Self { conf, storage, graph_root: home.join("root"), _run_root: run_root }
    }

    /// Where it keeps containers.
    pub(crate) fn graph_root(&self) -> String {
        self.graph_root.display().to_string()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = tool("podman");
        command.env("CONTAINERS_CONF", &self.conf).env("CONTAINERS_STORAGE_CONF", &self.storage).args(args);
        command
    }

    /// Runs it to a good end. The answer is its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }

    /// Runs it to a bad end. The answer is its standard error.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("start podman");
        assert!(!output.status.success(), "podman {args:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The images: names, digest, id, and if they are read-only; sorted.
    #[track_caller]
    pub(crate) fn images(&self) -> Vec<String> {
        let form = "{{.Repository}}:{{.Tag}} {{.Digest}} {{.ID}} {{.ReadOnly}}";
        let listed = self.ok(&["images", "--no-trunc", "--digests", "--format", form]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Removes all containers.
    pub(crate) fn remove_containers(&self) {
        self.ok(&["rm", "--all", "--force", "--time", "0"]);
    }
}

impl Drop for Podman {
    #[expect(clippy::print_stderr, reason = "a test that fails says what is left")]
    fn drop(&mut self) {
        let removed = self.command(&["rm", "--all", "--force", "--time", "0"]).output();
        if let Ok(output) = removed
            && !output.status.success()
        {
            eprintln!("podman rm: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
