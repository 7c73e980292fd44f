//! Tables and properties of the line.

use proptest::prelude::*;

use super::*;

#[test]
fn limits_of_the_settings() {
    let total = |serialize, max_parallel| {
        PullLimits::of(&PullerOptions { serialize, max_parallel, ..PullerOptions::default() }).total
    };
    assert_eq!(PullLimits::of(&PullerOptions::default()).total, Some(1));
    assert_eq!(total(true, Some(5)), Some(1));
    assert_eq!(total(false, Some(5)), Some(5));
    assert_eq!(total(false, Some(0)), None);
    assert_eq!(total(false, None), None);
    let nothing = PullerOptions { per_registry: Some(0), ..PullerOptions::default() };
    assert_eq!(PullLimits::of(&nothing).per_registry, None);
}

const NODE_CRITICAL: i32 = 2_000_001_000;
const CLUSTER_CRITICAL: i32 = 2_000_000_000;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct Case {
    name: &'static str,
    total: Option<usize>,
    per_registry: Option<usize>,
    /// Name, registry, priority, second at which it joins.
    entries: &'static [(&'static str, &'static str, i32, u64)],
    /// Entry, priority that it is raised to.
    raised: &'static [(&'static str, i32)],
    now: u64,
    /// The pulls in the order of admission, each after the end of the one before.
    want: &'static [&'static str],
}

const ONE: Option<usize> = Some(1);

#[test]
fn order() {
    let cases = [
        Case {
            name: "by age",
            total: ONE,
            per_registry: None,
            entries: &[("a", "r", 0, 0), ("b", "r", 0, 1), ("c", "q", 0, 1)],
            raised: &[],
            now: 5,
            want: &["a", "b", "c"],
        },
        Case {
            name: "priority classes before age",
            total: ONE,
            per_registry: None,
            entries: &[
                ("low", "r", -5, 0),
                ("plain", "r", 0, 1),
                ("cluster", "r", CLUSTER_CRITICAL, 2),
                ("node", "r", NODE_CRITICAL, 3),
                ("pod", "r", 1000, 4),
            ],
            raised: &[],
            now: 5,
            want: &["node", "cluster", "pod", "plain", "low"],
        },
        Case {
            name: "equal priorities by age",
            total: ONE,
            per_registry: None,
            entries: &[("a", "r", 7, 2), ("b", "r", 7, 1), ("c", "r", 7, 3)],
            raised: &[],
            now: 5,
            want: &["b", "a", "c"],
        },
        Case {
            name: "who waited longer than the ageing time goes before all, oldest first",
            total: ONE,
            per_registry: None,
            entries: &[("node", "r", NODE_CRITICAL, 69), ("old", "r", 0, 5), ("older", "r", -9, 3)],
            raised: &[],
            now: 70,
            want: &["older", "old", "node"],
        },
        Case {
            name: "exactly the ageing time is not longer",
            total: ONE,
            per_registry: None,
            entries: &[("old", "r", 0, 10), ("node", "r", NODE_CRITICAL, 69)],
            raised: &[],
            now: 70,
            want: &["node", "old"],
        },
        Case {
            name: "a raised entry keeps its age",
            total: ONE,
            per_registry: None,
            entries: &[("a", "r", 0, 0), ("b", "r", 5, 1), ("c", "r", 0, 2)],
            raised: &[("c", 5), ("b", 1)],
            now: 5,
            want: &["b", "c", "a"],
        },
    ];
    for case in &cases {
        let (mut line, ids) = line(case);
        for name in case.want {
            let id = line.admit(at(case.now)).unwrap_or_else(|| panic!("{}: {name} may run", case.name));
            assert_eq!(ids[&id], *name, "{}", case.name);
            line.leave(id);
        }
        assert_eq!(line.admit(at(case.now)), None, "{}", case.name);
        assert!(line.entries.is_empty() && line.lanes.is_empty(), "{}: {line:?}", case.name);
    }
}

#[test]
fn admitted_together() {
    let busy: &[_] = &[("a1", "a", 0, 0), ("a2", "a", 9, 1), ("a3", "a", 0, 2), ("b1", "b", 0, 3), ("c1", "c", 0, 4)];
    let cases = [
        Case {
            name: "no limit",
            total: None,
            per_registry: None,
            entries: busy,
            raised: &[],
            now: 5,
            want: &["a2", "a1", "a3", "b1", "c1"],
        },
        Case {
            name: "total",
            total: Some(2),
            per_registry: None,
            entries: busy,
            raised: &[],
            now: 5,
            want: &["a2", "a1"],
        },
        Case {
            name: "who waits for a registry holds up nobody else",
            total: None,
            per_registry: ONE,
            entries: busy,
            raised: &[],
            now: 5,
            want: &["a2", "b1", "c1"],
        },
        Case {
            name: "nor does one that is aged",
            total: None,
            per_registry: ONE,
            entries: busy,
            raised: &[],
            now: 100,
            want: &["a1", "b1", "c1"],
        },
        Case {
            name: "both limits",
            total: Some(3),
            per_registry: Some(2),
            entries: busy,
            raised: &[],
            now: 5,
            want: &["a2", "a1", "b1"],
        },
    ];
    for case in &cases {
        let (mut line, ids) = line(case);
        let admitted: Vec<&str> = std::iter::from_fn(|| line.admit(at(case.now))).map(|id| ids[&id]).collect();
        assert_eq!(admitted, case.want, "{}", case.name);
        assert_eq!(line.waiting(), case.entries.len() - case.want.len(), "{}", case.name);
    }
}

fn line(case: &Case) -> (Line, HashMap<SlotId, &'static str>) {
    let limits = PullLimits { total: case.total, per_registry: case.per_registry, ageing: at(60) };
    let mut line = Line::new(limits);
    let ids: HashMap<SlotId, &'static str> = case
        .entries
        .iter()
        .map(|(name, registry, priority, since)| (line.join(registry, *priority, at(*since)), *name))
        .collect();
    for (name, priority) in case.raised {
        let (id, _) = ids.iter().find(|(_, of)| *of == name).expect("the case names its entries");
        line.raise(*id, *priority);
    }
    (line, ids)
}

#[derive(Clone, Debug)]
enum Step {
    Join {
        registry: u8,
        priority: i32,
    },
    Raise {
        which: usize,
        priority: i32,
    },
    /// A waiting or running pull leaves.
    Leave {
        which: usize,
    },
    Pass {
        seconds: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![Just(0), Just(10), Just(NODE_CRITICAL), -3..3i32];
    let step = prop_oneof![
        4 => (0..4u8, priority.clone()).prop_map(|(registry, priority)| Step::Join { registry, priority }),
        1 => (any::<usize>(), priority).prop_map(|(which, priority)| Step::Raise { which, priority }),
        3 => any::<usize>().prop_map(|which| Step::Leave { which }),
        2 => (0..40u64).prop_map(|seconds| Step::Pass { seconds }),
    ];
    proptest::collection::vec(step, 0..120)
}

/// A model of the line, without any index.
struct Model {
    waiting: Vec<(SlotId, String, i32, Duration)>,
    running: Vec<(SlotId, String)>,
}

impl Model {
    fn running_of(&self, registry: &str) -> usize {
        self.running.iter().filter(|(_, of)| of == registry).count()
    }

    fn next(&self, limits: PullLimits, now: Duration) -> Option<SlotId> {
        if limits.total.is_some_and(|limit| self.running.len() >= limit) {
            return None;
        }
        let free = |registry: &str| limits.per_registry.is_none_or(|limit| self.running_of(registry) < limit);
        let rank = |(id, _, priority, since): &&(SlotId, String, i32, Duration)| {
            let aged = now - *since > limits.ageing;
            (!aged, if aged { Reverse(0) } else { Reverse(*priority) }, *since, *id)
        };
        self.waiting.iter().filter(|(_, registry, ..)| free(registry)).min_by_key(rank).map(|entry| entry.0)
    }
}

proptest! {
    #[test]
    fn the_index_agrees_with_the_rule(
        steps in steps(),
        total in proptest::option::of(1..4usize),
        per_registry in proptest::option::of(1..3usize),
    ) {
        let limits = PullLimits { total, per_registry, ageing: at(60) };
        let mut line = Line::new(limits);
        let mut model = Model { waiting: Vec::new(), running: Vec::new() };
        let mut now = Duration::ZERO;
        for step in steps {
            match step {
                Step::Join { registry, priority } => {
                    let registry = registry.to_string();
                    let id = line.join(&registry, priority, now);
                    model.waiting.push((id, registry, priority, now));
                }
                Step::Raise { which, priority } if !model.waiting.is_empty() => {
                    let which = which % model.waiting.len();
                    let entry = &mut model.waiting[which];
                    line.raise(entry.0, priority);
                    entry.2 = entry.2.max(priority);
                }
                Step::Leave { which } if model.waiting.len() + model.running.len() > 0 => {
                    let which = which % (model.waiting.len() + model.running.len());
                    let id = if which < model.waiting.len() {
                        model.waiting.remove(which).0
                    } else {
                        model.running.remove(which - model.waiting.len()).0
                    };
                    line.leave(id);
                }
                Step::Pass { seconds } => now += at(seconds),
                Step::Raise { .. } | Step::Leave { .. } => {}
            }
            while let Some(want) = model.next(limits, now) {
                prop_assert_eq!(line.admit(now), Some(want));
                let index = model.waiting.iter().position(|entry| entry.0 == want).expect("it waits");
                let (id, registry, ..) = model.waiting.remove(index);
                model.running.push((id, registry));
            }
            prop_assert_eq!(line.admit(now), None);
            // Never more than may run.
            prop_assert!(total.is_none_or(|limit| model.running.len() <= limit));
            for registry in 0..4 {
                let running = model.running_of(&registry.to_string());
                prop_assert!(per_registry.is_none_or(|limit| running <= limit));
            }
            prop_assert_eq!(line.waiting(), model.waiting.len());
        }
    }

    /// Regardless of the number of urgent entries, an old entry has its turn after the ageing time and the turns of the older
    /// ones.
    #[test]
    fn nothing_starves(older in 0..20usize, per_second in 1..5u64, priority in 1..=NODE_CRITICAL, per_registry in any::<bool>()) {
        let limits = PullLimits { total: Some(1), per_registry: per_registry.then_some(1), ageing: at(60) };
        let mut line = Line::new(limits);
        for _ in 0..older {
            line.join("r", 0, at(0));
        }
        let patient = line.join("r", -1, at(0));
        let mut running = None;
        for second in 0..(62 + older as u64) {
            for i in 0..per_second {
                line.join(if i % 2 == 0 { "r" } else { "q" }, priority, at(second));
            }
            if let Some(ended) = running.take() {
                line.leave(ended);
            }
            running = line.admit(at(second));
            prop_assert!(running.is_some(), "the place is never left empty");
            if running == Some(patient) {
                return Ok(());
            }
        }
        prop_assert!(false, "it waited for ever");
    }
}
