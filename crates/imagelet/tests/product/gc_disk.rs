//! Garbage collection on real file systems, ext4 and xfs of 2 GiB, filled by real pulls through the embedded store: when it
//! begins, where it ends, and that what a plan promises is what the disk shows.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::disk::{Foreign, LoopFs, Space};
use crate::support::gc::{decision, going, number, removed_names, row};
use crate::support::images::{self, Layer};
use crate::support::scene::Scene;
use crate::support::tree;
use crate::support::{Imagelet, Packing};

/// A layer of this many MiB in files of all sizes, which compresses well.
fn layer(s: &Scene, name: &str, mebibytes: usize) -> Layer {
    let tree = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
    let line = format!("{name} has this line again and again\n");
    let mut left = mebibytes << 20;
    let mut number = 0;
    while left > 1 << 16 {
        // Not whole blocks.
        let size = (left / 3).min(5 << 20) + 1234;
        images::write(&tree.path().join(format!("{name}/d{}/f{number}", number % 9)), line.repeat(size / line.len()));
        left = left.saturating_sub(size);
        number += 1;
    }
    for number in 0..300 {
        images::write(&tree.path().join(format!("{name}/small/{number}")), line.repeat(number % 50));
    }
    images::settle(tree.path());
    s.layout.layer(tree.path(), Packing::Zstd)
}

/// A disk with a store: three images on a common base, and three of their own.
struct Estate {
    s: Scene,
    disk: PathBuf,
    imagelet: Imagelet,
}

impl Estate {
    fn new(disk: LoopFs) -> Self {
        let s = Scene::new();
        let disk = disk.mount(&s.scratch, "disk");
        let imagelet = Imagelet::on(&disk.join("store")).hasty();
        let base = layer(&s, "base", 64);
        for name in ["app-1", "app-2", "app-3"] {
            let image = s.layout.image(&[base.clone(), layer(&s, name, 32)]);
            imagelet.ok(&["pull", &s.registry.push(&s.layout, &image, &format!("disk/{name}:1"))]);
        }
        for name in ["solo-1", "solo-2", "solo-3"] {
            let image = s.layout.image(&[layer(&s, name, 40)]);
            imagelet.ok(&["pull", &s.registry.push(&s.layout, &image, &format!("disk/{name}:1"))]);
        }
        Self { s, disk, imagelet }
    }

    fn space(&self) -> Space {
        Space::of(&self.disk)
    }

    /// A foreign file that makes the disk so full, half a percent below the next number.
    #[track_caller]
    fn fill(&self, used_percent: u64) {
        let capacity = self.space().capacity;
        Foreign::leaving(&self.disk, capacity * (200 - 2 * used_percent + 1) / 200);
        assert_eq!(self.space().used_percent(), used_percent);
    }

    /// Asserts that the plan, the collection and the disk agree on the freed bytes.
    #[track_caller]
    fn as_promised(&self, args: &[&str]) -> (Value, Value) {
        let plan = self.imagelet.plan(args);
        assert_eq!(plan["exact"], true, "{plan:#}");
        let before = self.space();
        let done = self.imagelet.collect(args);
        let after = self.space();
        assert_eq!(going(&plan), removed_names(&done), "what a dry run says happens");
        let (promised, told) = (number(&plan, "freesBytes"), number(&done, "freedBytes"));
        assert_eq!(promised, told, "{plan:#}\n{done:#}");
        let seen = after.free - before.free;
        // Directories and inodes are freed in blocks of their own, which only the file system accounts for.
        let rounding = after.inodes_free.saturating_sub(before.inodes_free) * 512 + (256 << 10);
        assert!(seen.abs_diff(promised) <= rounding, "promised {promised}, the disk shows {seen}, rounding {rounding}");
        (plan, done)
    }

    /// Asserts that the rest of the store is whole.
    #[track_caller]
    fn shows(&self, name: &str, files: usize) {
        let mounted = self.imagelet.mount(&self.s.registry.name(name), self.s.scratch.join("mnt"));
        assert!(tree::read(&mounted).len() > files, "{name} has {} entries", tree::read(&mounted).len());
        self.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    }
}

fn between_the_marks(disk: LoopFs) {
    let e = Estate::new(disk);
    e.fill(84);
    let (plan, done) = e.as_promised(&[]);
    assert_eq!((going(&plan), number(&plan, "wantedBytes")), (vec![], 0), "below the high mark nothing goes");
    assert_eq!((number(&done, "wantedBytes"), e.imagelet.ids().len()), (0, 6));

    e.fill(86);
    let start = e.space();
    let (plan, done) = e.as_promised(&[]);
    let wanted = number(&plan, "wantedBytes");
    // The commands before it write a few blocks of their own.
    let missing = start.capacity * 20 / 100 - start.free;
    assert!(wanted.abs_diff(missing) < 256 << 10, "down to the low mark: {wanted}, not {missing}");
    let space = e.space();
    assert!(space.used_percent() <= 80, "it ended at {}%", space.used_percent());
    let each: Vec<u64> = done["removed"].as_array().expect("a list").iter().map(|r| number(r, "freedBytes")).collect();
    let most = each.iter().copied().max().expect("something went");
    assert!(number(&done, "freedBytes") < wanted + most, "{each:?} for {wanted}: one too many");
    let told = number(&done["disk"]["after"], "availableBytes");
    assert!(told.abs_diff(space.free) < 256 << 10, "it says that {told} are free, the disk {}", space.free);

    let left = e.imagelet.images().len();
    assert_eq!(removed_names(&e.imagelet.collect(&[])), Vec::<String>::new(), "between the marks nothing goes");
    assert_eq!(e.imagelet.images().len(), left);
    for image in e.imagelet.images() {
        let name = image["repoTags"][0].as_str().and_then(|n| n.split_once('/')).expect("a name").1.to_owned();
        e.shows(&name, if name.contains("app") { 600 } else { 300 });
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_ext4_is_collected_between_the_marks() {
    between_the_marks(LoopFs::ext4(2048));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_xfs_is_collected_between_the_marks() {
    between_the_marks(LoopFs::xfs(2048));
}

fn to_the_byte(disk: LoopFs) {
    let e = Estate::new(disk);
    e.imagelet.ok(&["pin", &e.s.registry.name("disk/app-1:1")]);
    // A layer that a kept image has as well frees nothing; nor do two of the three that share it.
    let plan = e.imagelet.plan(&["--all-unused"]);
    assert_eq!(decision(&plan, "disk/app-1:1"), "pinned");
    for (name, mebibytes) in [("disk/app-2:1", 33), ("disk/app-3:1", 33), ("disk/solo-1:1", 41)] {
        let frees = number(row(&plan, name), "freesBytes");
        assert!(frees.abs_diff(mebibytes << 20) < 2 << 20, "{name}: {frees}");
    }
    let explained = e.imagelet.ok(&["gc", "explain", &e.s.registry.name("disk/app-1:1")]);
    assert!(explained.contains("pinned"), "{explained}");

    // At least this many bytes are freed, and no image more than needed.
    let until = e.space().free + (70 << 20);
    e.as_promised(&["--until-free", &until.to_string()]);
    assert!(e.space().free >= until, "{} of {until}", e.space().free);
    assert!(e.space().free < until + (42 << 20), "{} of {until}: too much", e.space().free);
    e.as_promised(&["--all-unused"]);
    assert_eq!(e.imagelet.images().len(), 1);
    e.shows("disk/app-1:1", 600);

    // The last of those that share it frees the base as well.
    e.imagelet.ok(&["unpin", &e.s.registry.name("disk/app-1:1")]);
    let (plan, _) = e.as_promised(&["--all-unused"]);
    assert!(number(&plan, "freesBytes") > 96 << 20, "{plan:#}");
    assert_eq!(e.imagelet.ids(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn on_ext4_what_is_promised_is_freed() {
    to_the_byte(LoopFs::ext4(2048));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn on_xfs_what_is_promised_is_freed() {
    to_the_byte(LoopFs::xfs(2048));
}
