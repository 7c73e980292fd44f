//! Tests of the rollout of one set: nodes are simulated, the steps are those of the controller.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::{NodeCursor, SetPhase, SetReport};
use crate::release::may_start;

/// A set with simulated nodes.
struct Scene {
    set: ImageSet,
    /// Phase of each node and the generation that it reports.
    nodes: BTreeMap<String, (SetPhase, i64)>,
    silent: Vec<String>,
    now: i64,
    phases: Vec<&'static str>,
}

fn image(name: &str, digest: Option<&str>) -> ResolvedImage {
    ResolvedImage { name: name.into(), digest: digest.map(str::to_owned), ..ResolvedImage::default() }
}

impl Scene {
    fn new(nodes: usize, spec: &Value) -> Self {
        let mut object = json!({
            "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
            "metadata": {"name": "set", "uid": "uid", "generation": 1},
            "spec": {"images": [{"name": "app:1"}], "nodeSelector": {}},
        });
        object["spec"].as_object_mut().expect("a spec").extend(spec.as_object().expect("fields").clone());
        let set = serde_json::from_value(object).expect("a set");
        let nodes = (0..nodes).map(|index| (format!("n{index}"), (SetPhase::Waiting, 0))).collect();
        Self { set, nodes, silent: Vec::new(), now: 1000, phases: Vec::new() }
    }

    fn status(&self) -> ImageSetStatus {
        self.set.status.clone().unwrap_or_default()
    }

    fn cursor(name: &str) -> NodeCursor {
        NodeCursor { creation_time: Time(Timestamp::from_second(1).expect("a time")), name: name.into() }
    }

    fn edit(&mut self, change: impl FnOnce(&mut ImageSetSpec)) {
        change(&mut self.set.spec);
        *self.set.metadata.generation.as_mut().expect("a generation") += 1;
    }

    /// Runs one pass of the controller, after which every node that may start pulls.
    fn pass(&mut self, resolved: Option<&[ResolvedImage]>) -> Advanced {
        let now = Timestamp::from_second(self.now).expect("a time");
        let begun = begin(&self.set, resolved, now);
        let generation = begun.status.rollout_generation;
        let reports: BTreeMap<&String, SetReport> = self
            .nodes
            .iter()
            .filter(|(_, (_, reported))| Some(*reported) == generation)
            .map(|(name, (phase, _))| (name, SetReport { phase: *phase, ..SetReport::default() }))
            .collect();
        let view = |name: &String| NodeView {
            node: Self::cursor(name),
            set: reports.get(name),
            images: Vec::new(),
            is_silent: self.silent.contains(name),
        };
        let views: Vec<NodeView<'_>> = self.nodes.keys().map(view).collect();
        let observed = Observed { set: &self.set, views: &views, is_paused: false, free: usize::MAX, now };
        let advanced = advance(begun, &observed);
        self.set.status = Some(advanced.status.clone());
        self.phases.push(advanced.phase.reason());
        self.phases.dedup();
        self.now += 10;
        self.start();
        advanced
    }

    fn start(&mut self) {
        let status = self.status();
        let generation = status.rollout_generation.unwrap_or_default();
        for (name, (phase, reported)) in &mut self.nodes {
            if *reported != generation {
                (*phase, *reported) = (SetPhase::Waiting, generation);
            }
            if *phase == SetPhase::Waiting && may_start(&status, "uid", &Self::cursor(name)) {
                *phase = SetPhase::Pulling;
            }
        }
    }

    fn count(&self, phase: SetPhase) -> usize {
        self.nodes.values().filter(|(known, _)| *known == phase).count()
    }

    /// All nodes that pull end like this.
    fn end(&mut self, end: SetPhase) {
        self.nodes.values_mut().filter(|(phase, _)| *phase == SetPhase::Pulling).for_each(|(phase, _)| *phase = end);
    }

    fn complete(&mut self, resolved: &[ResolvedImage]) {
        for _ in 0..100 {
            if self.pass(Some(resolved)).phase == Phase::Complete {
                return;
            }
            self.end(SetPhase::Ready);
        }
        panic!("not complete: {:?}", self.phases);
    }

    fn condition(&self, name: &str) -> String {
        let status = self.status();
        let condition = status.conditions.iter().find(|condition| condition.type_ == name).expect("the condition");
        format!("{} {}", condition.status, condition.reason)
    }
}

#[test]
fn a_rollout_proceeds_in_waves_until_every_node_is_ready() {
    let mut scene = Scene::new(10, &json!({"rollout": {"maxConcurrent": 3}}));
    let (one, two) = ([image("app:1", Some("sha256:1"))], [image("app:1", Some("sha256:2"))]);
    assert_eq!(scene.pass(None).phase, Phase::Resolving);
    assert_eq!((scene.count(SetPhase::Pulling), scene.status().observed_generation), (0, None));
    for _ in 0..4 {
        // The tag moves; the rollout keeps its digest.
        let advanced = scene.pass(Some(if scene.count(SetPhase::Ready) == 0 { &one } else { &two }));
        assert!(scene.count(SetPhase::Pulling) <= 3 && advanced.in_progress <= 3);
        scene.end(SetPhase::Ready);
    }
    assert_eq!(scene.pass(Some(&two)).phase, Phase::Complete);
    assert_eq!(scene.phases, ["Resolving", "RollingOut", "Complete"]);
    let status = scene.status();
    assert_eq!(status.resolved, one);
    assert_eq!(status.last_complete, Some(CompletedRollout { generation: 1, images: one.to_vec() }));
    assert_eq!([scene.condition("Ready"), scene.condition("Degraded")], ["True AllNodesReady", "False AsExpected"]);
}

#[test]
fn an_edit_of_the_rollout_continues_it_and_other_images_begin_another() {
    let mut scene = Scene::new(10, &json!({}));
    let one = [image("app:1", Some("sha256:1"))];
    scene.pass(Some(&one));
    let released = scene.status().released;
    scene.edit(|spec| spec.rollout.paused = true);
    scene.end(SetPhase::Ready);
    assert_eq!(scene.pass(None).phase, Phase::Paused);
    assert_eq!((scene.status().released, scene.status().rollout_generation), (released.clone(), Some(1)));
    assert_eq!((scene.status().observed_generation, scene.count(SetPhase::Pulling)), (Some(2), 0));
    scene.edit(|spec| spec.rollout.paused = false);
    scene.now += 100_000;
    assert_eq!(scene.pass(None).phase, Phase::RollingOut, "the time of the pause does not count");
    assert_eq!(scene.count(SetPhase::Pulling), 1);
    scene.edit(|spec| spec.images[0].name = "app:2".into());
    assert_eq!(scene.pass(None).phase, Phase::Resolving);
    assert_eq!(scene.status().rollout_generation, Some(1), "the rollout before applies until the tags are resolved");
    let two = [image("app:2", Some("sha256:2"))];
    assert_eq!(scene.pass(Some(&two)).phase, Phase::RollingOut);
    assert_eq!((scene.status().rollout_generation, scene.status().resolved), (Some(4), two.to_vec()));
}

#[test]
fn digests_are_added_and_never_changed() {
    let mut scene = Scene::new(1, &json!({"images": [{"name": "a:1"}, {"name": "b:1"}]}));
    scene.pass(Some(&[image("a:1", Some("sha256:1")), image("b:1", None)]));
    assert_eq!(scene.condition("Resolved"), "False Unresolved");
    scene.end(SetPhase::Ready);
    scene.pass(None);
    assert_eq!(scene.condition("Ready"), "False Unresolved");
    assert_eq!(scene.status().last_complete, None);
    scene.pass(Some(&[image("a:1", Some("sha256:9")), image("b:1", Some("sha256:2"))]));
    assert_eq!(scene.status().resolved, [image("a:1", Some("sha256:1")), image("b:1", Some("sha256:2"))]);
}

#[test]
fn too_many_failures_stop_the_rollout_until_nodes_recover() {
    let mut scene = Scene::new(10, &json!({"rollout": {"maxConcurrent": 3, "maxFailed": "20%"}}));
    let one = [image("app:1", Some("sha256:1"))];
    scene.pass(Some(&one));
    scene.end(SetPhase::Failed);
    assert_eq!(scene.pass(None).phase, Phase::TooManyFailures);
    assert_eq!(scene.count(SetPhase::Pulling), 0);
    assert_eq!(scene.condition("Degraded"), "True TooManyFailures");
    let first = scene.nodes.values_mut().find(|(phase, _)| *phase == SetPhase::Failed).expect("a failed node");
    first.0 = SetPhase::Ready;
    assert_eq!(scene.pass(None).phase, Phase::RollingOut);
    assert_eq!((scene.count(SetPhase::Pulling), scene.condition("Degraded")), (3, "True NodesFailed".to_owned()));
}

#[test]
fn a_silent_node_is_lost_and_frees_its_place() {
    let mut scene = Scene::new(4, &json!({"rollout": {"maxConcurrent": 1, "maxFailed": 1}}));
    scene.pass(Some(&[image("app:1", Some("sha256:1"))]));
    let name = scene.nodes.iter().find(|(_, (phase, _))| *phase == SetPhase::Pulling).expect("a node").0.clone();
    scene.silent.push(name);
    scene.pass(None);
    assert_eq!(scene.status().nodes.map(|nodes| (nodes.lost, nodes.waiting)), Some((1, 3)));
    assert_eq!((scene.count(SetPhase::Pulling), scene.condition("Degraded")), (2, "True NodesLost".to_owned()));
}

#[test]
fn a_rollout_without_progress_exceeds_its_deadline() {
    let mut scene = Scene::new(4, &json!({"rollout": {"progressDeadline": "60s", "maxFailed": 4}}));
    scene.pass(Some(&[image("app:1", Some("sha256:1"))]));
    scene.pass(None);
    assert_eq!(scene.condition("Degraded"), "False AsExpected");
    scene.now += 60;
    assert_eq!(scene.pass(None).phase, Phase::DeadlineExceeded);
    assert_eq!(scene.condition("Progressing"), "False ProgressDeadlineExceeded");
    scene.end(SetPhase::Ready);
    assert_eq!(scene.pass(None).phase, Phase::RollingOut);
}

#[test]
fn a_node_that_joins_a_complete_set_is_no_stall() {
    let mut scene = Scene::new(4, &json!({}));
    scene.complete(&[image("app:1", Some("sha256:1"))]);
    scene.now += 1_000_000;
    scene.nodes.insert("young".into(), (SetPhase::Waiting, 0));
    assert_eq!(scene.pass(None).phase, Phase::RollingOut);
    scene.pass(None);
    assert_eq!(scene.count(SetPhase::Pulling), 1);
}

#[test]
fn a_failed_rollout_returns_to_the_last_complete_one() {
    let mut scene = Scene::new(4, &json!({"rollout": {"onFailure": "Rollback"}}));
    let (one, two) = ([image("app:1", Some("sha256:1"))], [image("app:2", Some("sha256:2"))]);
    scene.complete(&one);
    scene.edit(|spec| spec.images[0].name = "app:2".into());
    scene.pass(Some(&two));
    scene.end(SetPhase::Failed);
    assert_eq!(scene.pass(None).phase, Phase::RollingBack);
    let status = scene.status();
    assert_eq!((status.rollout_generation, status.rolled_back_from), (Some(1), Some(2)));
    assert_eq!((status.resolved.as_slice(), status.released), (one.as_slice(), None));
    for _ in 0..4 {
        scene.pass(None);
        scene.end(SetPhase::Ready);
    }
    assert_eq!(scene.pass(None).phase, Phase::RolledBack);
    assert_eq!([scene.condition("Ready"), scene.condition("Degraded")], ["False RolledBack", "True RolledBack"]);
    // The failed images are not tried again before an edit.
    scene.edit(|spec| spec.pin = false);
    assert_eq!(scene.pass(Some(&two)).phase, Phase::RolledBack);
    scene.edit(|spec| spec.images[0].name = "app:3".into());
    assert_eq!(scene.pass(Some(&[image("app:3", Some("sha256:3"))])).phase, Phase::RollingOut);
}

#[test]
fn a_first_rollout_has_nothing_to_return_to() {
    let mut scene = Scene::new(4, &json!({"rollout": {"onFailure": "Rollback"}}));
    scene.pass(Some(&[image("app:1", Some("sha256:1"))]));
    scene.end(SetPhase::Failed);
    assert_eq!(scene.pass(None).phase, Phase::TooManyFailures);
}

#[test]
fn a_set_of_mode_once_finishes_and_expires() {
    let spec = json!({"mode": "Once", "ttlSecondsAfterFinished": 30, "rollout": {"maxConcurrent": 4, "maxFailed": 4}});
    let mut scene = Scene::new(2, &spec);
    scene.pass(Some(&[image("app:1", Some("sha256:1"))]));
    scene.end(SetPhase::Failed);
    let advanced = scene.pass(None);
    assert_eq!((advanced.phase, advanced.is_expired), (Phase::Finished, false));
    scene.nodes.insert("young".into(), (SetPhase::Waiting, 1));
    scene.now += 20;
    assert!(scene.pass(None).is_expired);
    assert_eq!(scene.count(SetPhase::Pulling), 0, "a finished set starts on no further node");
}

#[test]
fn a_set_without_nodes_says_so() {
    let mut scene = Scene::new(0, &json!({}));
    assert_eq!(scene.pass(Some(&[image("app:1", Some("sha256:1"))])).phase, Phase::NoNodes);
    assert_eq!(scene.condition("Progressing"), "False NoNodesSelected");
    assert_eq!(scene.status().last_complete, None);
}

#[test]
fn the_hash_has_the_fields_that_begin_a_rollout() {
    let scene = Scene::new(0, &json!({}));
    let base = rollout_hash(&scene.set.spec);
    let edited = |change: fn(&mut ImageSetSpec)| {
        let mut spec = scene.set.spec.clone();
        change(&mut spec);
        rollout_hash(&spec) != base
    };
    assert!(edited(|spec| spec.images[0].name.push('1')));
    assert!(edited(|spec| spec.node_selector = None));
    assert!(edited(|spec| spec.node_names.push("n".into())));
    assert!(edited(|spec| spec.resolution = Resolution::OnNode));
    assert!(edited(|spec| spec.rollout.restarted_at = Some(second(Timestamp::UNIX_EPOCH))));
    assert!(!edited(|spec| spec.rollout.paused = true));
    assert!(!edited(|spec| spec.pin = false));
}
