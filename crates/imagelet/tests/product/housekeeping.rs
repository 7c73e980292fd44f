//! Content that is made, counted and removed: queries make no store, `df` counts as `du` does, and collection by command removes
//! unused content at once, and the leftovers of interrupted pulls.

use std::fs;
use std::path::Path;

use registry::testing::{Fault, ImageBuilder, LayerBuilder, TestRegistry};
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::process::signal;
use crate::support::{Imagelet, Scratch, runtime};

fn registry() -> (Runtime, TestRegistry) {
    let runtime = runtime();
    let registry = runtime.block_on(TestRegistry::open());
    (runtime, registry)
}

fn json(imagelet: &Imagelet, args: &[&str]) -> Value {
    let text = imagelet.ok(&[args, &["-o", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}\n{text}"))
}

const NO_STORE: &str = " INFO no store exists in ROOT, so that it has no images\n";

/// Words that are typed, standard output, the lines of standard error below the first one, and the exit code.
const QUESTIONS: [(&[&str], &str, &str, i32); 22] = [
    (&["images"], "IMAGE   TAG   IMAGE ID   ON DISK\n", "", 0),
    (&["images", "-q"], "", "", 0),
    (&["images", "busybox"], "IMAGE   TAG   IMAGE ID   ON DISK\n", "", 0),
    (&["images", "-o", "json"], "{\n  \"images\": []\n}\n", "", 0),
    (&["df", "-q"], "", "", 0),
    (&["pins"], "PIN   IMAGES   NAME\n", "", 0),
    (&["mount"], "IMAGE   IMAGE ID   DIRECTORY   ACCESS\n", "", 0),
    (&["inspect", "busybox"], "[]\n", "error: no such image: busybox\n", 1),
    (&["ls", "busybox"], "", "error: ls busybox: no such image: busybox\n", 1),
    (&["cat", "busybox", "/a"], "", "error: cat busybox: no such image: busybox\n", 1),
    (&["cp", "busybox:/a", "."], "", "error: cp busybox:/a: no such image: busybox\n", 1),
    (&["export", "busybox", "-o", "x"], "", "error: export to x: no such image: busybox\n", 1),
    (&["mount", "busybox", "/mnt"], "", "error: no such image: busybox\n", 1),
    (&["rmi", "busybox"], "", "error: no such image: busybox\n", 1),
    (&["rmi", "--all"], "", "", 0),
    (&["unpin", "busybox"], "", "error: no such pin: busybox; `imagelet pins` lists them\n", 1),
    (&["gc", "--dry-run", "--all-unused", "-q"], "", "", 0),
    (&["gc", "--all-unused", "--now", "-q"], "", "", 0),
    (&["gc", "explain", "busybox"], "", "error: no such image: busybox\n", 1),
    (&["gc", "--interrupted"], "Interrupted pulls left nothing.\n", "", 0),
    (&["check"], "Checked 0 layers (0B) and 0 images: everything is as it should be.\n", "", 0),
    (&["explain", "busybox", "-q"], "pull\n", "", 0),
];

#[test]
fn questions_make_nothing() {
    let scratch = Scratch::new();
    let root = scratch.join("above/typo");
    fs::create_dir(scratch.join("above")).expect("a directory");
    let imagelet = Imagelet::on(&root);
    let ask = |args: &[&str], stdout: &str, stderr: &str, code: i32| {
        let done = imagelet.run(args);
        let note = if args.contains(&"-q") { "" } else { NO_STORE };
        let want = (note.to_owned() + stderr).replace("ROOT", &root.display().to_string());
        assert_eq!((&*done.stdout, &*done.stderr, done.code), (stdout, &*want, Some(code)), "imagelet {args:?}");
    };
    for (args, stdout, stderr, code) in QUESTIONS {
        ask(args, stdout, stderr, code);
        assert!(!root.exists(), "imagelet {args:?} makes a root");
    }
    let status = json(&imagelet, &["status"]);
    assert_eq!(status["imageFs"]["path"], scratch.join("above").display().to_string().as_str());
    assert!(!root.exists(), "the status makes a root");

    // The directory that the program keeps for the images of a runtime is no store either.
    fs::create_dir_all(root.join("image_gc")).expect("a directory");
    for (args, stdout, stderr, code) in QUESTIONS {
        ask(args, stdout, stderr, code);
    }
    let names: Vec<_> =
        fs::read_dir(&root).expect("the root").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["image_gc"]);
}

/// Behind an endpoint there are images, and the root has nothing of them.
#[test]
fn questions_about_images_of_a_runtime_make_nothing() {
    let scratch = Scratch::new();
    let socket = scratch.join("cri.sock");
    let agent =
        Imagelet::on(&scratch.join("store")).daemon(&["serve", "--listen", &format!("unix://{}", socket.display())]);
    agent.wait_for("where it serves", |line| line.starts_with("unix://").then_some(()));
    let root = scratch.join("typo");
    let imagelet = Imagelet::on(&root).global("--image-endpoint", &format!("unix://{}", socket.display()));
    for args in [&["images"][..], &["df"], &["pins"], &["status"], &["rmi", "--all"]] {
        let done = imagelet.run(args);
        assert_eq!((done.code, &*done.stderr), (Some(0), ""), "imagelet {args:?}");
        assert!(!root.exists(), "imagelet {args:?} makes a root");
    }
    imagelet.fails(1, &["inspect", "busybox"]);
    assert!(!root.exists());
}

fn bytes_below(path: &Path) -> u64 {
    let meta = fs::symlink_metadata(path).expect("it is there");
    let below = if meta.is_dir() {
        fs::read_dir(path).expect("a directory").map(|entry| bytes_below(&entry.expect("an entry").path())).sum()
    } else {
        0
    };
    below + std::os::unix::fs::MetadataExt::blocks(&meta) * 512
}

#[test]
fn what_df_counts_is_what_du_counts() {
    let (_runtime, registry) = registry();
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("store"));
    let layer = LayerBuilder::new().file("big", vec![b'x'; 3 << 20]).build();
    let image = ImageBuilder::new().platform("linux/amd64".parse().expect("a platform"));
    registry.push("df/big", "1", &image.layer(layer).build());
    imagelet.ok(&["pull", &format!("{}/df/big:1", registry.host())]);
    let df = json(&imagelet, &["df"]);
    assert_eq!(df["store"]["reserveBytes"], 8 << 20);
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number: {df}"));
    let counted = [&df["total"]["usedBytes"], &df["store"]["reserveBytes"], &df["store"]["recordsBytes"]];
    let (df, du) = (counted.into_iter().map(count).sum::<u64>(), bytes_below(&scratch.join("store")));
    assert!(du.abs_diff(df) < 256 << 10, "df {df}, du {du}");
    let table = imagelet.ok(&["df"]);
    let row = table.lines().find(|line| line.starts_with("reserve")).unwrap_or_else(|| panic!("no row:\n{table}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>().join(" "), "reserve 8.39MB freed when the disk is full");
}

/// A recent image is removed on request, together with its protection, by this process and by an agent that pulled it.
#[test]
fn unused_images_are_removed_on_request() {
    let (_runtime, registry) = registry();
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("store"));
    registry.push("gc/young", "1", &ImageBuilder::tiny("young"));
    registry.push("gc/kept", "1", &ImageBuilder::tiny("kept"));
    let [young, kept] = ["young", "kept"].map(|name| format!("{}/gc/{name}:1", registry.host()));
    let listen = format!("unix://{}", scratch.join("cri.sock").display());
    for agent in [false, true] {
        let _agent = agent.then(|| {
            let daemon = imagelet.daemon(&["serve", "--listen", &listen]);
            daemon.wait_for("where it serves", |line| line.starts_with("unix://").then_some(()));
            daemon
        });
        imagelet.ok(&["pull", &young, &kept]);
        imagelet.ok(&["pin", &kept]);
        imagelet.ok(&["gc", "--all-unused"]);
        assert_eq!(imagelet.ids().len(), 2, "they are too young");
        let plan = json(&imagelet, &["gc", "--all-unused", "--now", "--dry-run"]);
        let rows = plan["images"].as_array().expect("images");
        let row = |name: &str| {
            let mut named =
                rows.iter().filter(|row| row["names"].as_array().is_some_and(|all| all.contains(&name.into())));
            named.next().unwrap_or_else(|| panic!("no {name}: {plan}"))
        };
        assert_eq!((&row(&young)["decision"], &row(&kept)["decision"]), (&"remove".into(), &"pinned".into()), "{plan}");
        assert!(row(&young)["protectedUntil"].is_string(), "{plan}");
        let table = imagelet.ok(&["gc", "--all-unused", "--now"]);
        let removed =
            table.lines().find(|line| line.starts_with(&young)).unwrap_or_else(|| panic!("not removed:\n{table}"));
        assert!(removed.contains("unused, although it was protected until 20"), "{table}");
        assert_eq!(imagelet.ok(&["images", "-o", "name"]).trim(), kept);
    }
}

#[test]
fn leftovers_of_interrupted_pulls_are_listed_and_removed() {
    let (_runtime, registry) = registry();
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("store"));
    // Bytes that do not shrink: a layer is worth being kept from a megabyte on.
    let mut state = 1_u64;
    let noise = (0..3 << 20).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    let whole = LayerBuilder::new().file("whole", noise.collect::<Vec<u8>>()).build();
    let other = LayerBuilder::new().file("other", "x").build();
    let image =
        ImageBuilder::new().platform("linux/amd64".parse().expect("a platform")).layer(whole).layer(other).build();
    registry.push("gc/cut", "1", &image);
    registry.push("gc/there", "1", &ImageBuilder::tiny("there"));
    let [cut, there] = ["cut", "there"].map(|name| format!("{}/gc/{name}:1", registry.host()));
    imagelet.ok(&["pull", &there]);
    let last = image.blobs().last().expect("blobs").0;
    registry.faults().always(&format!("/blobs/{last}"), Fault::Hang);
    let leave = || {
        let mut pull = imagelet.daemon(&["pull", &cut]);
        pull.wait_for("a layer that is whole", |line| line.contains(" done").then_some(()));
        signal(pull.pid(), Signal::INT);
        assert_eq!(pull.ends(), Some(130));
    };
    leave();
    let df = imagelet.ok(&["df"]);
    assert!(df.contains("unfinished pulls") && df.contains("1 layer, 0 parts"), "{df}");
    let plan = imagelet.ok(&["--image-gc-high-threshold", "100", "gc", "--dry-run"]);
    assert!(
        plan.contains("Interrupted pulls left 1 layer, 0 parts (3") && plan.contains("`imagelet gc --interrupted`"),
        "{plan}"
    );
    let dry = imagelet.ok(&["gc", "--interrupted", "--dry-run"]);
    assert!(dry.starts_with("Removing 1 layer, 0 parts of interrupted pulls would free 3."), "{dry}");
    let gone = imagelet.ok(&["gc", "--interrupted"]);
    assert!(gone.starts_with("Removing 1 layer, 0 parts of interrupted pulls freed 3."), "{gone}");
    assert_eq!(imagelet.ok(&["gc", "--interrupted"]), "Interrupted pulls left nothing.\n");
    assert_eq!(imagelet.ok(&["images", "-o", "name"]).trim(), there, "no image goes");
    leave();
    let value = json(&imagelet, &["gc", "--interrupted"]);
    assert_eq!(value["unfinishedPulls"]["layers"], 1);
    assert!(value["freedBytes"].as_u64().is_some_and(|bytes| bytes > 3 << 20), "{value}");
}
