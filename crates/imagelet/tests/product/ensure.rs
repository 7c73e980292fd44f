//! `imagelet ensure`: the examples, every kind of object, every place of an image, the policies, and that a second run
//! does nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::process::{run, tool};
use crate::support::scene::{Scene, blobs_in};
use crate::support::{Imagelet, Packing};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/")
}

/// Writes a manifest in which `REG` stands for the registry.
fn manifest(s: &Scene, name: &str, text: &str) -> String {
    let path = s.scratch.join(name);
    fs::write(&path, text.replace("REG", s.registry.host())).expect("write a manifest");
    path.display().to_string()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn every_example_works_against_a_registry_that_has_its_images() {
    let mut seen = 0;
    let mut paths: Vec<PathBuf> = fs::read_dir(repository().join("examples"))
        .expect("the examples")
        .map(|e| e.expect("an entry").path())
        .collect();
    paths.sort();
    for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "yaml")) {
        let text = fs::read_to_string(path).expect("read an example");
        if !text.contains("apiVersion: v1\n")
            && !text.contains("apiVersion: apps/v1\n")
            && !text.contains("apiVersion: batch/v1\n")
        {
            continue;
        }
        seen += 1;
        // A store of its own: examples have images in common.
        let s = Scene::new();
        let served = text.replace("127.0.0.1:5555", "REG");
        for line in served.lines().filter(|l| l.contains("REG/")) {
            let name = line.split("REG/").nth(1).expect("it has one").trim_matches(['"', '\'', ' ']);
            let tagged = if name.contains(':') { name.to_owned() } else { format!("{name}:latest") };
            s.push_file(&tagged, "from", name);
        }
        let file = manifest(&s, "example.yaml", &served);
        let explained = s.imagelet.ok(&["explain", "-f", &file]);
        assert!(explained.contains("pull") || explained.contains("Pull"), "{}:\n{explained}", path.display());
        s.imagelet.ok(&["ensure", "-f", &file]);
        assert!(!s.imagelet.images().is_empty());
    }
    assert!(seen >= 1, "no example is a manifest");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn every_kind_and_every_place_of_an_image_counts() {
    let s = Scene::new();
    let names =
        ["pod", "init", "ephemeral", "volume", "deployment", "statefulset", "daemonset", "job", "cronjob", "stdin"];
    for name in names {
        s.push_file(&format!("kinds/{name}:1"), name, name);
    }
    let workload = |version: &str, kind: &str, name: &str| {
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      containers:\n      - {{name: main, image: 'REG/kinds/{name}:1'}}\n---\n"
        )
    };
    let text = [
        "apiVersion: v1\nkind: Pod\nmetadata: {name: pod}\nspec:\n  initContainers:\n  - {name: init, image: 'REG/kinds/init:1'}\n  \
         ephemeralContainers:\n  - {name: debug, image: 'REG/kinds/ephemeral:1'}\n  containers:\n  - {name: main, image: 'REG/kinds/pod:1'}\n  \
         volumes:\n  - name: data\n    image: {reference: 'REG/kinds/volume:1'}\n---\n"
            .to_owned(),
        workload("apps/v1", "Deployment", "deployment"),
        workload("apps/v1", "StatefulSet", "statefulset"),
        workload("apps/v1", "DaemonSet", "daemonset"),
        workload("batch/v1", "Job", "job"),
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: cronjob}\nspec:\n  schedule: '* * * * *'\n  jobTemplate:\n    spec:\n      \
         template:\n        spec:\n          containers:\n          - {name: main, image: 'REG/kinds/cronjob:1'}\n"
            .to_owned(),
    ]
    .concat();
    let file = manifest(&s, "all.yaml", &text);
    s.imagelet.ok(&["ensure", "-f", &file]);
    let stdin = "apiVersion: v1\nkind: Pod\nmetadata: {name: in}\nspec: {containers: [{name: a, image: 'REG/kinds/stdin:1'}]}\n";
    let done = s.imagelet.run_with_input(&["ensure", "-f", "-"], &stdin.replace("REG", s.registry.host()));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let listed = s.imagelet.ok(&["images", "-o", "name"]);
    for name in names {
        assert!(listed.contains(&format!("kinds/{name}:1")), "{name} is missing:\n{listed}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_second_ensure_does_nothing() {
    let s = Scene::new();
    s.push_file("twice/fixed:1", "a", "fixed");
    s.push_file("twice/moving:latest", "a", "moving");
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: fixed, image: 'REG/twice/fixed:1'}\n  - {name: moving, image: REG/twice/moving}\n";
    let file = manifest(&s, "pod.yaml", text);
    let first = s.reads_while(&["ensure", "-f", &file]);
    assert_eq!(blobs_in(&first), 4, "two configs and two layers: {first:?}");
    let second = s.reads_while(&["ensure", "-f", &file]);
    assert_eq!(blobs_in(&second), 0, "no blob again: {second:?}");
    assert!(!second.iter().any(|r| r.contains("/twice/fixed/")), "IfNotPresent asks nobody: {second:?}");
    assert!(second.iter().any(|r| r.contains("/twice/moving/manifests/latest")), "Always asks for the tag: {second:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn policies_hold_and_one_failure_stops_no_other() {
    let s = Scene::new();
    s.push_file("policy/there:1", "a", "there");
    let pod = |containers: &str| {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n{containers}")
    };
    let never = pod("  - {name: n, image: 'REG/policy/there:1', imagePullPolicy: Never}\n");
    let never = manifest(&s, "never.yaml", &never);
    let said = s.imagelet.run(&["ensure", "-f", &never]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("ErrImageNeverPull"), "{}", said.stderr);
    assert_eq!(s.imagelet.ids().len(), 0);

    let mixed =
        pod("  - {name: missing, image: 'REG/policy/missing:1'}\n  - {name: there, image: 'REG/policy/there:1'}\n");
    let mixed = manifest(&s, "mixed.yaml", &mixed);
    let said = s.imagelet.run(&["ensure", "-f", &mixed]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("ErrImagePull") && said.stderr.contains("policy/missing:1"), "{}", said.stderr);
    assert_eq!(s.imagelet.ids().len(), 1, "the other one came");
    s.imagelet.ok(&["ensure", "-f", &never]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn explain_touches_nothing() {
    let s = Scene::new();
    let (name, _) = s.push_file("explain/it:1", "a", "x");
    let text =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: 'REG/explain/it:1'}]}\n";
    let file = manifest(&s, "pod.yaml", text);
    let asked = s.reads_while(&["explain", "-f", &file]);
    assert_eq!(asked, Vec::<String>::new(), "nothing is asked of the registry");
    let elsewhere = s.scratch.join("nobody-made-it");
    let there = Imagelet::on(&elsewhere).ok(&["explain", "-f", &file]);
    assert!(there.contains("not present"), "{there}");
    assert!(!elsewhere.exists(), "no root is made for the question");
    let records = s.scratch.join("store/image_manager");
    assert!(!records.exists(), "nor a directory of records");
    assert_eq!(s.imagelet.ids().len(), 0);
    let before = s.imagelet.ok(&["explain", &name, "--policy", "IfNotPresent"]);
    s.imagelet.ok(&["pull", &name]);
    let after = s.imagelet.ok(&["explain", &name, "--policy", "IfNotPresent"]);
    assert_ne!(before, after, "the decision depends on what is there");
}

/// A digest in a pod's manifest stands for what has it, also where an archive says otherwise and no registry is asked.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pod_pinned_to_a_digest_gets_nothing_else() {
    let s = Scene::new();
    let [wanted, other] = ["wanted", "other"].map(|text| s.layout.image(&[s.file_layer("a", text, Packing::Gzip)]));
    let name = format!("{}/pin/app@{}", s.registry.host(), wanted.manifest.digest);
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - {{name: c, image: '{name}', imagePullPolicy: Never}}\n"
    );
    let never = manifest(&s, "never.yaml", &text);
    let layouts = [("wanted", &wanted), ("other", &other)].map(|(word, image)| {
        s.layout.name(image, word);
        let to = s.scratch.join(word).display().to_string();
        let from = format!("oci:{}:{word}", s.layout.path().display());
        run(tool("skopeo").args(["copy", "-q", "--preserve-digests", &from, &format!("oci:{to}:x")]));
        to
    });
    for shape in ["dir", "erofs"] {
        let imagelet = Imagelet::on(&s.scratch.join(&format!("store-{shape}"))).global("--layer-format", shape);
        imagelet.fails(1, &["import", &layouts[1], "--name", &name]);
        let said = imagelet.run(&["ensure", "-f", &never]);
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        assert!(said.stderr.contains("ErrImageNeverPull"), "{}", said.stderr);
        imagelet.ok(&["import", &layouts[0], "--name", &name]);
        imagelet.ok(&["ensure", "-f", &never]);
        assert_eq!(imagelet.ids(), [wanted.id.as_str()]);
    }
}
