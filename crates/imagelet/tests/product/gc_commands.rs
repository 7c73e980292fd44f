//! `gc`, `pin`, `status` and `check` at the command line: tables and other formats, exit codes, wrong usage, contradictory
//! settings in the kubelet's words, and that nothing is removed while the containers are unknown. Which images are collected,
//! and when, has its own tests.

use serde_json::{Value, json};

use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

/// Two hours later, when no image of the test is young or protected, and with no round that begins because the disk of the tests happens
/// to be full.
fn later(imagelet: &Imagelet) -> Imagelet {
    imagelet.clone().later(2 * 3600).global("--image-gc-high-threshold", "100")
}

fn json_of(imagelet: &Imagelet, args: &[&str]) -> Value {
    let text = imagelet.ok(&[args, &["-o", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}\n{text}"))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn every_format_shows_removals_and_reasons_to_keep() {
    let s = Scene::on_a_disk();
    let (old, old_image) = s.push_file("gc/old:1", "a", vec![1_u8; 300_000]);
    let (base, base_image) = s.push_file("gc/base:1", "b", vec![2_u8; 100_000]);
    let (ahead, _) = s.push_file("gc/ahead:1", "c", "ahead");
    let imagelet = later(&s.imagelet);
    s.imagelet.ok(&["pull", &old, &base]);
    let young = s.imagelet.ok(&["gc", "--dry-run", "--all-unused"]);
    assert!(young.contains("too-young") && young.contains("every image is in use, kept or too young"), "{young}");
    s.imagelet.ok(&["pull", &ahead]);
    let explained = s.imagelet.clone().hasty().ok(&["gc", "explain", &ahead]);
    assert!(explained.contains("it stays: pulled before its use, and protected until "), "{explained}");
    imagelet.ok(&["rmi", &ahead]);

    let pinned = imagelet.ok(&["pin", &base]);
    assert_eq!(pinned.lines().count(), 2, "{pinned}");
    let wide = imagelet.ok(&["images", "-o", "wide"]);
    let marks: Vec<&str> = wide.lines().skip(1).filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(marks, ["true", "false"], "pins are shown:\n{wide}");

    let table = imagelet.ok(&["gc", "-n", "--all-unused"]);
    let row = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}\n{table}"));
        line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let (old_row, base_row) = (row(&old), row(&base));
    assert_eq!((old_row[4].as_str(), old_row[5].as_str()), ("remove", "unused"), "{table}");
    assert_eq!(
        (base_row[3].as_str(), base_row[4].as_str(), base_row[5].as_str()),
        ("-", "pinned", "pinned"),
        "{table}"
    );
    assert!(table.contains("Removing 1 image would free ") && table.contains(" (exact)."), "{table}");
    assert_eq!(imagelet.ok(&["gc", "-n", "--all-unused", "-o", "name"]), format!("{old}\n"));
    assert_eq!(imagelet.ok(&["gc", "-n", "--all-unused", "-q"]), format!("{}\n", old_image.id));
    assert!(imagelet.ok(&["gc", "-n", "--all-unused", "-o", "wide"]).contains("LAST USED"));
    assert!(imagelet.ok(&["gc", "-n", "--all-unused", "-o", "yaml"]).contains("decision: pinned"));

    let explained = json_of(&imagelet, &["gc", "explain", &old, &base]);
    assert_eq!(explained["images"][0]["collectable"], true, "{explained:#}");
    assert_eq!(
        (&explained["images"][1]["collectable"], &explained["images"][1]["decision"]),
        (&json!(false), &json!("pinned"))
    );
    let explained = imagelet.ok(&["gc", "explain", "gc/old", &base_image.id[..20]]
        .map(|word| if word == "gc/old" { old.strip_suffix(":1").expect("a tag") } else { word }));
    assert!(
        explained.contains("it stays while there is space") && explained.contains("it stays: pinned"),
        "{explained}"
    );

    let disk = &json_of(&imagelet, &["gc", "-n"])["disk"]["before"];
    let all = disk["availableBytes"].as_u64().expect("a number") + (1 << 40);
    let line = imagelet.fails(1, &["gc", "--until-free", &all.to_string()]);
    assert!(
        line.contains("the goal is not reached: ") && line.contains("kept: 1 image (") && line.contains(") pinned"),
        "{line}"
    );
    assert_eq!(imagelet.ids(), std::slice::from_ref(&base_image.id), "what could go went");
    assert!(imagelet.ok(&["gc", "--all-unused"]).starts_with("Nothing was removed"));

    assert_eq!(imagelet.ok(&["pins", "-o", "name"]), format!("{base}\n"));
    assert_eq!(imagelet.ok(&["pins", "-q"]), format!("{}\n", base_image.id));
    imagelet.ok(&["unpin", &base]);
    let line = imagelet.fails(1, &["unpin", &base]);
    assert!(line.contains(&format!("no such pin: {base}")), "{line}");
    let removed = imagelet.ok(&["gc", "--all-unused"]);
    assert!(removed.starts_with("REMOVED") && removed.contains("Removing 1 image freed "), "{removed}");
    assert!(imagelet.ids().is_empty());
    let sound = imagelet.ok(&["check"]);
    let (first, layers) = sound.split_once('\n').expect("two lines");
    assert_eq!(first, "Checked 0 layers (0B) and 0 images: everything is as it should be.");
    assert!(
        layers.starts_with("Layers on the disk: none yet; new ones become ") && layers.lines().count() == 1,
        "{sound}"
    );
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_dry_run_counts_ages_from_the_pull_and_shows_the_effect_of_now() {
    let s = Scene::new();
    let containerd = Containerd::start(s.registry.host());
    let endpoint = containerd.endpoint();
    let behind = s.imagelet.clone().global("--image-endpoint", &endpoint).global("--runtime-endpoint", &endpoint);
    let (name, _) = s.push_file("gc/young:1", "a", vec![1_u8; 300_000]);
    for imagelet in [s.imagelet.clone(), behind] {
        imagelet.ok(&["pull", &name]);
        let in_a_moment = imagelet.clone().later(44).global("--image-gc-high-threshold", "100");
        let dry = in_a_moment.ok(&["gc", "--dry-run", "--all-unused"]);
        let row = dry.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{dry}"));
        let age =
            row.split("pulled ").nth(1).and_then(|rest| rest.split('s').next()).unwrap_or_else(|| panic!("{row}"));
        assert!((44..60).contains(&age.parse::<u32>().unwrap_or_else(|_| panic!("{row}"))), "{row}");
        assert!(dry.contains("\nWith --now, 1 more image would be removed, which frees 3"), "{dry}");
        let now = in_a_moment.ok(&["gc", "--dry-run", "--all-unused", "--now"]);
        assert!(now.contains("Removing 1 image would free ") && !now.contains("With --now"), "{now}");
        let dry = in_a_moment.ok(&["gc", "--dry-run", "--until-free", "8000000TiB"]);
        assert!(dry.contains("\nThe goal cannot be reached: ") && dry.contains("kept: 1 image ("), "{dry}");
        assert!(in_a_moment.ids().len() == 1, "a dry run removes nothing");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn wrong_words_are_refused() {
    let s = Scene::new();
    let usage = [
        &["gc", "--until-free", "lots"][..],
        &["gc", "--until-free", "1G", "--all-unused"],
        &["gc", "--older-than", "7"],
        &["gc", "busybox"],
        &["gc", "explain"],
        &["gc", "explain", "Not A Name"],
        &["pin"],
        &["pin", "a b"],
        &["unpin", ""],
        &["--image-gc-keep", "x;weight=0", "gc"],
        &["--image-gc-order", "leastRecentlyUsed", "gc"],
    ];
    for args in usage {
        assert_eq!(s.imagelet.run(args).code, Some(2), "{args:?}");
    }
    let line = s.imagelet.fails(1, &["gc", "explain", "gc/nothing:1"]);
    assert!(line.contains("no such image: gc/nothing:1"), "{line}");
    let cases: [(&[&str], &str); 4] = [
        (
            &["--image-gc-high-threshold", "70"],
            "invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than \
             imageGCHighThresholdPercent (--image-gc-high-threshold) 70",
        ),
        (
            &["--image-maximum-gc-age", "1m"],
            "invalid configuration: imageMaximumGCAge 1m0s must be greater than imageMinimumGCAge 2m0s",
        ),
        (&["--minimum-image-ttl-duration=-1s"], "invalid configuration: imageMinimumGCAge -1s must not be negative"),
        (&["--eviction-hard", "imagefs.free<1Gi"], "invalid configuration: unsupported eviction signal imagefs.free"),
    ];
    for (flags, want) in cases {
        let line = s.imagelet.fails(64, &[flags, &["gc", "--dry-run"]].concat());
        assert!(line.contains(want), "{line}");
    }
    assert_eq!(s.imagelet.ids(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_answers_for_its_store_and_shows_what_is_pinned() {
    let s = Scene::on_a_disk();
    let imagelet = later(&s.imagelet);
    let (name, image) = s.push_file("gc/kept:1", "a", "kept");
    s.imagelet.ok(&["pull", &name]);
    let socket = s.scratch.join("cri.sock");
    let mut agent = imagelet.serve(&socket);
    imagelet.ok(&["pin", &name]);
    let through = Imagelet::remote(&format!("unix://{}", socket.display()));
    assert_eq!(through.images()[0]["pinned"], true, "as a kubelet in front sees it");
    let plan = json_of(&imagelet, &["gc", "--dry-run", "--all-unused"]);
    assert_eq!((&plan["images"][0]["decision"], &plan["exact"]), (&json!("pinned"), &json!(true)), "{plan:#}");
    let line = imagelet.fails(1, &["gc", "--until-free", "9000TB"]);
    assert!(line.contains("1 image (") && line.contains(" pinned"), "{line}");
    assert_eq!(json_of(&imagelet, &["status"])["imageCount"], 1);
    assert_eq!(json_of(&imagelet, &["check"])["imagesChecked"], 1);
    // Through its CRI socket the agent answers as well, by its own rules and pins.
    let through_cri = through.clone().global("--root", &s.scratch.join("other").display().to_string());
    through_cri.ok(&["gc", "--all-unused"]);
    let explained = through_cri.ok(&["gc", "explain", &name]);
    assert!(explained.contains("pinned"), "{explained}");
    assert_eq!(through_cri.images()[0]["pinned"], true);
    let metrics = imagelet.ok(&["metrics"]);
    assert!(metrics.contains("imagelet_image_gc_rounds_total{trigger=\"command\""), "{metrics}");
    imagelet.ok(&["unpin", &name]);
    assert_eq!(through.images()[0]["pinned"], false);
    // The image is young: the agent detected it a moment ago.
    let removed = json_of(&imagelet, &["gc", "--all-unused", "--min-age", "0s"]);
    assert_eq!((&removed["removed"][0]["id"], &removed["exact"]), (&json!(image.id), &json!(true)), "{removed:#}");
    agent.stop();
    assert!(imagelet.ids().is_empty());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_that_collects_must_know_the_containers() {
    let s = Scene::new();
    let listen = format!("unix://{}", s.scratch.join("cri.sock").display());
    let line = s.imagelet.fails(64, &["--image-gc=true", "serve", "--listen", &listen]);
    assert!(line.contains("imageGC.enabled is true and containerRuntimeEndpoint is not set"), "{line}");
}
