//! `kill -9` of imagelet, and of containerd, at random moments of a pull. After each: what is visible is whole, the next pull succeeds and
//! fetches nothing that was committed, and nothing is on the way any more.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::{Duration, Instant};

use super::{Harbour, Pushed};
use crate::support::Imagelet;
use crate::support::pods::Pods;
use crate::support::process::{eventually, wait};
use crate::support::random::{Random, number};
use crate::support::tree::Tree;

/// Kills of each program in the quick form.
const KILLS: usize = 16;
const SEED: u64 = 0x1DEA_2026_1123;
/// Layers of the image that is pulled again and again.
const LAYERS: usize = 14;
/// A container is started after this many kills.
const STARTS: usize = 6;

struct Kills {
    h: Harbour,
    /// Stays all the time; the other one has its lowest layers.
    kept: (Pushed, Tree),
    app: (Pushed, Tree),
    random: Random,
    whole: Duration,
    committed: usize,
    survived: usize,
    killed: usize,
}

impl Kills {
    fn new(seed: u64) -> Self {
        let h = Harbour::new(512);
        let layers = h.layers("app", LAYERS, 60_000);
        let kept = h.push("kill/kept:1", &layers[..2]);
        let app = h.push("kill/app:1", &layers);
        h.imagelet.ok(&["pull", &kept.name]);
        let from = Instant::now();
        h.imagelet.ok(&["pull", &app.name]);
        let whole = from.elapsed();
        let (kept_tree, tree) = (h.tree(&kept.name), h.tree(&app.name));
        assert!(tree.len() > 100, "{}", tree.len());
        let random = Random(seed);
        let kills =
            Self { kept: (kept, kept_tree), app: (app, tree), random, whole, committed: 0, survived: 0, killed: 0, h };
        kills.remove("before the kills");
        kills
    }

    fn moment(&mut self, round: usize) -> Duration {
        // Every other kill aims at the last third: that is where most layers are put there.
        let least = if round.is_multiple_of(2) { 0.1 } else { 0.6 };
        self.whole.mul_f64(least + self.random.next() * (1.05 - least))
    }

    /// Removes the image; the content that only it used is removed with it.
    #[track_caller]
    fn remove(&self, context: &str) {
        self.h.plain.ok(&["rmi", &self.app.0.name]);
        let only = |h: &Harbour| h.committed().len() == self.kept.0.chains.len();
        eventually(&format!("{context}: snapshots of the removed image are gone: {:?}", self.h.snapshots()), || {
            only(&self.h)
        });
    }

    /// Checks the state after a kill, then the next pull, by `puller`.
    #[track_caller]
    fn after(&mut self, puller: &Imagelet, round: usize, context: &str) {
        let good = [(self.kept.0.name.as_str(), &self.kept.1), (self.app.0.name.as_str(), &self.app.1)];
        let visible = self.h.visible_are_whole(&good, context);
        assert!(visible.contains(&self.kept.0.name), "{context}: {visible:?}");
        self.survived += usize::from(visible.contains(&self.app.0.name));
        let there = self.h.committed();
        let before = self.h.s.registry.requests().len();
        let from = Instant::now();
        puller.ok(&["pull", &self.app.0.name]);
        if round.is_multiple_of(4) {
            // The machine may be busier now than it was.
            self.whole = (self.whole + from.elapsed()) / 2;
        }
        let requests = self.h.s.registry.requests().split_off(before);
        let read = |blob: &String| requests.iter().any(|r| r.starts_with("GET ") && r.contains(blob.as_str()));
        let of_layers = self.app.0.chains.iter().skip(self.kept.0.chains.len());
        let committed: BTreeSet<&String> =
            of_layers.filter(|(chain, _)| there.contains(chain)).map(|(_, blob)| blob).collect();
        let again: Vec<_> = committed.iter().filter(|blob| read(blob)).collect();
        assert_eq!(again, Vec::<&&String>::new(), "{context}: layers that were committed are fetched again");
        self.committed += committed.len();
        self.h.nothing_on_the_way(context);
        self.h.visible_are_whole(&good[1..], context);
        if round.is_multiple_of(STARTS) {
            let pods = Pods::on(&self.h.containerd);
            let pod = pods.run(&format!("web{round}"), &self.app.0.name);
            pods.remove(&pod);
        }
        self.remove(context);
    }

    #[expect(clippy::print_stdout, reason = "the figures that the long form is run for")]
    fn end(self, rounds: usize, what: &str, seed: u64) {
        let Self { h, committed, survived, killed, .. } = self;
        h.empty("at the end");
        assert!(killed >= rounds / 2, "seed {seed:#x}: only {killed} of {rounds} kills came in time");
        println!(
            "seed {seed:#x}: {killed} kills of {what} in {rounds} pulls, {survived} times the image was there already; {committed} committed \
             layers used by the next pull, 0 fetched again; 0 images that cannot start; nothing left"
        );
    }
}

/// Ends a child, if it has not ended by itself `after` this long. True: it was killed.
fn kill_after(mut child: Child, after: Duration) -> bool {
    let ended = wait(&mut child, after).is_some();
    let _ = child.kill();
    child.wait().expect("it is our child");
    !ended
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kills_of_imagelet_leave_images_whole_or_absent() {
    let (rounds, seed) = (number("IMAGELET_DROPIN_KILLS", KILLS), SEED + number("IMAGELET_SEED", 0) as u64);
    let mut kills = Kills::new(seed);
    let imagelet = kills.h.imagelet.clone();
    for round in 0..rounds {
        let moment = kills.moment(round);
        let context = format!("seed {seed:#x}, round {round}, imagelet killed after {moment:?} of {:?}", kills.whole);
        kills.killed += usize::from(kill_after(imagelet.spawn(&["pull", &kills.app.0.name]), moment));
        kills.after(&imagelet, round, &context);
    }
    kills.end(rounds, "imagelet", seed);
}

/// All pulls are made by one agent, which keeps running.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kills_of_containerd_leave_images_whole_or_absent() {
    let (rounds, seed) = (number("IMAGELET_DROPIN_KILLS", KILLS), SEED + 7 + number("IMAGELET_SEED", 0) as u64);
    let mut kills = Kills::new(seed);
    let socket = kills.h.s.scratch.join("front.sock");
    let mut agent = kills.h.imagelet.serve(&socket);
    let front = Imagelet::remote(&format!("unix://{}", socket.display())).global("--pull-engine", "runtime");
    for round in 0..rounds {
        let moment = kills.moment(round);
        let context = format!("seed {seed:#x}, round {round}, containerd killed after {moment:?} of {:?}", kills.whole);
        let mut pull = front.spawn(&["pull", &kills.app.0.name]);
        let ended = wait(&mut pull, moment).is_some();
        kills.h.containerd.kill();
        let output = pull.wait_with_output().expect("it is our child");
        kills.killed += usize::from(!ended);
        kills.h.containerd.start_again();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || said.contains("containerd: ") || said.contains("c.sock"),
            "{context}: {} {said}",
            output.status
        );
        // After failed attempts a client of gRPC does not connect for a while, up to three seconds.
        eventually(&format!("{context}: the agent reaches containerd"), || front.run(&["images"]).code == Some(0));
        kills.after(&front, round, &context);
    }
    agent.stop();
    kills.end(rounds, "containerd", seed);
}
