//! Garbage collection through Debian's containerd on real file systems: what it frees is measured after each removal, what
//! containers use stays, and so does the image of the sandboxes.

use std::path::PathBuf;

use serde_json::json;

use crate::support::containerd::Setup;
use crate::support::disk::{Foreign, LoopFs, Space};
use crate::support::gc::{decision, going, number, removed_names, row};
use crate::support::images;
use crate::support::pods::{Pods, idle_image};
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, Packing};

const PAUSE: &str = "infra/pause:1";
const USED: &str = "team/used:1";

/// A containerd whose root is on a disk of its own, with a pod that runs, and unused images.
struct Harbour {
    imagelet: Imagelet,
    pods: Pods,
    _containerd: Containerd,
    disk: PathBuf,
    s: Scene,
}

impl Harbour {
    fn new(disk: LoopFs, unused: usize, mebibytes: usize) -> Self {
        let s = Scene::new();
        let disk = disk.mount(&s.scratch, "disk");
        let setup = Setup {
            root: Some(disk.join("containerd")),
            sandbox_image: Some(s.registry.name(PAUSE)),
            ..Setup::default()
        };
        let containerd = Containerd::with(s.registry.host(), setup);
        let endpoint = containerd.endpoint();
        let imagelet = s
            .imagelet
            .clone()
            .hasty()
            .global("--image-endpoint", &endpoint)
            .global("--runtime-endpoint", &endpoint)
            .global("--pod-infra-container-image", &s.registry.name(PAUSE));
        let pause = idle_image(&s, &[]);
        let used = idle_image(&s, &[s.file_layer("data", "used", Packing::Gzip)]);
        let mut all = vec![s.registry.push(&s.layout, &pause, PAUSE), s.registry.push(&s.layout, &used, USED)];
        for number in 0..unused {
            let tree = s.scratch.directory("tree");
            let line = format!("image {number} has this line again and again\n");
            images::write(&tree.join(format!("big-{number}")), line.repeat((mebibytes << 20) / line.len()));
            images::settle(&tree);
            let image = s.layout.image(&[s.layout.layer(&tree, Packing::Gzip)]);
            std::fs::remove_dir_all(&tree).expect("remove a tree");
            all.push(s.registry.push(&s.layout, &image, &format!("team/unused-{number}:1")));
        }
        for name in &all {
            imagelet.ok(&["pull", name]);
        }
        let pods = Pods::on(&containerd);
        Self { imagelet, pods, _containerd: containerd, disk, s }
    }

    fn space(&self) -> Space {
        Space::of(&self.disk)
    }
}

fn measured(disk: LoopFs) {
    let h = Harbour::new(disk, 6, 40);
    let pod = h.pods.run("web", &h.s.registry.name(USED));
    let plan = h.imagelet.plan(&["--all-unused"]);
    assert_eq!((decision(&plan, USED), decision(&plan, PAUSE)), ("in-use", "in-use"));
    let why = row(&plan, USED)["why"].as_str().expect("a text").to_owned();
    assert!(why.contains("shop/web/main"), "by whom: {why}");
    // containerd says what each layer takes, and which images share it.
    assert_eq!((going(&plan).len(), &plan["exact"]), (6, &json!(true)));

    // A container that has ended still has its image.
    h.pods.stop(&pod);
    let capacity = h.space().capacity;
    Foreign::leaving(&h.disk, capacity * 29 / 200);
    assert_eq!(h.space().used_percent(), 86);
    let before = h.space();
    let done = h.imagelet.collect(&[]);
    let after = h.space();
    assert!(after.used_percent() <= 80, "it ended at {}%: {done:#}", after.used_percent());
    let wanted = before.capacity * 20 / 100 - before.free;
    let (freed, seen) = (number(&done, "freedBytes"), after.free - before.free);
    assert!(seen >= wanted && freed.abs_diff(seen) < 4 << 20, "wanted {wanted}, freed {freed}, the disk shows {seen}");
    // Each frees forty MiB and a little: not one more than that takes.
    let least = usize::try_from(wanted.div_ceil(42 << 20)).expect("a few");
    assert!((least..=least + 1).contains(&removed_names(&done).len()), "{wanted} bytes: {done:#}");
    assert_eq!(removed_names(&h.imagelet.collect(&[])), Vec::<String>::new(), "between the marks nothing goes");

    let left = h.imagelet.collect(&["--all-unused"]);
    assert_eq!(removed_names(&left).len() + removed_names(&done).len(), 6);
    let plan = h.imagelet.plan(&["--all-unused"]);
    assert_eq!((decision(&plan, USED), decision(&plan, PAUSE)), ("in-use", "in-use"));
    h.pods.remove(&pod);

    // The image is not used any more, and was used a moment ago: a restart and another day do not change when that was.
    let older = |days: i64| {
        let plan = h.imagelet.clone().later(days * 24 * 3600).plan(&["--older-than", "7d"]);
        decision(&plan, USED).to_owned()
    };
    assert_eq!((older(6), older(8)), ("used-within".to_owned(), "remove".to_owned()));
    assert_eq!(removed_names(&h.imagelet.collect(&["--all-unused"])), [USED]);
    assert_eq!(h.imagelet.images().len(), 1, "the image of the sandboxes stays");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn on_ext4_what_containerd_frees_is_measured() {
    measured(LoopFs::ext4(2048));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn on_xfs_what_containerd_frees_is_measured() {
    measured(LoopFs::xfs(2048));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_containerd_without_a_byte_is_freed() {
    let h = Harbour::new(LoopFs::ext4(256), 2, 30);
    let pod = h.pods.run("web", &h.s.registry.name(USED));
    Foreign::leaving(&h.disk, 0);
    let done = h.imagelet.collect(&["--all-unused"]);
    assert_eq!(removed_names(&done).len(), 2);
    assert!(h.space().free > 50 << 20, "{:?}", h.space());
    assert_eq!(h.imagelet.images().len(), 2);
    h.pods.remove(&pod);
}
