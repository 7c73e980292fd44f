//! Tests of the release: no more nodes than allowed are in progress, whatever joins, leaves, fails and ends.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;

fn cursor(second: i64, name: &str) -> NodeCursor {
    NodeCursor { creation_time: Time(Timestamp::from_second(second).expect("a time")), name: name.into() }
}

fn node(second: i64, name: &str, state: NodeState) -> RolloutNode {
    RolloutNode { created: cursor(second, name), rank: Rank::of("set", 1, name), state }
}

fn nodes(count: usize) -> Vec<RolloutNode> {
    (0..count).map(|index| node(0, &format!("n{index}"), NodeState::Waiting)).collect()
}

fn started(release: &Release, nodes: &[RolloutNode]) -> usize {
    nodes.iter().filter(|node| release.covers(node.rank, &node.created)).count()
}

#[test]
fn rank_is_stable_and_depends_on_each_part() {
    let rank = Rank::of("uid", 1, "node");
    assert_eq!(Rank::parse(&rank.to_string()), Some(rank));
    assert_eq!(rank, Rank::of("uid", 1, "node"));
    for other in [Rank::of("uie", 1, "node"), Rank::of("uid", 2, "node"), Rank::of("uid", 1, "nodf")] {
        assert_ne!(rank, other);
    }
    for text in ["", "0", "zzzzzzzzzzzzzzzz", "00000000000000000"] {
        assert_eq!(Rank::parse(text), None, "{text:?}");
    }
}

#[test]
fn a_wave_follows_when_a_node_ends() {
    let mut nodes = nodes(10);
    let first = Release::default().advance(&nodes, 3);
    assert_eq!(started(&first, &nodes), 3);
    assert_eq!(first.advance(&nodes, 3), first, "all places are taken");
    let index = nodes.iter().position(|node| first.covers(node.rank, &node.created)).expect("a started node");
    nodes[index].state = NodeState::Pulling;
    assert_eq!(first.advance(&nodes, 3), first);
    for state in [NodeState::Ready, NodeState::Failed, NodeState::Lost] {
        nodes[index].state = state;
        assert_eq!(started(&first.advance(&nodes, 3), &nodes), 4, "{state:?}");
    }
    assert_eq!(started(&first.advance(&nodes, 0), &nodes), 3, "a stopped rollout");
    assert_eq!(started(&first.advance(&nodes, 1), &nodes), 3, "a smaller limit takes nothing back");
}

#[test]
fn nodes_that_join_wait_for_a_place() {
    let mut nodes = nodes(4);
    let release = Release::default().advance(&nodes, 100);
    assert_eq!(started(&release, &nodes), 4);
    nodes.extend((0..50).map(|index| node(1, &format!("new{index}"), NodeState::Waiting)));
    assert_eq!(started(&release, &nodes), 4, "they are not counted yet");
    assert_eq!(started(&release.advance(&nodes, 6), &nodes), 6);
    assert_eq!(started(&release.advance(&nodes, 4), &nodes), 4);
    nodes.iter_mut().take(4).for_each(|node| node.state = NodeState::Ready);
    assert_eq!(started(&release.advance(&nodes, 100), &nodes), 54);
}

#[test]
fn the_daemon_and_the_controller_agree() {
    let nodes = nodes(5);
    let release = Release::default().advance(&nodes, 2);
    let mut status = ImageSetStatus {
        rollout_generation: Some(1),
        released: release.threshold.map(|threshold| threshold.to_string()),
        newest_node: release.newest.clone(),
        ..ImageSetStatus::default()
    };
    assert_eq!(Release::of(&status), release);
    let count = nodes.iter().filter(|node| may_start(&status, "set", &node.created)).count();
    assert_eq!(count, 2);
    status.released = None;
    assert!(!nodes.iter().any(|node| may_start(&status, "set", &node.created)));
}

/// An action in a simulated cluster.
#[derive(Clone, Debug)]
enum Action {
    Join,
    /// The index, modulo the number of nodes, of a node that leaves.
    Leave(usize),
    /// A node that may start starts.
    Start(usize),
    /// A node in progress ends: ready, failed or lost.
    End(usize, u8),
    /// The controller writes a release with this limit.
    Advance(usize),
    /// Another controller takes over and knows the status alone.
    Failover,
    /// A node reports; until then the controller has its earlier state.
    Report(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => Just(Action::Join),
        1 => any::<usize>().prop_map(Action::Leave),
        6 => any::<usize>().prop_map(Action::Start),
        4 => (any::<usize>(), 0..3_u8).prop_map(|(index, how)| Action::End(index, how)),
        4 => (0..6_usize).prop_map(Action::Advance),
        1 => Just(Action::Failover),
        6 => any::<usize>().prop_map(Action::Report),
    ]
}

/// A simulated node: its real state, and the one that the controller knows.
#[derive(Clone, Debug)]
struct Simulated {
    created: NodeCursor,
    real: NodeState,
    reported: NodeState,
}

proptest! {
    /// Reports may be late and nodes come and go: nodes in progress are never more than the largest limit so far, and a release with a
    /// limit never raises their number above it.
    #[test]
    fn never_more_than_the_limit_are_in_progress(start in 0..12_usize, actions in prop::collection::vec(action(), 0..200)) {
        let mut nodes: BTreeMap<String, Simulated> = BTreeMap::new();
        let mut clock = 0;
        let mut join = |nodes: &mut BTreeMap<String, Simulated>| {
            clock += 1;
            // Two nodes of each second.
            let name = format!("n{clock}");
            let created = cursor(clock / 2, &name);
            nodes.insert(name, Simulated { created, real: NodeState::Waiting, reported: NodeState::Waiting });
        };
        (0..start).for_each(|_| join(&mut nodes));
        let mut status = ImageSetStatus { rollout_generation: Some(1), ..ImageSetStatus::default() };
        let mut largest = 0;
        for action in actions {
            let pick = |index: usize| nodes.keys().nth(index % nodes.len().max(1)).cloned();
            match action {
                Action::Join => join(&mut nodes),
                Action::Leave(index) => drop(pick(index).and_then(|name| nodes.remove(&name))),
                Action::Start(index) => if let Some(node) = pick(index).and_then(|name| nodes.get_mut(&name))
                    && node.real == NodeState::Waiting && may_start(&status, "set", &node.created) {
                    node.real = NodeState::Pulling;
                },
                Action::End(index, how) => if let Some(node) = pick(index).and_then(|name| nodes.get_mut(&name))
                    && node.real == NodeState::Pulling {
                    node.real = [NodeState::Ready, NodeState::Failed, NodeState::Lost][usize::from(how)];
                },
                Action::Report(index) => if let Some(node) = pick(index).and_then(|name| nodes.get_mut(&name)) {
                    node.reported = node.real;
                },
                Action::Failover => {
                    let text = serde_json::to_string(&status).expect("JSON");
                    status = serde_json::from_str(&text).expect("a status");
                }
                Action::Advance(limit) => {
                    let before = Release::of(&status);
                    let seen: Vec<RolloutNode> = nodes.values().map(|node| RolloutNode {
                        created: node.created.clone(),
                        rank: Rank::of("set", 1, &node.created.name),
                        state: node.reported,
                    }).collect();
                    let held = seen.iter().filter(|node| node.holds_a_place(&before)).count();
                    let after = before.advance(&seen, limit);
                    prop_assert!(after.threshold >= before.threshold && after.newest >= before.newest);
                    let taken = seen.iter().filter(|node| node.holds_a_place(&after)).count();
                    prop_assert!(taken <= limit.max(held), "{taken} of {limit}");
                    largest = largest.max(limit);
                    status.released = after.threshold.map(|threshold| threshold.to_string());
                    status.newest_node = after.newest;
                }
            }
            let in_progress = nodes.values().filter(|node| node.real == NodeState::Pulling).count();
            prop_assert!(in_progress <= largest, "{in_progress} in progress, {largest} allowed");
        }
    }

    /// A rollout in which every node ends reaches every node, one at a time if the limit is one.
    #[test]
    fn every_node_gets_its_turn(count in 1..40_usize, limit in 1..8_usize) {
        let mut nodes = nodes(count);
        let mut release = Release::default();
        for _ in 0..count {
            release = release.advance(&nodes, limit);
            for node in &mut nodes {
                if release.covers(node.rank, &node.created) {
                    node.state = NodeState::Ready;
                }
            }
        }
        prop_assert!(nodes.iter().all(|node| node.state == NodeState::Ready));
    }
}
