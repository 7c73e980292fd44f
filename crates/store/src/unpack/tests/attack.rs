//! Layers that try to write outside their directory. Next to every layer directory is a canary, which [`Layer::unpack`] checks; a
//! case either fails with the text given, or leaves everything inside.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::support::Layer;
use crate::disk::layer::Shape;
use crate::tar::build::{Item, Tar};

/// Unpacks with `OUT` in names and targets standing for the directory of the canary, by both ways of opening.
fn attack(name: &str, make: impl Fn(&str) -> Tar, want: Result<(), &str>) {
    for (shape, stepwise) in [(Shape::Dir, false), (Shape::Dir, true), (Shape::Erofs, false)] {
        for privileged in [true, false] {
            let mut layer = Layer::of(shape);
            (layer.stepwise, layer.privileged) = (stepwise, privileged);
            let outside = layer.outside().into_os_string().into_string().unwrap();
            let got = layer.unpack(&make(&outside).end());
            match (got, want) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(text)) => {
                    let error = error.to_string();
                    assert!(error.contains(text), "{name}, {shape:?}: {error:?} does not say {text:?}");
                }
                (got, want) => panic!("{name}, {shape:?}: {got:?} instead of {want:?}"),
            }
        }
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn names_that_climb() {
    let leads_out = Err("leads out of the layer");
    attack("..", |_| Tar::new().file("../outside/canary", "dead"), leads_out);
    attack("deep ..", |_| Tar::new().dir("a").file("a/../../../outside/canary", "dead"), leads_out);
    attack("absolute ..", |_| Tar::new().file("/../../outside/canary", "dead"), leads_out);
    attack("directory ..", |_| Tar::new().item(&Item::new(b'5', "..").mode(0)), leads_out);
    attack("PAX ..", |_| Tar::new().pax(&[("path", b"../outside/new")]).file("a", "dead"), leads_out);
    attack("GNU ..", |_| Tar::new().meta(b'L', b"../outside/new\0").file("a", "dead"), leads_out);
    attack("link to ..", |_| Tar::new().link("a", "../outside/canary"), leads_out);
    attack("absolute name", |out| Tar::new().file(format!("{out}/new"), "inside"), Ok(()));
    attack("absolute name of the canary", |out| Tar::new().file(format!("{out}/canary"), "inside"), Ok(()));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn symbolic_links_as_parents() {
    let cases: &[(&str, &str)] =
        &[("climbing", "../../outside"), ("deep", "x/../../../../outside"), ("absolute", "OUT")];
    for (name, target) in cases {
        let link = |out: &str| Tar::new().symlink("l", target.replace("OUT", out));
        attack(name, |out| link(out).file("l/canary", "inside"), Ok(()));
        attack(name, |out| link(out).file("l/new", "inside"), Ok(()));
        attack(name, |out| link(out).dir("l/new/deep"), Ok(()));
        attack(name, |out| link(out).file("l/.wh.canary", ""), Ok(()));
        attack(name, |out| link(out).file("l/.wh..wh..opq", ""), Ok(()));
        attack(name, |out| link(out).item(&Item::new(b'5', "l").mode(0)), Ok(()));
        attack(name, |out| link(out).symlink("l/canary", "x"), Ok(()));
        attack(name, |out| link(out).item(&Item::new(b'6', "l/canary")), Ok(()));
        attack(name, |out| link(out).link("mine", "l/canary").file("mine", "dead"), Err("is not in the layer"));
        attack(name, |out| link(out).symlink("m", "l").file("m/canary", "inside"), Ok(()));
    }
    attack("itself", |_| Tar::new().symlink("l", "l").file("l/x", ""), Err("too many symbolic links"));
    attack(
        "a ring",
        |_| Tar::new().symlink("a", "b").symlink("b", "a/").file("a/x", ""),
        Err("too many symbolic links"),
    );
    attack("magic", |_| Tar::new().symlink("l", "/proc/self/root").file("l/tmp/x", "inside"), Ok(()));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directories_swapped_for_links() {
    // Directories are cached by descriptor: the swap must apply to all later entries.
    let swap = |out: &str| Tar::new().dir("d").file("d/a", "1").symlink("d", out);
    attack("file after the swap", |out| swap(out).file("d/canary", "inside"), Ok(()));
    attack("attributes after the swap", |out| swap(out).item(&Item::new(b'5', "d").mode(0).owner(9, 9)), Ok(()));
    attack("whiteout after the swap", |out| swap(out).file("d/.wh.canary", ""), Ok(()));
    // The modes and times of directories are set at the end: not through a link that was made later (CVE-2026-33056).
    attack(
        "deferred attributes",
        |out| Tar::new().item(&Item::new(b'5', "d/e").mode(0).owner(9, 9)).symlink("d", format!("{out}/..")),
        Ok(()),
    );
    attack(
        "deferred attributes of the last",
        |out| Tar::new().item(&Item::new(b'5', "d").mode(0o777).owner(9, 9)).symlink("d", out),
        Ok(()),
    );
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn final_links_are_not_followed() {
    let link = |out: &str| Tar::new().symlink("l", format!("{out}/canary"));
    attack("file over a link", |out| link(out).file("l", "dead"), Ok(()));
    attack("empty file over a link", |out| link(out).item(&Item::new(b'0', "l").mode(0o777).owner(9, 9)), Ok(()));
    attack("hard link to a link", |out| link(out).link("h", "l").file("h", "dead"), Ok(()));
    attack("attributes of a link", |out| Tar::new().item(&Item::new(b'2', "l").link(out).owner(9, 9).mode(0)), Ok(()));
    let xattr: &[(&str, &[u8])] = &[("SCHILY.xattr.user.evil", b"1")];
    attack("attributes through a link", |out| Tar::new().pax(xattr).symlink("l", format!("{out}/canary")), Ok(()));
    attack("device over a link", |out| link(out).item(&Item::new(b'3', "l").device(1, 3).mode(0)), Ok(()));
    attack("no target", |_| Tar::new().symlink("l", ""), Err("no valid target"));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn the_root_stays_a_directory() {
    attack(
        "link",
        |out| Tar::new().symlink(".", out).file("canary", "dead"),
        Err("the root of the layer a symbolic link"),
    );
    attack(
        "link, spelled otherwise",
        |out| Tar::new().symlink("a/..", out),
        Err("the root of the layer a symbolic link"),
    );
    attack("file", |_| Tar::new().file("./", "x"), Err("the root of the layer a file"));
    attack("hard link", |_| Tar::new().file("a", "").link("/", "a"), Err("the root of the layer a hard link"));
    attack("link to it", |_| Tar::new().link("a", "/"), Err("is not in the layer"));
    attack("link to a directory", |_| Tar::new().dir("d").link("a", "d"), Err("is a directory"));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn whiteouts_stay_in_their_directory() {
    attack("..", |_| Tar::new().dir("a").file("a/.wh...", ""), Err("leads out of its directory"));
    attack(".", |_| Tar::new().file(".wh..", ""), Err("leads out of its directory"));
    attack("nothing", |_| Tar::new().file(".wh.", ""), Err("names nothing"));
    attack("below ..", |_| Tar::new().file(".wh.../canary", ""), Err("below a whiteout"));
    attack("with a slash", |_| Tar::new().file(".wh.a/../../outside/canary", ""), Err("leads out of the layer"));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn attributes_that_would_reach_other_layers() {
    for name in [
        "trusted.overlay.opaque",
        "trusted.overlay.redirect",
        "trusted.overlay.metacopy",
        "trusted.overlay.whiteout",
        "trusted.else",
        "user.overlay.opaque",
        "user.overlay.redirect",
    ] {
        for shape in Shape::ALL {
            let layer = Layer::of(shape);
            let key = format!("SCHILY.xattr.{name}");
            let tar = Tar::new().pax(&[(&key, b"y")]).dir("d").pax(&[(&key, b"y")]).file("d/f", "1");
            let outcome = layer.unpack(&tar.end()).unwrap();
            assert_eq!(outcome.skipped_xattrs, 2, "{name}");
            assert_eq!(layer.picture()["d"], "dir 0755", "{name}");
            assert_eq!(layer.picture()["d/f"], "file 0644 1", "{name}");
        }
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn huge_names_end_in_limits() {
    let limit = Err("over the limit of");
    attack("one name", |_| Tar::new().file("n".repeat(256), ""), limit);
    attack("a path", |_| Tar::new().file("abcdefg/".repeat(600), ""), limit);
    attack("a deep path", |_| Tar::new().file("a/".repeat(300), ""), limit);
    attack("a target", |_| Tar::new().symlink("a", "t/".repeat(3000)), limit);
    attack(
        "depth by links",
        |_| {
            let tar = Tar::new().dir("a/".repeat(250)).symlink("l", "a/".repeat(250));
            tar.dir(format!("l/{}", "b/".repeat(100)))
        },
        limit,
    );
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_parent_that_is_no_directory() {
    attack("file", |_| Tar::new().file("a", "").file("a/b", ""), Err("needs it to be a directory"));
    attack("fifo", |_| Tar::new().item(&Item::new(b'6', "a")).file("a/b/c", ""), Err("needs it to be a directory"));
    attack("link to a file", |_| Tar::new().file("f", "").symlink("a", "f").file("a/b", ""), Err("needs it to be"));
    attack("hard link through a file", |_| Tar::new().file("f", "").link("a", "f/x"), Err("needs it to be"));
    let over_its_parent = |_: &str| Tar::new().file("d/b/a", "x").link("d", "d/b/a");
    attack("over its parent", over_its_parent, Err("the target \"d/b/a\" of the hard link"));
    attack("missing", |_| Tar::new().link("a/b", "no/where"), Err("the target \"no/where\" of the hard link"));
    attack("a whiteout", |_| Tar::new().file(".wh.a", "").link("b", "a"), Err("is not in the layer"));
    attack("a directory above it", |_| Tar::new().link("b/a", "b"), Err("is not in the layer"));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn who_swaps_directories_for_links_meanwhile_gets_nothing() {
    // CVE-2025-47290. Without the second wall, so that it is the first one that holds.
    let mut tar = Tar::new();
    for n in 0..200 {
        let dir = |path: &str| Item::new(b'5', path).mode(0o777).owner(9, 9);
        tar = tar.item(&dir("d")).item(&dir("d/e")).file("d/canary", "dead").file(format!("d/e/{n}"), "dead");
        tar = tar.symlink("d/l", "x").link("d/h", "d/canary").file("d/.wh.canary", "").link("d/e/h", "d/h");
    }
    let tar = tar.end();
    for stepwise in [false, true] {
        let mut swaps = 0;
        // How each time ends is the racer's doing.
        while swaps < 300 {
            let layer = Layer::new();
            let (d, away, outside) = (layer.fs().join("d"), layer.fs().join("away"), layer.outside());
            let ended = AtomicBool::new(false);
            let race = || {
                let mut swaps = 0;
                while !ended.load(Ordering::Relaxed) {
                    swaps += u64::from(std::fs::rename(&d, &away).is_ok() && symlink(&outside, &d).is_ok());
                    let _ = std::fs::remove_file(&d);
                    let _ = std::fs::rename(&away, &d);
                }
                swaps
            };
            std::thread::scope(|scope| {
                let racer = scope.spawn(race);
                let _ = layer.unpack_unconfined(&tar, stepwise);
                ended.store(true, Ordering::Relaxed);
                swaps += racer.join().unwrap();
            });
            layer.check_canary();
        }
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn links_that_something_else_puts_into_the_store_are_refused() {
    // Nothing but this process writes there; if something does, descriptors must not lead out.
    for stepwise in [false, true] {
        let mut layer = Layer::new();
        layer.stepwise = stepwise;
        symlink(layer.outside(), layer.fs().join("d")).unwrap();
        layer.unpack(&Tar::new().file("d/new", "inside").end()).unwrap();
        assert!(layer.fs().join("d").is_symlink(), "taken for one of the layer's, and resolved inside");
    }
    let layer = Layer::new();
    std::fs::remove_dir(layer.fs()).unwrap();
    symlink(layer.outside(), layer.fs()).unwrap();
    let error = layer.unpack(&Tar::new().file("new", "outside").end()).unwrap_err();
    assert!(error.to_string().contains("opening"), "{error}");
}
