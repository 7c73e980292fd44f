//! The output of commands in each of their forms, frozen in tests/outputs. `FREEZE=1` rewrites the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use crate::support::frozen::{Frozen, is_frozen, steady};
use crate::support::node::{FOREVER, Node};
use crate::support::process::Daemon;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch};

/// The forms of every command that has lists.
const FORMS: [&[&str]; 6] = [&[], &["-o", "wide"], &["-o", "json"], &["-o", "yaml"], &["-o", "name"], &["-q"]];

/// Commands and their output.
struct Outputs<'a> {
    imagelet: &'a Imagelet,
    known: Vec<(String, &'a str)>,
    measured: bool,
    /// As many lines of an output are kept.
    lines: usize,
    texts: BTreeMap<String, String>,
}

impl<'a> Outputs<'a> {
    fn new(imagelet: &'a Imagelet, known: Vec<(String, &'a str)>) -> Self {
        Self { imagelet, known, measured: true, lines: usize::MAX, texts: BTreeMap::new() }
    }

    /// Runs a command, and keeps under its name what it wrote, lines of errors behind `!`.
    fn run(&mut self, args: &[&str]) {
        let done = self.imagelet.run(args);
        let mut text = format!("$ imagelet {}\n{}", args.join(" "), done.stdout);
        // Of what is done side by side, either may be reported first.
        let mut errors: Vec<&str> = done.stderr.lines().collect();
        errors.sort_unstable();
        errors.into_iter().for_each(|line| text = format!("{text}! {line}\n"));
        let mut text = steady(&text, &self.known, self.measured);
        if let Some((cut, _)) = text.match_indices('\n').nth(self.lines) {
            text.truncate(cut);
            text.push_str("\n… and so on\n");
        }
        if done.code != Some(0) {
            let _ = writeln!(text, "exit code {}", done.code.unwrap_or(-1));
        }
        let of = self.texts.entry(args[0].to_owned()).or_default();
        let _ = writeln!(of, "{text}");
    }

    /// Runs a command in every form, and with two expressions.
    fn forms(&mut self, args: &[&str], expressions: &[&str]) {
        for form in FORMS {
            self.run(&[args, form].concat());
        }
        for expression in expressions {
            self.run(&[args, &["-o", expression]].concat());
        }
    }

    #[track_caller]
    fn are_frozen(self, directory: &'static str) {
        is_frozen(&Frozen { directory, texts: self.texts });
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn commands_of_images_write_what_is_frozen() {
    let s = Scene::on_a_disk();
    let (one, _) = s.push_file("team/one:1", "a", vec![1_u8; 100_000]);
    let (two, _) = s.push_file("team/two:1", "b", vec![2_u8; 50_000]);
    let missing = s.registry.name("team/none:1");
    let manifest = s.scratch.join("pod.yaml");
    let containers = [("a", &one), ("b", &missing)]
        .map(|(name, image)| json!({"name": name, "image": image, "imagePullPolicy": "IfNotPresent"}));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": containers}});
    std::fs::write(&manifest, pod.to_string()).expect("written");
    let manifest = manifest.display().to_string();
    let imagelet = s.imagelet.clone().hasty().global("--image-gc-high-threshold", "100").global("--progress", "none");
    let known = vec![(s.scratch.path().display().to_string(), "/DIR"), (s.registry.host().to_owned(), "REGISTRY")];
    let mut outputs = Outputs::new(&imagelet, known);
    outputs.run(&["images"]);
    outputs.forms(&["pull", &one], &[]);
    imagelet.ok(&["pull", &two]);
    imagelet.ok(&["pin", &two]);
    let names = [
        "jsonpath={range .containers[*]}{.container}{\" \"}{.result}{\"\\n\"}{end}",
        "custom-columns=C:.container,R:.result",
    ];
    outputs.forms(&["ensure", "-f", &manifest], &names);
    outputs.forms(&["explain", "-f", &manifest], &["jsonpath={.decisions[*].decision}"]);
    let tags = ["jsonpath={.images[*].repoTags[0]}", "custom-columns=ID:.id,TAGS:.repoTags[*]"];
    outputs.forms(&["images"], &tags);
    outputs.forms(&["inspect", &one], &["jsonpath={[0].config.architecture}"]);
    outputs.forms(&["df"], &["jsonpath={.images[*].id}"]);
    outputs.forms(&["history", &one], &[]);
    outputs.forms(&["pins"], &["jsonpath={.pins[*].pattern}"]);
    outputs.forms(&["status"], &["jsonpath={.conditions[0].type}"]);
    let decisions = ["jsonpath={.images[*].decision}", "custom-columns=IMAGE:.names[0],DECISION:.decision"];
    outputs.forms(&["gc", "--dry-run", "--all-unused"], &decisions);
    outputs.forms(&["gc", "explain", &one], &[]);
    let mut agent: Daemon = imagelet.serve(&s.scratch.join("cri.sock"));
    outputs.known.push((format!("process {}", agent.pid()), "process N"));
    outputs.run(&["top"]);
    outputs.forms(&["backoff"], &[]);
    agent.stop();
    outputs.run(&["gc", "--all-unused"]);
    outputs.run(&["inspect", &one]);
    outputs.run(&["rmi", &two]);
    outputs.are_frozen("outputs/images");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn commands_of_pods_write_what_is_frozen() {
    let node = Node::new();
    let mut main = node.container("main", FOREVER);
    main["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    node.write("web.json", &node.pod("web", json!({"terminationGracePeriodSeconds": 1, "containers": [main]})));
    node.ready("web");
    let registry = node.scene.registry.host().to_owned();
    let known = vec![(node.scene.scratch.path().display().to_string(), "/DIR"), (registry, "REGISTRY")];
    let mut outputs = Outputs::new(&node.imagelet, known);
    outputs.known.push((node.containerd.endpoint(), "RUNTIME"));
    let names = ["jsonpath={.items[*].metadata.name}", "custom-columns=NAME:.metadata.name,PHASE:.status.phase"];
    outputs.forms(&["pods"], &names);
    outputs.forms(
        &["events"],
        &["jsonpath={.items[*].reason}", "custom-columns=REASON:.reason,OBJECT:.involvedObject.name"],
    );
    outputs.run(&["describe", "web"]);
    outputs.run(&["top"]);
    outputs.run(&["pods", "none"]);
    outputs.are_frozen("outputs/pods");
    node.clear();
}

#[test]
fn config_writes_what_is_frozen() {
    let scratch = Scratch::new();
    let file = scratch.join("config.yaml");
    let text = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\nroot: /var/lib/images\nnodeName: edge\nevictionHard:\n  \
                imagefs.available: 10%\nimageGC:\n  keep: [registry.example/base/*]\n";
    std::fs::write(&file, text).expect("written");
    let imagelet = Imagelet::bare().global("--config", &file.display().to_string()).global("--log-level", "warn");
    let mut outputs = Outputs::new(&imagelet, vec![(scratch.path().display().to_string(), "/DIR")]);
    // All settings are in docs/configuration.md, which a test holds against the program.
    (outputs.measured, outputs.lines) = (false, 30);
    outputs.forms(&["config"], &["jsonpath={.imageGC.keep[0]}"]);
    outputs.forms(&["config", "print"], &["jsonpath={.items[?(@.field==\"root\")].value}"]);
    outputs.forms(&["config", "check", &file.display().to_string()], &[]);
    std::fs::write(&file, text.replace("edge", "[]")).expect("written");
    outputs.run(&["config", "check", &file.display().to_string()]);
    outputs.are_frozen("outputs/config");
}
