//! [`detect`]: which images are here, which of them are in use, and what that adds to the [`UsageHistory`]. One pass over
//! the lists that the runtime answered; no call of its own, however many containers there are.

use std::collections::HashMap;

use cri_api::{Container, Image};
use jiff::Timestamp;

use super::entry::{Entry, Time};
use super::fast_hash::{FastHash, is_id};
use super::history::{UsageHistory, key};
use super::node_time::Moment;

/// What uses images beside containers.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysUsed<'a> {
    /// The sandbox image, by id or by any name; empty: there is none, or the runtime pins it.
    pub sandbox_image: &'a str,
    /// Images that pods mount as volumes, or need though there is no container of them yet, by id or name.
    pub volumes: &'a [String],
    /// Images that pulls are bringing, or have brought a moment ago, by id or name.
    pub pulls: &'a [String],
}

/// What one pass found, image by image, in the order of the list it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The number of a container, or one of the words of [`Code`].
    users: Vec<u32>,
}

/// A [`User`] in four bytes.
struct Code;

impl Code {
    const NONE: u32 = u32::MAX;
    const SANDBOX: u32 = u32::MAX - 1;
    const VOLUME: u32 = u32::MAX - 2;
    const PULL: u32 = u32::MAX - 3;
    /// Containers of higher numbers are all called by this one.
    const LAST_CONTAINER: u32 = u32::MAX - 4;
}

/// Who uses an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Nobody.
    None,
    /// The container of this number in the list of containers; others may as well.
    Container(usize),
    /// It is the sandbox image.
    Sandbox,
    /// A pod has mounted it as a volume, or needs it otherwise.
    Volume,
    /// A pull is bringing it, or has just done so. It is not used by that, but somebody is about to.
    Pull,
}

impl Detected {
    /// Who uses the image of this number in the list.
    #[must_use]
    pub fn user(&self, image: usize) -> User {
        match self.users.get(image).copied().unwrap_or(Code::NONE) {
            Code::NONE => User::None,
            Code::SANDBOX => User::Sandbox,
            Code::VOLUME => User::Volume,
            Code::PULL => User::Pull,
            container => User::Container(container as usize),
        }
    }

    /// Whether the image of this number is in use.
    #[must_use]
    pub fn in_use(&self, image: usize) -> bool {
        self.user(image) != User::None
    }

    /// The same for a list from which images went.
    pub(super) fn retain(&mut self, stays: &[bool]) {
        let mut stays = stays.iter();
        self.users.retain(|_| stays.next().copied().unwrap_or(true));
    }
}

/// Looks at what is here at `now`, and brings the history up to date: new images get a record, used ones a new last use,
/// records of images that are gone go. Containers count whatever their state: one that has ended may be started again.
pub fn detect(
    history: &mut UsageHistory,
    images: &[Image],
    containers: &[Container],
    always: AlwaysUsed<'_>,
    now: Timestamp,
) -> Detected {
    detect_at(history, images, containers, always, now.into())
}

/// The same at a moment of which more is known than the time of day.
pub(super) fn detect_at(
    history: &mut UsageHistory,
    images: &[Image],
    containers: &[Container],
    always: AlwaysUsed<'_>,
    moment: Moment,
) -> Detected {
    let now = moment.wall;
    let last_pass = history.begin_pass(moment);
    let mut index = Index::new(images);
    let mut users = vec![Code::NONE; images.len()];
    index.mark_containers(&mut users, containers);
    for volume in always.volumes {
        index.mark(&mut users, volume, "", Code::VOLUME);
    }
    index.mark(&mut users, always.sandbox_image, "", Code::SANDBOX);
    for pull in always.pulls {
        index.mark(&mut users, pull, "", Code::PULL);
    }
    record(history, images, containers, &users, &Pass { last: last_pass, now });
    Detected { users }
}

/// When the pass is, and when the one before it was.
struct Pass {
    last: Option<Timestamp>,
    now: Timestamp,
}

/// Before this nobody had such images: a clock that says so was not set.
const NO_EARLIER: i64 = 1_400_000_000;

impl Pass {
    /// Since when an image is here that the history does not know. What the service says counts as far as it can be true: not
    /// before the last pass, which did not see the image, and not after now.
    fn first_detected(&self, image: &Image) -> Timestamp {
        let told = image.pulled_at.and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds.into()).ok());
        let told = told.filter(|at| at.as_second() >= NO_EARLIER).unwrap_or(self.now);
        told.max(self.last.unwrap_or(Timestamp::MIN)).min(self.now)
    }
}

fn record(history: &mut UsageHistory, images: &[Image], containers: &[Container], users: &[u32], at: &Pass) {
    history.passes = history.passes.wrapping_add(1);
    let pass = history.passes;
    history.records.reserve(images.len().saturating_sub(history.records.len()));
    let (now, hash) = (at.now.into(), history.records.hasher().clone());
    let mut seen = 0;
    for (images, users) in images.chunks(BLOCK).zip(users.chunks(BLOCK)) {
        let mut tags = [0; BLOCK];
        for (tag, user) in tags.iter_mut().zip(users) {
            if let Some(container) = containers.get(*user as usize) {
                #[expect(clippy::cast_possible_truncation, reason = "part of a hash")]
                let part = hash.of(container.id.as_bytes()) as u32;
                *tag = part | 1;
            }
        }
        for ((image, user), tag) in images.iter().zip(users).zip(tags) {
            let key = key(&image.id, handler(image));
            let pulled_at = image.pulled_at.unwrap_or(0);
            let entry = match history.records.get_mut(&*key) {
                Some(entry) => entry,
                None => {
                    let new = Entry::new(at.first_detected(image), pulled_at);
                    history.records.entry(key.into_owned().into_boxed_str()).or_insert(new)
                }
            };
            if entry.pulled_at != pulled_at && pulled_at != 0 {
                if entry.pulled_at != 0 {
                    // It went and came again between two passes.
                    entry.first_detected = at.first_detected(image).into();
                }
                entry.pulled_at = pulled_at;
            }
            if entry.pass != pass {
                entry.pass = pass;
                seen += 1;
            }
            if matches!(*user, Code::NONE | Code::PULL) {
                continue;
            }
            // What was brought ahead of its use has been used.
            entry.protected_until = Time::NEVER;
            entry.last_used = now;
            // The container's name is put together once, not in each pass.
            if entry.user != tag
                && let Some(container) = containers.get(*user as usize)
            {
                entry.user = tag;
                if !is_named(&entry.used_by, container) {
                    entry.used_by = name(container).into_boxed_str();
                }
            }
        }
    }
    if seen != history.records.len() {
        history.records.retain(|_, record| record.pass == pass);
    }
}

/// Labels by which a kubelet, and whoever follows it, names the pod of a container.
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD: &str = "io.kubernetes.pod.name";

/// `namespace/pod/container`, as far as the labels tell.
pub(crate) fn name(container: &Container) -> String {
    match (container.labels.get(NAMESPACE), container.labels.get(POD)) {
        (Some(namespace), Some(pod)) => [namespace.as_str(), pod, &container.metadata.name].join("/"),
        _ => format!("container {}", container.id),
    }
}

/// Whether `text` is this container's [`name`], without making it.
fn is_named(text: &str, container: &Container) -> bool {
    match (container.labels.get(NAMESPACE), container.labels.get(POD)) {
        (Some(namespace), Some(pod)) => text
            .strip_prefix(namespace.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .and_then(|rest| rest.strip_prefix(pod.as_str()))
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| rest == container.metadata.name),
        _ => text.strip_prefix("container ").is_some_and(|id| id == container.id),
    }
}

/// The runtime handler that an image is for.
pub(crate) fn handler(image: &Image) -> &str {
    image.spec.as_ref().map_or("", |spec| spec.runtime_handler.as_str())
}

/// What a container says of its image: the id, or where the runtime is older than that the image ref.
fn id_of(container: &Container) -> &str {
    if container.image_id.is_empty() { &container.image_ref } else { &container.image_id }
}

/// Finds images by id, and by name where an id does not fit.
struct Index<'a> {
    images: &'a [Image],
    hash: FastHash,
    /// Numbers of images, each with a part of its id's hash, at the place that the hash names or behind it; of images of one
    /// id the first. There are several of one id only where runtime handlers have images of their own.
    slots: Vec<Slot>,
    mask: usize,
    /// The next image of the same id, where there is one.
    next: HashMap<usize, usize>,
    /// Whether any image is for one runtime handler alone.
    handlers: bool,
    /// Images by name and by normal form of the name, made when first asked for.
    names: Option<HashMap<&'a str, usize>>,
}

/// The number of an image in 24 bits, and 40 bits of a hash: eight bytes, so that the table of a big node is near.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u64);

impl Slot {
    const EMPTY: Self = Self(u64::MAX);
    const NUMBER: u64 = (1 << 24) - 1;

    fn new(hash: u64, image: usize) -> Self {
        Self(hash & !Self::NUMBER | image as u64)
    }

    fn is_of(self, hash: u64) -> bool {
        (self.0 ^ hash) & !Self::NUMBER == 0
    }

    fn image(self) -> usize {
        usize::try_from(self.0 & Self::NUMBER).unwrap_or(usize::MAX)
    }
}

/// How many containers are looked at together: the processor then waits for the memory of all of them at the same time.
const BLOCK: usize = 32;

/// From so many containers on, several threads look at them.
const WORTH_THREADS: usize = 20_000;
const MOST_THREADS: usize = 4;

/// The container of this number as the user of an image.
fn code_of(container: usize) -> u32 {
    u32::try_from(container).unwrap_or(u32::MAX).min(Code::LAST_CONTAINER)
}

impl<'a> Index<'a> {
    fn new(images: &'a [Image]) -> Self {
        // More than 16 million images are looked for one by one.
        let count = images.len().min(1 << 23);
        // At least one place stays empty: there a search ends.
        let places = (count + count / 4 + 1).next_power_of_two();
        let mut index = Self {
            images,
            hash: FastHash::default(),
            slots: vec![Slot::EMPTY; places],
            mask: places - 1,
            next: HashMap::new(),
            handlers: images.iter().any(|image| !handler(image).is_empty()),
            names: None,
        };
        for (number, image) in images.iter().enumerate().take(count).rev() {
            let hash = index.hash.of(image.id.as_bytes());
            let place = index.place(hash, &image.id);
            if index.slots[place] != Slot::EMPTY {
                index.next.insert(number, index.slots[place].image());
            }
            index.slots[place] = Slot::new(hash, number);
        }
        index
    }

    /// Where an id of this hash is, or would be. An image id is taken by its hash alone: 57 bits that differ in each process.
    /// Should two of them ever have the same, both are in use when one is.
    fn place(&self, hash: u64, id: &str) -> usize {
        let mut place = self.home(hash);
        loop {
            let slot = self.slots[place];
            if slot == Slot::EMPTY || (slot.is_of(hash) && (is_id(id.as_bytes()) || self.images[slot.image()].id == id))
            {
                return place;
            }
            place = (place + 1) & self.mask;
        }
    }

    fn home(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the mask is shorter")]
        let place = hash as usize & self.mask;
        place
    }

    fn by_id(&self, id: &str) -> Option<usize> {
        let slot = self.slots[self.place(self.hash.of(id.as_bytes()), id)];
        if slot != Slot::EMPTY {
            return Some(slot.image());
        }
        let far = self.images.iter().enumerate().skip(1 << 23).find(|(_, image)| image.id == id);
        far.map(|(number, _)| number)
    }

    /// Marks what containers use. Runtimes may answer an id, a digest of the manifest or a name.
    fn mark_containers(&mut self, users: &mut [u32], containers: &[Container]) {
        for number in self.mark_ids(users, containers) {
            let (container, user) = (&containers[number], code_of(number));
            let handler = &container.image.runtime_handler;
            let by_id = self.mark(users, id_of(container), handler, user);
            if !by_id && !self.mark(users, &container.image_ref, handler, user) {
                self.mark(users, &container.image.image, handler, user);
            }
        }
    }

    /// Marks what containers say by an id that is here. Answers the numbers of the others. What takes long is waiting for
    /// memory, so that on a big node several processors share it.
    fn mark_ids(&self, users: &mut [u32], containers: &[Container]) -> Vec<usize> {
        if containers.len() < WORTH_THREADS {
            return self.mark_ids_of(users, containers, 0);
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let share = containers.len().div_ceil(threads);
        let (mine, theirs) = containers.split_at(share);
        std::thread::scope(|scope| {
            let mark = |part: usize, containers| {
                let mut users = vec![Code::NONE; self.images.len()];
                let others = self.mark_ids_of(&mut users, containers, (part + 1) * share);
                (users, others)
            };
            let parts = theirs.chunks(share).enumerate().map(|(part, containers)| {
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || mark(part, containers));
                (part, containers, thread)
            });
            let parts: Vec<_> = parts.collect();
            let mut others = self.mark_ids_of(users, mine, 0);
            for (part, containers, thread) in parts {
                let (found, of_part) = match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    // Where no thread can be started, it is done here.
                    Err(_) => mark(part, containers),
                };
                for (user, found) in users.iter_mut().zip(found) {
                    // Of several containers the first is told, however many threads there are.
                    *user = if *user == Code::NONE { found } else { *user };
                }
                others.extend(of_part);
            }
            others
        })
    }

    fn mark_ids_of(&self, users: &mut [u32], containers: &[Container], first: usize) -> Vec<usize> {
        // An image of several runtime handlers, or of one alone, is not known by its id.
        if self.handlers || !self.next.is_empty() {
            return (first..first + containers.len()).collect();
        }
        let mut others = Vec::new();
        for (block, containers) in containers.chunks(BLOCK).enumerate() {
            let mut hashes = [0; BLOCK];
            for (hash, container) in hashes.iter_mut().zip(containers) {
                *hash = self.hash.of(id_of(container).as_bytes());
            }
            let near = hashes.map(|hash| self.slots[self.home(hash)]);
            for (number, container) in containers.iter().enumerate() {
                let (id, hash) = (id_of(container), hashes[number]);
                let number_of_all = first + block * BLOCK + number;
                if !is_id(id.as_bytes()) {
                    others.push(number_of_all);
                    continue;
                }
                let mut slot = near[number];
                if slot == Slot::EMPTY || !slot.is_of(hash) {
                    slot = self.slots[self.place(hash, id)];
                }
                if slot == Slot::EMPTY {
                    others.push(number_of_all);
                    continue;
                }
                let place = &mut users[slot.image()];
                *place = if *place == Code::NONE { code_of(number_of_all) } else { *place };
            }
        }
        others
    }

    /// Whether there is such an image.
    fn mark(&mut self, users: &mut [u32], what: &str, runtime_handler: &str, user: u32) -> bool {
        if what.is_empty() {
            return false;
        }
        let mut found = self.by_id(what).or_else(|| self.by_name(what));
        let is_here = found.is_some();
        while let Some(number) = found {
            // An image without a handler is for every handler, and a user without one may use any.
            if users[number] == Code::NONE {
                let of = handler(&self.images[number]);
                if of.is_empty() || runtime_handler.is_empty() || of == runtime_handler {
                    users[number] = user;
                }
            }
            found = self.next.get(&number).copied();
        }
        is_here
    }

    fn by_name(&mut self, text: &str) -> Option<usize> {
        if text.len() == "sha256:".len() + 64 && text.starts_with("sha256:") {
            return None; // An id: it is of an image that is gone.
        }
        let names = self.names.get_or_insert_with(|| {
            let all = self.images.iter().enumerate();
            all.flat_map(|(number, image)| {
                image.repo_tags.iter().chain(&image.repo_digests).map(move |name| (name.as_str(), number))
            })
            .collect()
        });
        if let Some(number) = names.get(text) {
            return Some(*number);
        }
        // As people spell it: in normal form, or an id without its algorithm.
        let normal =
            oci::Reference::parse(text).ok().map(|reference| reference.with_default_tag().canonical().to_string());
        let normal = normal.as_deref().and_then(|text| names.get(text).copied());
        normal.or_else(|| {
            let whole = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
            whole.then(|| self.by_id(&format!("sha256:{text}"))).flatten()
        })
    }
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
