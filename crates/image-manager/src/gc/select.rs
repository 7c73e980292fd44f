//! [`select`]: which images to remove, and for every other one the reason to keep it. Pure: the same images, records and
//! goal give the same [`Plan`], in any order of the input.
//!
//! The bytes of an image are those that its removal really frees: the layers that no remaining image uses. An image is the
//! better a choice the more it frees, the longer it was unused, and the less it costs to pull it again. Pre-pulled images
//! are removed last: only for a goal that all other images together do not reach.

use std::time::Duration;

use jiff::Timestamp;

use super::plan::{Because, Kept, Plan, Removal, RemovedBecause};

/// The properties of an image that selection needs.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    /// Image id.
    pub id: &'a str,
    /// Runtime handler that it is for; empty is the default one.
    pub runtime_handler: &'a str,
    /// Since when it is on the node.
    pub first_detected: Timestamp,
    /// When it was last used, if it ever was.
    pub last_used: Option<Timestamp>,
    /// Until when it is removed after all others, because it was pre-pulled.
    pub protected_until: Option<Timestamp>,
    /// Why it must stay whatever happens: it is in use, pinned or kept by a rule.
    pub must_stay: Option<Because>,
    /// How dear it is by the rules; 1 is ordinary, 2 twice as dear.
    pub weight: f64,
    /// Bytes that are its own: documents, and everything where layers are not known.
    pub own_bytes: u64,
    /// Numbers of its layers in [`Inventory::layers`], each once; empty where layers are not known.
    pub layers: &'a [u32],
}

/// All images and layers on the node.
#[derive(Clone, Debug, Default)]
pub struct Inventory<'a> {
    /// The images.
    pub items: Vec<Item<'a>>,
    /// Bytes of every layer.
    pub layers: &'a [u64],
}

/// Rules of selection.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// An image that is on the node for less than this stays.
    pub min_age: Duration,
    /// An image that was never used, and is on the node for less than this, counts as pre-pulled: it is removed last.
    pub protect_unused: Duration,
}

/// Goal of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// So many bytes freed, and no image more than that takes.
    Free(u64),
    /// Everything that nothing needs.
    AllUnused,
    /// Everything that was not used for longer than this.
    OlderThan(Duration),
}

/// Cost of a pull in addition to its bytes, in bytes: names, round trips, waiting pods. It prevents the removal of many small
/// images where one big image frees as much.
const COST_OF_A_PULL: f64 = 16.0 * 1024.0 * 1024.0;
/// Idle times below this count as equal.
const LEAST_IDLE_SECONDS: f64 = 60.0;

/// Selects. Nothing is removed that must stay or is too young; with [`Goal::Free`] nothing that is not needed for it, and
/// what is protected only where nothing else suffices.
#[must_use]
pub fn select(inventory: &Inventory<'_>, rules: &Rules, goal: Goal, now: Timestamp) -> Plan {
    let items = &inventory.items;
    let walls: Vec<Option<Because>> =
        items.iter().map(|item| item.must_stay.clone().or_else(|| too_young(item, rules, goal, now))).collect();
    let protected: Vec<Option<Timestamp>> = items.iter().map(|item| protected_until(item, rules, now)).collect();
    let (reason, target) = match goal {
        Goal::Free(bytes) => (RemovedBecause::Space, bytes),
        Goal::AllUnused => (RemovedBecause::Unused, u64::MAX),
        Goal::OlderThan(_) => (RemovedBecause::Age, u64::MAX),
    };
    let spare = |(wall, until): (&Option<Because>, &Option<Timestamp>)| {
        wall.clone().or_else(|| until.map(|until| Because::Protected { until }))
    };
    let mut because: Vec<Option<Because>> = walls.iter().zip(&protected).map(spare).collect();
    let mut account = Account::new(inventory, &because);
    let mut picked = pick(inventory, &because, &protected, &mut account, target, now);
    if account.freed < target {
        // All the others do not reach the goal.
        because = walls;
        account = Account::new(inventory, &because);
        picked = pick(inventory, &because, &protected, &mut account, target, now);
    }
    if matches!(goal, Goal::Free(_)) {
        give_back(&mut picked, &protected, &mut account, target);
    }
    let mut plan = Plan { wanted: target, ..Plan::default() };
    if !matches!(goal, Goal::Free(_)) {
        plan.wanted = account.freed;
    }
    plan.frees = account.freed;
    let reached = plan.frees >= plan.wanted;
    // In their order, with the bytes that each one frees after the removal of those before it.
    let mut account = Account::new(inventory, &because);
    for number in picked {
        let frees = account.take(number);
        plan.remove.push(Removal { image: number, frees, because: reason, protected_until: protected[number] });
    }
    for (number, because) in because.into_iter().enumerate() {
        if !account.taken[number] {
            let spared = || protected[number].filter(|_| reached).map(|until| Because::Protected { until });
            let because = because.or_else(spared).unwrap_or(Because::NotNeeded);
            plan.kept.push(Kept { image: number, because });
        }
    }
    plan
}

/// Why an image that nothing holds stays for now.
fn too_young(item: &Item<'_>, rules: &Rules, goal: Goal, now: Timestamp) -> Option<Because> {
    let age = since(item.first_detected, now);
    if age < rules.min_age {
        return Some(Because::TooYoung { age, min_age: rules.min_age });
    }
    if let Goal::OlderThan(limit) = goal {
        let idle = since(idle_since(item), now);
        if idle <= limit {
            return Some(Because::UsedWithin { idle, limit });
        }
    }
    None
}

/// Returns until when an image is removed after all others, because it was pre-pulled.
fn protected_until(item: &Item<'_>, rules: &Rules, now: Timestamp) -> Option<Timestamp> {
    let unused = || item.first_detected.checked_add(rules.protect_unused).unwrap_or(Timestamp::MAX);
    let unused = (item.last_used.is_none() && since(item.first_detected, now) < rules.protect_unused).then(unused);
    item.protected_until.filter(|until| *until > now).max(unused)
}

/// From then to now; nothing where the clock was set back.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO)
}

fn idle_since(item: &Item<'_>) -> Timestamp {
    item.last_used.map_or(item.first_detected, |used| used.max(item.first_detected))
}

/// Bytes that would be freed, kept up to date as images are selected and released.
struct Account<'a> {
    inventory: &'a Inventory<'a>,
    taken: Vec<bool>,
    /// For each layer: how many images that are not taken use it.
    users: Vec<u32>,
    /// For each layer: how many removable images use it; 0 where an image that stays uses it.
    sharers: Vec<u32>,
    freed: u64,
}

impl<'a> Account<'a> {
    fn new(inventory: &'a Inventory<'a>, because: &[Option<Because>]) -> Self {
        let mut users = vec![0_u32; inventory.layers.len()];
        let mut held = vec![false; inventory.layers.len()];
        for (item, because) in inventory.items.iter().zip(because) {
            for &layer in item.layers {
                users[layer as usize] += 1;
                held[layer as usize] |= because.is_some();
            }
        }
        let sharers = users.iter().zip(&held).map(|(&users, &held)| if held { 0 } else { users }).collect();
        Self { inventory, taken: vec![false; inventory.items.len()], users, sharers, freed: 0 }
    }

    /// Takes an image, and answers what that frees.
    fn take(&mut self, number: usize) -> u64 {
        let item = &self.inventory.items[number];
        self.taken[number] = true;
        let mut frees = item.own_bytes;
        for &layer in item.layers {
            let users = &mut self.users[layer as usize];
            *users -= 1;
            if *users == 0 {
                frees += self.inventory.layers[layer as usize];
            }
        }
        self.freed += frees;
        frees
    }

    /// Bytes that are lost when a taken image stays after all.
    fn loss(&self, number: usize) -> u64 {
        let item = &self.inventory.items[number];
        let alone = item.layers.iter().filter(|&&layer| self.users[layer as usize] == 0);
        item.own_bytes + alone.map(|&layer| self.inventory.layers[layer as usize]).sum::<u64>()
    }

    fn give_back(&mut self, number: usize) {
        self.freed -= self.loss(number);
        self.taken[number] = false;
        for &layer in self.inventory.items[number].layers {
            self.users[layer as usize] += 1;
        }
    }

    /// An image's part of what can be freed: a layer that several images could free counts for each by its share.
    fn share(&self, number: usize) -> u64 {
        let item = &self.inventory.items[number];
        let part = |&layer: &u32| match self.sharers[layer as usize] {
            0 => 0,
            sharers => self.inventory.layers[layer as usize] / u64::from(sharers),
        };
        item.own_bytes + item.layers.iter().map(part).sum::<u64>()
    }
}

/// Order of removal, the smallest first. The id decides between equal ranks.
#[derive(Clone, Copy, Debug)]
struct Rank {
    protected: bool,
    harm: f64,
    /// Last used and first detected, in nanoseconds; never is before everything.
    times: (i128, i128),
    number: usize,
}

/// Takes images in order of removal, the protected ones last, until the target is reached or none is left.
fn pick(
    inventory: &Inventory<'_>,
    because: &[Option<Because>],
    protected: &[Option<Timestamp>],
    account: &mut Account<'_>,
    target: u64,
    now: Timestamp,
) -> Vec<usize> {
    let items = &inventory.items;
    let mut ranks: Vec<Rank> = Vec::with_capacity(items.len());
    ranks.extend(items.iter().enumerate().filter(|(number, _)| because[*number].is_none()).map(|(number, item)| {
        Rank {
            protected: protected[number].is_some(),
            harm: harm(item, account.share(number), now),
            times: (item.last_used.map_or(i128::MIN, Timestamp::as_nanosecond), item.first_detected.as_nanosecond()),
            number,
        }
    }));
    let id = |rank: &Rank| (items[rank.number].id, items[rank.number].runtime_handler);
    ranks.sort_unstable_by(|a, b| {
        let by_time = || a.times.cmp(&b.times);
        a.protected
            .cmp(&b.protected)
            .then_with(|| a.harm.total_cmp(&b.harm))
            .then_with(by_time)
            .then_with(|| id(a).cmp(&id(b)))
            .then_with(|| a.number.cmp(&b.number))
    });
    let mut picked = Vec::new();
    for Rank { number, .. } in ranks {
        if account.freed >= target {
            break;
        }
        account.take(number);
        picked.push(number);
    }
    picked
}

/// Cost of removing an image, for each byte that it frees.
fn harm(item: &Item<'_>, frees: u64, now: Timestamp) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a weight, not an account")]
    let bytes = frees as f64;
    if bytes <= 0.0 {
        return f64::INFINITY;
    }
    let idle = since(idle_since(item), now).as_secs_f64().max(LEAST_IDLE_SECONDS);
    item.weight * (bytes + COST_OF_A_PULL) / (bytes * idle)
}

/// Gives back the images that are not needed for the target, in reverse order of removal, so the protected ones first. An
/// image that frees nothing by itself, because other images that stay use its layers, is not needed. Sizes of images with
/// unknown layers promise too much: if such an image is protected and is removed, all others are removed before it.
fn give_back(picked: &mut Vec<usize>, protected: &[Option<Timestamp>], account: &mut Account<'_>, target: u64) {
    let exact = !account.inventory.layers.is_empty();
    let mut protected_goes = false;
    for &number in picked.iter().rev() {
        let loss = account.loss(number);
        let spare = account.freed - loss >= target && (exact || !protected_goes);
        if loss == 0 || spare {
            account.give_back(number);
        } else {
            protected_goes |= protected[number].is_some();
        }
    }
    picked.retain(|&number| account.taken[number]);
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
