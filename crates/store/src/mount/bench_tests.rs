//! Where layers are made and mounted by tests, and every kernel that there is. In the end nothing may be left of any.

use std::fs;

use super::*;

/// Places for layers and for mounts. In the end nothing may be left of any.
pub(super) struct Bench {
    pub(super) target: PathBuf,
    pub(super) points: Points,
    pub(super) top: tempfile::TempDir,
}

pub(super) const EVERYTHING: KernelFeatures =
    KernelFeatures { shared_from: 0, from_file: true, unseen: true, new_overlay: true, many: usize::MAX };

/// Features of kernels, newest first, with and without loop devices.
pub(super) const KERNELS: [KernelFeatures; 6] = [
    EVERYTHING,
    KernelFeatures { shared_from: u64::MAX, ..EVERYTHING },
    KernelFeatures { shared_from: u64::MAX, unseen: false, ..EVERYTHING },
    KernelFeatures { from_file: false, ..EVERYTHING },
    KernelFeatures { from_file: false, unseen: false, ..EVERYTHING },
    KernelFeatures { from_file: false, unseen: false, new_overlay: false, ..EVERYTHING },
];

impl Bench {
    pub(super) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let top = tempfile::tempdir().expect("tempdir");
        let target = top.path().join("a target, with: odd\\characters");
        fs::create_dir(&target).expect("creates");
        Self { target, points: Points::of(top.path()), top }
    }

    /// A tree of files by path and content; an empty path component at the end means a directory, and no content a whiteout.
    pub(super) fn tree(&self, name: &str, files: &[(&str, Option<&str>)]) -> PathBuf {
        let root = self.top.path().join(name);
        fs::create_dir(&root).expect("creates");
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("creates");
            match content {
                Some(content) => fs::write(path, content).expect("writes"),
                None => {
                    let kind = rustix::fs::FileType::CharacterDevice;
                    rustix::fs::mknodat(CWD, &path, kind, Mode::empty(), 0).expect("makes a whiteout");
                }
            }
        }
        root
    }

    pub(super) fn image(&self, tree: &Path) -> PathBuf {
        let image = tree.with_extension("erofs");
        mkfs(&image, tree);
        image
    }

    pub(super) fn mount(
        &self,
        layers: &[Lower],
        writable: Option<&Path>,
        ways: KernelFeatures,
    ) -> Result<(), MountError> {
        OverlayAssembly { userxattr: false, points: Some(&self.points), compose: None, ways }.mount(
            layers,
            &self.target,
            writable,
        )
    }

    pub(super) fn unmount(&self) {
        unmount(&self.target).expect("unmounts");
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.target.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Loop devices that show a file of ours.
    pub(super) fn loops(&self) -> Vec<String> {
        let blocks = fs::read_dir("/sys/block").expect("readable").map(|entry| entry.expect("readable").path());
        let ours = |text: &String| text.contains(self.top.path().to_str().expect("text"));
        blocks.filter_map(|block| fs::read_to_string(block.join("loop/backing_file")).ok()).filter(ours).collect()
    }

    /// Mounts anywhere below this place.
    pub(super) fn mounts(&self) -> Vec<PathBuf> {
        let all = mounts_lenient().expect("readable").into_iter().map(|mount| mount.target);
        all.filter(|target| target.starts_with(self.top.path())).collect()
    }

    #[track_caller]
    pub(super) fn assert_nothing_left(&self) {
        assert_eq!(self.mounts(), Vec::<PathBuf>::new());
        let places = fs::read_dir(self.top.path().join("mounts")).map_or(0, Iterator::count);
        assert_eq!(places, 0, "places of mounts");
        // Another process may be the last one to close a device.
        let begin = std::time::Instant::now();
        while !self.loops().is_empty() {
            assert!(begin.elapsed().as_secs() < 20, "{:?}", self.loops());
            std::thread::yield_now();
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        while rustix::mount::unmount(&self.target, UnmountFlags::DETACH).is_ok() {}
        self.points.sweep().expect("sweeps");
    }
}

#[expect(clippy::disallowed_methods, reason = "file systems are made by their own tools")]
pub(super) fn mkfs(image: &Path, tree: &Path) {
    let output = std::process::Command::new("mkfs.erofs").arg("--quiet").arg(image).arg(tree).output();
    let output = output.expect("erofs-utils is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
