//! Tests of `select`: tables, and what holds for any images, records and goals.

use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

const NOW: i64 = 1_000_000;
const MIB: u64 = 1 << 20;

fn item(id: &'static str, bytes: u64, first: i64, used: Option<i64>) -> Item<'static> {
    Item {
        id,
        runtime_handler: "",
        first_detected: at(first),
        last_used: used.map(at),
        protected_until: None,
        must_stay: None,
        weight: 1.0,
        own_bytes: bytes,
        layers: &[],
    }
}

const RULES: Rules = Rules { min_age: Duration::from_secs(120), protect_unused: Duration::ZERO };

/// Returns the ids of the removed images, in order.
fn removed<'a>(inventory: &Inventory<'a>, plan: &Plan) -> Vec<&'a str> {
    plan.remove.iter().map(|removal| inventory.items[removal.image].id).collect()
}

fn why(inventory: &Inventory<'_>, plan: &Plan, id: &str) -> Option<&'static str> {
    plan.kept.iter().find(|kept| inventory.items[kept.image].id == id).map(|kept| kept.because.word())
}

#[test]
fn the_kubelets_order() {
    // (upstream's name, images, bytes wanted, removed images). Images that differ in their last use alone have the same size: the number of
    // bytes counts as well, unlike in the kubelet.
    let used = || Because::InUse { by: "x".into() };
    let cases = [
        (
            "upstream: gc/TestFreeSpaceRemoveByLeastRecentlyUsed",
            vec![item("0", 1024, 10, Some(20)), item("1", 1024, 10, Some(30))],
            1024,
            vec!["0"],
        ),
        (
            "upstream: gc/TestFreeSpaceTiesBrokenByDetectedTime",
            vec![item("0", 1024, 10, Some(20)), item("1", 2048, 15, None)],
            1024,
            vec!["1"],
        ),
        (
            "upstream: gc/TestFreeSpaceImagesInUseContainersAreIgnored",
            vec![item("0", 1024, 10, None), Item { must_stay: Some(used()), ..item("1", 2048, 10, Some(20)) }],
            2048,
            vec!["0"],
        ),
        (
            "upstream: gc/TestDoNotDeletePinnedImage",
            vec![
                Item { must_stay: Some(Because::PinnedByRuntime), ..item("0", 1024, 10, None) },
                item("1", 1024, 10, None),
            ],
            4096,
            vec!["1"],
        ),
        (
            "upstream: gc/TestDeleteUnPinnedImage",
            vec![item("0", 1024, 10, None), item("1", 1024, 10, None)],
            2048,
            vec!["0", "1"],
        ),
        (
            "upstream: gc/TestAllPinnedImages",
            ["0", "1"]
                .map(|id| Item { must_stay: Some(Because::PinnedByRuntime), ..item(id, 1024, 10, None) })
                .into_iter()
                .collect(),
            2048,
            vec![],
        ),
    ];
    for (name, items, wanted, want) in cases {
        let inventory = Inventory { items, layers: &[] };
        let plan = select(&inventory, &RULES, Goal::Free(wanted), at(NOW));
        assert_eq!(removed(&inventory, &plan), want, "{name}");
        let bytes: u64 = plan.remove.iter().map(|removal| removal.frees).sum();
        assert_eq!(plan.frees, bytes, "{name}");
    }
}

#[test]
fn goals_other_than_space() {
    let used = Item { must_stay: Some(Because::InUse { by: "x".into() }), ..item("used", 1, 0, Some(NOW)) };
    let items =
        vec![used, item("old", 1, 0, Some(100)), item("fresh", 1, NOW - 60, None), item("idle", 1, 0, Some(NOW - 500))];
    let inventory = Inventory { items, layers: &[] };
    let gone = |goal| {
        let plan = select(&inventory, &RULES, goal, at(NOW));
        let mut gone = removed(&inventory, &plan);
        gone.sort_unstable();
        (gone, why(&inventory, &plan, "fresh"), why(&inventory, &plan, "idle"))
    };
    assert_eq!(gone(Goal::AllUnused), (vec!["idle", "old"], Some("too-young"), None));
    let limit = Duration::from_secs(1000);
    assert_eq!(gone(Goal::OlderThan(limit)), (vec!["old"], Some("too-young"), Some("used-within")));
    assert_eq!(gone(Goal::Free(0)), (vec![], Some("too-young"), Some("not-needed")));
    // Exactly as old as the limit is not older than it.
    assert_eq!(gone(Goal::OlderThan(Duration::from_secs(500))).0, ["old"]);
    assert_eq!(gone(Goal::OlderThan(Duration::from_secs(499))).0, ["idle", "old"]);
}

#[test]
fn minimum_age_is_reached_exactly() {
    // upstream: gc/TestGarbageCollectImageNotOldEnough
    for (age, goes) in [(0, false), (119, false), (120, true)] {
        let inventory = Inventory { items: vec![item("0", 1024, NOW - age, None)], layers: &[] };
        let plan = select(&inventory, &RULES, Goal::Free(1024), at(NOW));
        assert_eq!(plan.remove.len(), usize::from(goes), "{age}");
    }
}

#[test]
fn shared_layers_free_nothing_while_in_use() {
    let layers = [100 * MIB, 50 * MIB, 7 * MIB];
    let with = |id, layers, must_stay| Item { layers, must_stay, ..item(id, 0, 0, None) };
    let kept = Some(Because::Pinned);
    // The big layer is the pinned one's as well.
    let items = vec![with("a", &[0, 1], None), with("b", &[0], None), with("c", &[0, 2], kept)];
    let inventory = Inventory { items, layers: &layers };
    let plan = select(&inventory, &RULES, Goal::Free(10 * MIB), at(NOW));
    assert_eq!((removed(&inventory, &plan), plan.frees), (vec!["a"], 50 * MIB));
    // More than there is to get: what frees nothing stays all the same.
    let plan = select(&inventory, &RULES, Goal::Free(500 * MIB), at(NOW));
    assert_eq!((removed(&inventory, &plan), plan.frees), (vec!["a"], 50 * MIB));
    assert_eq!(why(&inventory, &plan, "b"), Some("not-needed"));

    // A layer of removed images only: both of its users have to be removed.
    let items = vec![with("a", &[0], None), with("b", &[0], None), with("c", &[1], None)];
    let inventory = Inventory { items, layers: &layers };
    let plan = select(&inventory, &RULES, Goal::Free(80 * MIB), at(NOW));
    assert_eq!(plan.frees, 100 * MIB);
    let mut gone = removed(&inventory, &plan);
    gone.sort_unstable();
    assert_eq!(gone, ["a", "b"]);
    assert_eq!(plan.remove.iter().map(|removal| removal.frees).collect::<Vec<_>>(), [0, 100 * MIB]);
}

#[test]
fn least_harm() {
    let choose = |items: Vec<Item<'static>>, wanted: u64| {
        let inventory = Inventory { items, layers: &[] };
        let plan = select(&inventory, &RULES, Goal::Free(wanted), at(NOW));
        removed(&inventory, &plan)
    };
    // As big: the longer unused one.
    assert_eq!(choose(vec![item("new", MIB, 0, Some(900_000)), item("old", MIB, 0, Some(100))], MIB), ["old"]);
    // As old: one big one rather than many small ones.
    let many = ["s1", "s2", "s3", "s4"].map(|id| item(id, 20 * MIB, 0, None));
    let items: Vec<_> = many.into_iter().chain([item("big", 80 * MIB, 0, None)]).collect();
    assert_eq!(choose(items, 80 * MIB), ["big"]);
    // Dear by rule: the other one, though it was used since.
    let dear = Item { weight: 10.0, ..item("dear", MIB, 0, Some(100)) };
    assert_eq!(choose(vec![dear, item("plain", MIB, 0, Some(500_000))], MIB), ["plain"]);
    // An image that was taken first and is not needed in the end stays.
    assert_eq!(
        choose(vec![item("small", MIB, 0, Some(1)), item("huge", 500 * MIB, 0, Some(900_000))], 400 * MIB),
        ["huge"]
    );
}

#[test]
fn protected_images_are_removed_last() {
    let used = |id, used: i64| item(id, MIB, 0, Some(used));
    let protected = Item { protected_until: Some(at(NOW + 1)), ..item("p", MIB, 0, None) };
    let over = Item { protected_until: Some(at(NOW)), ..item("q", MIB, 0, None) };
    let items = vec![protected, used("1", 100), used("3", 300), used("2", 200), over];
    let inventory = Inventory { items, layers: &[] };
    let plan = select(&inventory, &RULES, Goal::AllUnused, at(NOW));
    assert_eq!(removed(&inventory, &plan), ["q", "1", "2", "3", "p"]);
    let until: Vec<_> = plan.remove.iter().map(|removal| removal.protected_until).collect();
    assert_eq!(until, [None, None, None, None, Some(at(NOW + 1))]);
    assert_eq!(plan.remove[0].why(), "unused");
    assert_eq!(
        plan.remove[4].why(),
        "unused, although it was pulled before its use and is protected until 1970-01-12T13:46:41Z"
    );
}

/// A protected image that frees `p`, and two others that free 10 MiB and 20 MiB.
fn with_protected(p: u64) -> Vec<Item<'static>> {
    let protected = Item { protected_until: Some(at(NOW + 1)), ..item("p", p * MIB, 0, None) };
    vec![protected, item("a", 10 * MIB, 0, Some(100)), item("b", 20 * MIB, 0, Some(500_000))]
}

#[test]
fn pre_pulled_images_are_removed_last() {
    let layers = [0];
    let plan_of = |items: Vec<Item<'static>>, exact: bool, goal| {
        let inventory = Inventory { items, layers: if exact { &layers } else { &[] } };
        let plan = select(&inventory, &RULES, goal, at(NOW));
        let gone: Vec<String> = removed(&inventory, &plan).into_iter().map(str::to_owned).collect();
        (gone, why(&inventory, &plan, "p"), plan)
    };
    let free = |mebibytes: u64| Goal::Free(mebibytes * MIB);
    // Never used and least recently used, it is removed only where the others together do not suffice.
    for exact in [true, false] {
        let (gone, kept, _) = plan_of(with_protected(40), exact, free(30));
        assert_eq!((gone.as_slice(), kept), (&["a".to_owned(), "b".to_owned()][..], Some("protected")));
        let (gone, _, plan) = plan_of(with_protected(40), exact, free(70));
        assert_eq!((gone.as_slice(), plan.frees), (&["a".to_owned(), "b".into(), "p".into()][..], 70 * MIB));
        assert_eq!(
            plan.remove[2].why(),
            "its space is needed, and nothing else suffices, although it was pulled before its use and is protected \
             until 1970-01-12T13:46:41Z"
        );
        assert_eq!(plan.remove[0].why(), "its space is needed");
        // More than there is: all are removed, and the remaining one is not reported as protected.
        let shared = Item { must_stay: Some(Because::Pinned), ..item("c", 0, 0, None) };
        let items = with_protected(0).into_iter().chain([shared]).collect();
        let (gone, kept, _) = plan_of(items, exact, free(500));
        assert_eq!((gone.as_slice(), kept), (&["a".to_owned(), "b".to_owned()][..], Some("not-needed")));
    }
    // The protected image alone frees enough where bytes are exact. A sum of sizes is not exact: the others are removed first.
    assert_eq!(plan_of(with_protected(100), true, free(90)).0, ["p"]);
    assert_eq!(plan_of(with_protected(100), false, free(90)).0, ["a", "b", "p"]);
    // An age is reached by nothing else either.
    assert_eq!(plan_of(with_protected(1), true, Goal::OlderThan(Duration::from_secs(500))).0, ["a", "b", "p"]);
}

#[test]
fn protection_ends_no_minimum_age() {
    let young = Item { protected_until: Some(at(NOW + 100)), ..item("y", MIB, NOW - 119, None) };
    let unused = item("u", MIB, NOW - 121, None);
    let inventory = Inventory { items: vec![young, unused], layers: &[] };
    let rules = Rules { protect_unused: Duration::from_secs(3600), ..RULES };
    for goal in [Goal::Free(2 * MIB), Goal::AllUnused, Goal::OlderThan(Duration::ZERO)] {
        let plan = select(&inventory, &rules, goal, at(NOW));
        assert_eq!((removed(&inventory, &plan), why(&inventory, &plan, "y")), (vec!["u"], Some("too-young")));
        assert_eq!(plan.remove[0].protected_until, Some(at(NOW - 121 + 3600)));
    }
    let plan = select(&inventory, &rules, Goal::Free(0), at(NOW));
    assert_eq!(why(&inventory, &plan, "u"), Some("protected"));
}

/// An image of the property tests, by plain numbers.
#[derive(Clone, Debug)]
struct Drawn {
    id: String,
    first: i64,
    used: Option<i64>,
    stays: bool,
    protected: bool,
    own: u64,
    layers: Vec<u32>,
}

impl Drawn {
    fn is_protected(&self, protect_unused: Duration) -> bool {
        let age = Duration::from_secs((NOW - self.first).unsigned_abs());
        self.protected || (self.used.is_none() && age < protect_unused)
    }
}

fn drawn(layers: usize) -> impl Strategy<Value = Drawn> {
    let times = (0..NOW, proptest::option::of(0..NOW));
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.1));
    let layers = proptest::collection::btree_set(0..u32::try_from(layers).expect("few"), 0..4);
    let bytes = (0..1000_u64, layers);
    ("[a-z]{6}", times, flags, bytes).prop_map(|(id, (first, used), (stays, protected), (own, layers))| Drawn {
        id,
        first,
        used,
        stays,
        protected,
        own,
        layers: layers.into_iter().collect(),
    })
}

fn inventory<'a>(drawn: &'a [Drawn], layers: &'a [u64]) -> Inventory<'a> {
    let items = drawn.iter().map(|d| Item {
        id: &d.id,
        runtime_handler: "",
        first_detected: at(d.first),
        last_used: d.used.map(at),
        protected_until: d.protected.then(|| at(NOW + 5)),
        must_stay: d.stays.then_some(Because::Pinned),
        weight: 1.0,
        own_bytes: d.own,
        layers: &d.layers,
    });
    Inventory { items: items.collect(), layers }
}

/// Bytes of everything that images still use, counted from nothing.
fn in_use(inventory: &Inventory<'_>, gone: &[usize]) -> u64 {
    let left: Vec<_> = (0..inventory.items.len()).filter(|number| !gone.contains(number)).collect();
    let layers: std::collections::BTreeSet<u32> =
        left.iter().flat_map(|&number| inventory.items[number].layers.iter().copied()).collect();
    let own: u64 = left.iter().map(|&number| inventory.items[number].own_bytes).sum();
    own + layers.iter().map(|&layer| inventory.layers[layer as usize]).sum::<u64>()
}

proptest! {
    #[test]
    fn plans_are_sound(
        images in proptest::collection::vec(drawn(8), 0..20),
        layers in proptest::collection::vec(0..5000_u64, 8),
        wanted in 0..20_000_u64,
        kind in 0..3,
        seed in any::<u64>(),
        protect_unused in prop_oneof![Just(0), 0..NOW],
    ) {
        let mut images = images;
        images.sort_by(|a, b| a.id.cmp(&b.id));
        images.dedup_by(|a, b| a.id == b.id);
        let goal = match kind {
            0 => Goal::Free(wanted),
            1 => Goal::AllUnused,
            _ => Goal::OlderThan(Duration::from_secs(wanted * 50)),
        };
        let protect_unused = Duration::from_secs(protect_unused.unsigned_abs());
        let rules = Rules { protect_unused, ..RULES };
        let inventory = inventory(&images, &layers);
        let plan = select(&inventory, &rules, goal, at(NOW));

        // Every image is named once.
        let mut named: Vec<usize> =
            plan.remove.iter().map(|r| r.image).chain(plan.kept.iter().map(|k| k.image)).collect();
        named.sort_unstable();
        prop_assert_eq!(named, (0..images.len()).collect::<Vec<_>>());
        // No image is removed that must stay.
        for removal in &plan.remove {
            let image = &images[removal.image];
            prop_assert!(!image.stays && NOW - image.first >= 120);
            prop_assert_eq!(removal.protected_until.is_some(), image.is_protected(protect_unused));
        }
        // The promised bytes are those that are really freed.
        let gone: Vec<usize> = plan.remove.iter().map(|r| r.image).collect();
        let really = in_use(&inventory, &[]) - in_use(&inventory, &gone);
        // Unreferenced layers are in neither sum.
        prop_assert_eq!(plan.frees, really);
        prop_assert_eq!(plan.frees, plan.remove.iter().map(|r| r.frees).sum::<u64>());
        if let Goal::Free(wanted) = goal {
            // Enough, or all that there is to get.
            let all = select(&inventory, &rules, Goal::AllUnused, at(NOW));
            prop_assert!(plan.frees >= wanted || plan.frees == all.frees);
            // Nothing that could be left out.
            for &spare in &gone {
                let rest: Vec<usize> = gone.iter().copied().filter(|&number| number != spare).collect();
                let freed = in_use(&inventory, &[]) - in_use(&inventory, &rest);
                prop_assert!(freed < wanted.min(plan.frees) || rest.len() == gone.len());
            }
        }
        // The order of the input decides nothing.
        let mut shuffled = images.clone();
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(at, usize::try_from((state >> 33) % (at as u64 + 1)).expect("small"));
        }
        let other = super::tests::inventory(&shuffled, &layers);
        let again = select(&other, &rules, goal, at(NOW));
        prop_assert_eq!(removed(&inventory, &plan), removed(&other, &again));
        prop_assert_eq!(plan.frees, again.frees);
    }

    /// Protection is an order: protected images are removed after all others, and only where nothing else reaches the goal; it
    /// never prevents a goal from being reached.
    #[test]
    fn protection_is_an_order_and_no_wall(
        images in proptest::collection::vec(drawn(8), 0..20),
        layers in proptest::collection::vec(0..5000_u64, 8),
        wanted in 0..20_000_u64,
        kind in 0..3,
        exact in any::<bool>(),
        protect_unused in prop_oneof![Just(0), 0..NOW],
    ) {
        let mut images = images;
        images.sort_by(|a, b| a.id.cmp(&b.id));
        images.dedup_by(|a, b| a.id == b.id);
        if !exact {
            images.iter_mut().for_each(|image| image.layers.clear());
        }
        let layers = if exact { layers } else { Vec::new() };
        let goal = match kind {
            0 => Goal::Free(wanted),
            1 => Goal::AllUnused,
            _ => Goal::OlderThan(Duration::from_secs(wanted * 50)),
        };
        let protect_unused = Duration::from_secs(protect_unused.unsigned_abs());
        let rules = Rules { protect_unused, ..RULES };
        let of = |images: &[Drawn]| {
            let inventory = inventory(images, &layers);
            select(&inventory, &rules, goal, at(NOW))
        };
        let plan = of(&images);
        let is_protected = |image: &usize| images[*image].is_protected(protect_unused);
        let order: Vec<bool> = plan.remove.iter().map(|removal| is_protected(&removal.image)).collect();
        prop_assert!(order.is_sorted(), "what is protected goes last: {:?}", order);

        let mut spared = images.clone();
        spared.iter_mut().for_each(|image| image.stays |= image.is_protected(protect_unused));
        let without = of(&spared);
        let gone = |plan: &Plan| plan.remove.iter().map(|removal| (removal.image, removal.frees)).collect::<Vec<_>>();
        match goal {
            Goal::Free(wanted) if without.frees >= wanted => {
                prop_assert_eq!(gone(&plan), gone(&without), "what is protected changes nothing while others suffice");
            }
            Goal::Free(wanted) => {
                prop_assert!(plan.frees >= without.frees);
                let ordinary: usize = order.iter().filter(|protected| !**protected).count();
                // Sizes promise too much: all others are removed first.
                prop_assert!(exact || !order.contains(&true) || ordinary == without.remove.len());
                let open = images.iter().map(|image| Drawn { protected: false, ..image.clone() }).collect::<Vec<_>>();
                let rules = Rules { protect_unused: Duration::ZERO, ..rules };
                let none = select(&inventory(&open, &layers), &rules, goal, at(NOW));
                prop_assert_eq!(plan.frees >= wanted, none.frees >= wanted, "protection is no wall");
            }
            Goal::AllUnused | Goal::OlderThan(_) => {
                prop_assert!(plan.kept.iter().all(|kept| kept.because.word() != "protected"));
            }
        }
        // Images stay because of protection only if the goal is reached without them.
        let protected = plan.kept.iter().filter(|kept| kept.because.word() == "protected").count();
        prop_assert!(protected == 0 || plan.frees >= plan.wanted);
    }
}
