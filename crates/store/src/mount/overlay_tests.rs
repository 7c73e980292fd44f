//! The old way and the new one, with directories as layers. Needs root.

use std::fs;

use super::*;

/// Two layers and a place to mount on, which is unmounted in the end.
struct Bench {
    lower: Vec<PathBuf>,
    target: PathBuf,
    points: Points,
    top: tempfile::TempDir,
}

impl Bench {
    fn new(layers: usize) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let top = tempfile::tempdir().expect("tempdir");
        let make = |name: String| {
            let path = top.path().join(name);
            fs::create_dir(&path).expect("creates");
            path
        };
        let target = make("target".into());
        let lower: Vec<PathBuf> = (0..layers).map(|n| make(format!("layer {n}, with: odd\\characters"))).collect();
        let points = Points::of(top.path());
        for (n, layer) in lower.iter().enumerate() {
            fs::write(layer.join(format!("f{n}")), "x").expect("writes");
        }
        Self { lower, target, points, top }
    }

    fn overlay(&self) -> Overlay<'_> {
        let lower = self.lower.iter().cloned().map(Layer::At).collect();
        Overlay { lower, upper: None, userxattr: false, points: Some(&self.points) }
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.target).expect("readable").count()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        while rustix::mount::unmount(&self.target, rustix::mount::UnmountFlags::DETACH).is_ok() {}
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn the_old_way_takes_many_layers_and_any_path() {
    let bench = Bench::new(100);
    let overlay = bench.overlay();
    mount_classic(&overlay, &bench.target).expect("mounts");
    assert_eq!(bench.files(), 100);
    fs::write(bench.target.join("new"), "x").expect_err("read-only");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn the_old_way_can_be_written_to() {
    let bench = Bench::new(1);
    let (upper, work) = (bench.top.path().join("upper"), bench.top.path().join("work"));
    fs::create_dir(&upper).expect("creates");
    fs::create_dir(&work).expect("creates");
    let overlay = Overlay { upper: Some((upper.clone(), work)), userxattr: true, ..bench.overlay() };
    mount_classic(&overlay, &bench.target).expect("mounts");
    fs::write(bench.target.join("new"), "x").expect("writable");
    assert!(upper.join("new").exists());
}

/// Both ways are asked for one layer more than they can take, and for as many as they can.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_over_the_kernel_limit_are_merged_and_too_many_are_refused() {
    let old = KernelFeatures { new_overlay: false, ..KernelFeatures::default() };
    for (ways, most) in [(KernelFeatures::default(), 2 * MOST - 1), (old, 2 * MOST_CLASSIC - 1)] {
        let bench = Bench::new(most + 1);
        let failure = mount(bench.overlay(), &bench.target, ways).expect_err("too many");
        assert!(failure.source.to_string().contains(&format!("{} layers", most + 1)), "{failure:?}");
        let mut overlay = bench.overlay();
        drop(overlay.lower.pop());
        // What is hidden by a layer on top of the others stays hidden, wherever it is.
        for hidden in ["f1".to_owned(), format!("f{}", most - 1)] {
            make_whiteout(&bench.lower[0].join(hidden));
        }
        mount(overlay, &bench.target, ways).expect("mounts");
        assert_eq!(bench.files(), most - 2, "{ways:?}");
        bench.points.sweep().expect("sweeps");
        assert!(!bench.top.path().join("mounts").exists(), "nothing is left to sweep");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_beyond_the_kernels_number_can_be_written_on() {
    let bench = Bench::new(MOST + 10);
    let (upper, work) = (bench.top.path().join("upper"), bench.top.path().join("work"));
    for path in [&upper, &work] {
        fs::create_dir(path).expect("creates");
    }
    let overlay = Overlay { upper: Some((upper.clone(), work)), ..bench.overlay() };
    mount(overlay, &bench.target, KernelFeatures::default()).expect("mounts");
    fs::remove_file(bench.target.join(format!("f{}", MOST + 9))).expect("of the lowest layer");
    fs::write(bench.target.join("new"), "x").expect("writable");
    assert_eq!(bench.files(), MOST + 10);
}

fn make_whiteout(path: &Path) {
    let mode = Mode::from_raw_mode(0o000);
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::CharacterDevice, mode, 0).expect("makes a whiteout");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_the_kernel_says_is_passed_on() {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).expect("root may do this");
    let error = fsconfig_set_string(&context, "nonsense", "x").expect_err("no such option");
    let failure = explain(&context, "configure overlayfs for", error);
    let text = failure.source.to_string();
    assert!(text.contains("Invalid argument") && text.contains("Unknown parameter 'nonsense'"), "{text}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn one_layer_is_not_enough() {
    let bench = Bench::new(1);
    let Err(NewError::Failed(failure)) = mount_new(&bench.overlay(), &bench.target, KernelFeatures::default()) else {
        panic!("the caller adds one")
    };
    assert_eq!(failure.source.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(bench.files(), 0);
}
