//! [`detect`]: which images are here, which of them are in use, and what that adds to the [`UsageHistory`]. One pass over
//! the lists that the runtime answered; no call of its own, however many containers there are.

use std::collections::HashMap;

use cri_api::{Container, Image};
use jiff::Timestamp;

use super::entry::{Entry, Time};
use super::fast_hash::FastHash;
use super::history::{UsageHistory, key};
use super::node_time::Moment;

/// What uses images beside containers.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysUsed<'a> {
    /// The sandbox image, by id or by any name; empty: there is none, or the runtime pins it.
    pub sandbox_image: &'a str,
    /// Images that pods mount as volumes, by id or name.
    pub volumes: &'a [String],
    /// Images that pulls are bringing, or have brought a moment ago, by id or name.
    pub pulls: &'a [String],
}

/// What one pass found, image by image, in the order of the list it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    users: Vec<User>,
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
    /// A pod has mounted it as a volume.
    Volume,
    /// A pull is bringing it, or has just done so. It is not used by that, but somebody is about to.
    Pull,
}

impl Detected {
    pub(crate) fn new(users: Vec<User>) -> Self {
        Self { users }
    }

    /// Who uses the image of this number in the list.
    #[must_use]
    pub fn user(&self, image: usize) -> User {
        self.users.get(image).copied().unwrap_or(User::None)
    }

    /// Whether the image of this number is in use.
    #[must_use]
    pub fn in_use(&self, image: usize) -> bool {
        self.user(image) != User::None
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
    let mut users = vec![User::None; images.len()];
    for (number, container) in containers.iter().enumerate() {
        let handler = &container.image.runtime_handler;
        let (id, reference) = (&container.image_id, &container.image_ref);
        let user = User::Container(number);
        // Runtimes may answer an id, a digest of the manifest or a name: whatever fits is in use.
        let by_id = index.mark(&mut users, id, handler, user);
        let by_reference = reference != id && index.mark(&mut users, reference, handler, user);
        if !by_id && !by_reference {
            index.mark(&mut users, &container.image.image, handler, user);
        }
    }
    for volume in always.volumes {
        index.mark(&mut users, volume, "", User::Volume);
    }
    index.mark(&mut users, always.sandbox_image, "", User::Sandbox);
    for pull in always.pulls {
        index.mark(&mut users, pull, "", User::Pull);
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

fn record(history: &mut UsageHistory, images: &[Image], containers: &[Container], users: &[User], at: &Pass) {
    history.passes = history.passes.wrapping_add(1);
    let pass = history.passes;
    history.records.reserve(images.len().saturating_sub(history.records.len()));
    let now = at.now.into();
    let mut seen = 0;
    for (image, user) in images.iter().zip(users) {
        let key = key(&image.id, handler(image));
        let pulled_at = image.pulled_at.unwrap_or(0);
        if !history.records.contains_key(&*key) {
            let new = Entry::new(at.first_detected(image), pulled_at);
            history.records.insert(key.clone().into_owned().into_boxed_str(), new);
        }
        let Some(record) = history.records.get_mut(&*key) else { continue };
        if record.pulled_at != pulled_at && pulled_at != 0 {
            if record.pulled_at != 0 {
                // It went and came again between two passes.
                record.first_detected = at.first_detected(image).into();
            }
            record.pulled_at = pulled_at;
        }
        if record.pass != pass {
            record.pass = pass;
            seen += 1;
        }
        if matches!(user, User::None | User::Pull) {
            continue;
        }
        // What was brought ahead of its use has been used.
        record.protected_until = Time::NEVER;
        record.last_used = now;
        if let User::Container(number) = user
            && let Some(container) = containers.get(*number)
            && !is_named(&record.used_by, container)
        {
            record.used_by = name(container).into_boxed_str();
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
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}/{}", container.metadata.name),
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
    /// Images by name and by normal form of the name, made when first asked for.
    names: Option<HashMap<&'a str, usize>>,
}

#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    image: u32,
}

impl Slot {
    const EMPTY: Self = Self { tag: 0, image: u32::MAX };
}

impl<'a> Index<'a> {
    fn new(images: &'a [Image]) -> Self {
        let places = (images.len() * 2).next_power_of_two().max(2);
        let (slots, next) = (vec![Slot::EMPTY; places], HashMap::new());
        let mut index = Self { images, hash: FastHash::default(), slots, mask: places - 1, next, names: None };
        for (number, image) in images.iter().enumerate().rev() {
            let Ok(short) = u32::try_from(number) else { continue };
            let (place, tag) = index.place(&image.id);
            let later = index.slots[place];
            if later.image != u32::MAX {
                index.next.insert(number, later.image as usize);
            }
            index.slots[place] = Slot { tag, image: short };
        }
        index
    }

    /// Where an id is, or would be.
    fn place(&self, id: &str) -> (usize, u32) {
        let hash = self.hash.of(id.as_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "parts of a hash")]
        let (mut place, tag) = (hash as usize & self.mask, (hash >> 32) as u32);
        loop {
            let slot = self.slots[place];
            if slot.image == u32::MAX || (slot.tag == tag && self.images[slot.image as usize].id == id) {
                return (place, tag);
            }
            place = (place + 1) & self.mask;
        }
    }

    fn by_id(&self, id: &str) -> Option<usize> {
        let slot = self.slots[self.place(id).0];
        (slot.image != u32::MAX).then_some(slot.image as usize)
    }

    /// Whether there is such an image.
    fn mark(&mut self, users: &mut [User], what: &str, runtime_handler: &str, user: User) -> bool {
        if what.is_empty() {
            return false;
        }
        let mut found = self.by_id(what).or_else(|| self.by_name(what));
        let is_here = found.is_some();
        while let Some(number) = found {
            // An image without a handler is for every handler, and a user without one may use any.
            if users[number] == User::None {
                let of = handler(&self.images[number]);
                if of.is_empty() || runtime_handler.is_empty() || of == runtime_handler {
                    users[number] = user;
                }
            }
            if self.next.is_empty() {
                break;
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
