//! Other users of the same containerd while our engine pulls: its collection, its own pulls, second processes, removals. And layers
//! that are already present, whichever client pulled them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use registry::testing::{Fault, ImageBuilder, LayerBuilder, TestRegistry};
use tokio::runtime::Runtime;

use super::{Harbour, Pushed, differences};
use crate::support::cli::end_of;
use crate::support::gate::Gate;
use crate::support::pods::Pods;
use crate::support::process::{eventually, run};
use crate::support::tree::Tree;

/// The files of an image as containerd's own pull has them. The image is removed again.
#[track_caller]
fn as_containerd_has_it(h: &Harbour, image: &Pushed) -> Tree {
    h.plain.ok(&["pull", &image.name]);
    let tree = h.tree(&image.name);
    h.empty("containerd's own pull");
    tree
}

#[track_caller]
fn is_whole(h: &Harbour, name: &str, good: &Tree, context: &str) {
    assert_eq!(differences(good, &h.tree(name)), Vec::<String>::new(), "{context}: {name}");
}

/// Runs `pull` while a thread has containerd collect garbage all the time.
fn while_it_collects(h: &Harbour, pull: impl FnOnce()) -> usize {
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let collector = {
        let (over, count) = (Arc::clone(&over), Arc::clone(&count));
        let ctr = |args: &[&str]| {
            let mut command = h.containerd.ctr();
            command.args(args);
            command
        };
        let (mut create, mut delete) =
            (ctr(&["leases", "create", "--id", "of-nothing"]), ctr(&["leases", "delete", "--sync", "of-nothing"]));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                run(&mut create);
                run(&mut delete);
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    pull();
    over.store(true, Ordering::Relaxed);
    collector.join().expect("containerd collects");
    count.load(Ordering::Relaxed)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pulls_while_containerd_collects_all_the_time() {
    let h = Harbour::new(256);
    let layers = h.layers("gc", 12, 40_000);
    let (half, app) = (h.push("gc/half:1", &layers[..6]), h.push("gc/app:1", &layers));
    let good = as_containerd_has_it(&h, &app);
    let collections = while_it_collects(&h, || {
        for round in 0..6 {
            h.imagelet.ok(&["pull", &app.name]);
            is_whole(&h, &app.name, &good, &format!("round {round}"));
            // In every other round some of the layers are already present.
            if round % 2 == 0 {
                h.imagelet.ok(&["pull", &half.name]);
            }
            h.plain.ok(&["rmi", &app.name]);
            if round % 2 == 1 {
                h.plain.ok(&["rmi", &half.name]);
            }
        }
    });
    assert!(collections > 10, "{collections}");
    h.empty("at the end");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn two_processes_and_containerd_pull_one_image_at_once() {
    let h = Harbour::new(256);
    let app = h.push("crowd/app:1", &h.layers("crowd", 10, 40_000));
    let good = as_containerd_has_it(&h, &app);
    for round in 0..5 {
        let context = format!("round {round}");
        let mut pullers = vec![h.imagelet.spawn(&["pull", &app.name]), h.imagelet.spawn(&["pull", &app.name])];
        // A client of containerd's own, which has a lease of its own.
        pullers.push(h.plain.spawn(&["pull", &app.name]));
        if round % 2 == 1 {
            pullers.reverse();
        }
        for puller in pullers {
            let output = puller.wait_with_output().expect("it is our child");
            assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
        }
        is_whole(&h, &app.name, &good, &context);
        h.nothing_on_the_way(&context);
        h.empty(&context);
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_layer_on_another_chain_is_linked() {
    let h = Harbour::new(256);
    let layers = h.layers("link", 5, 200_000);
    let one = h.push("link/one:1", &layers);
    // The second has its own layer below those that both have.
    let other = [vec![h.layer("link-other", 0, 10_000)], layers.clone()].concat();
    let two = h.push("link/two:1", &other);
    let good = as_containerd_has_it(&h, &two);
    h.imagelet.ok(&["pull", &one.name]);
    let asked = h.pull(&two.name);
    // Another repository provided them: the registry is asked, and they are not fetched. One takes attributes from the layers below.
    let dependent = &layers[2].blob.digest.to_string();
    for layer in layers.iter().filter(|layer| layer.blob.digest.to_string() != *dependent) {
        let blob = layer.blob.digest.to_string();
        assert!(asked.heads.contains(&blob) && !asked.read.contains(&blob), "{blob}: {:?}", asked.read);
    }
    assert!(asked.read.contains(dependent));
    is_whole(&h, &two.name, &good, "linked");
    // Neither image depends on the other: one is removed, the other stays whole.
    h.plain.ok(&["rmi", &one.name]);
    eventually("the layers of the first are gone", || h.committed().len() == two.chains.len());
    is_whole(&h, &two.name, &good, "the first is gone");
    let pods = Pods::on(&h.containerd);
    let pod = pods.run("linked", &two.name);
    pods.remove(&pod);
    h.empty("at the end");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_containerd_has_of_a_pull_that_was_killed_is_in_nobodys_way() {
    let mut h = Harbour::new(256);
    let mut layers = h.layers("half", 4, 40_000);
    layers.push(h.layer("half-top", 0, 8 << 20));
    let app = h.push("half/app:1", &layers);
    let good = as_containerd_has_it(&h, &app);
    let runtime = Runtime::new().expect("a runtime");
    let gate = runtime.block_on(Gate::start(h.s.registry.host().to_owned()));
    gate.hold_answers_after(4 << 20);
    let mut pull = h.plain.spawn(&["pull", &format!("{}/half/app:1", gate.host())]);
    runtime.block_on(gate.reached());
    eventually("containerd has some of the layers", || h.committed().len() >= 2);
    h.containerd.kill();
    assert!(!end_of(&mut pull).success());
    gate.open();
    h.containerd.start_again();
    let there = h.committed();
    assert!(h.visible().is_empty());
    h.imagelet.ok(&["pull", &app.name]);
    is_whole(&h, &app.name, &good, "after containerd's own");
    assert!(there.is_subset(&h.committed()));
    let pods = Pods::on(&h.containerd);
    let pod = pods.run("half", &app.name);
    pods.remove(&pod);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn registry_decides_about_layers_of_another_repository() {
    let h = Harbour::new(256);
    let runtime = Runtime::new().expect("a runtime");
    let registry = runtime.block_on(TestRegistry::open());
    let layer = |name: &str| LayerBuilder::new().file(name, name.repeat(3000)).build();
    let image = ImageBuilder::new().layer(layer("a")).layer(layer("b")).layer(layer("c")).build();
    for repository in ["team/a", "team/b", "team/c"] {
        registry.push(repository, "1", &image);
    }
    let blobs: Vec<String> = image.layers.iter().map(|layer| layer.descriptor.digest.to_string()).collect();
    let asked = |repository: &str, blob: &String| -> Vec<String> {
        let of = format!("/v2/{repository}/blobs/{blob}");
        registry
            .requests()
            .iter()
            .filter(|request| request.path == of)
            .map(|request| request.method.to_string())
            .collect()
    };
    h.imagelet.ok(&["pull", &format!("{}/team/a:1", registry.host())]);
    assert_eq!(asked("team/a", &blobs[1]), ["GET"]);
    // It has them all.
    h.imagelet.ok(&["pull", &format!("{}/team/b:1", registry.host())]);
    for blob in &blobs {
        assert_eq!(asked("team/b", blob), ["HEAD"]);
    }
    // It says no to the first question: it is asked again, or the layer is fetched.
    registry.faults().once(&format!("/v2/team/c/blobs/{}", blobs[1]), Fault::status(404));
    h.imagelet.ok(&["pull", &format!("{}/team/c:1", registry.host())]);
    assert_eq!(asked("team/c", &blobs[0]), ["HEAD"]);
    let asked = asked("team/c", &blobs[1]);
    assert!(asked == ["HEAD", "GET"] || asked == ["HEAD", "HEAD"], "{asked:?}");
    assert_eq!(h.visible().len(), 3);
    h.nothing_on_the_way("three names");
    h.empty("at the end");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn removal_takes_no_layer_of_a_running_pull() {
    let h = Harbour::new(256);
    let shared = h.layers("rmi", 5, 40_000);
    let one = h.push("rmi/one:1", &shared);
    let two = h.push("rmi/two:1", &[shared, vec![h.layer("rmi-top", 0, 8 << 20)]].concat());
    let good = as_containerd_has_it(&h, &two);
    h.imagelet.ok(&["pull", &one.name]);
    let runtime = Runtime::new().expect("a runtime");
    let gate = runtime.block_on(Gate::start(h.s.registry.host().to_owned()));
    gate.hold_answers_after(4 << 20);
    let name = format!("{}/rmi/two:1", gate.host());
    let pull = h.imagelet.spawn(&["pull", &name]);
    runtime.block_on(gate.reached());
    h.plain.ok(&["rmi", &one.name]);
    assert!(h.visible().is_empty());
    gate.open();
    let output = pull.wait_with_output().expect("it is our child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_whole(&h, &name, &good, "the other image was removed meanwhile");
    h.nothing_on_the_way("the other image was removed meanwhile");
    h.empty("at the end");
}
