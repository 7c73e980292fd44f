//! [`detect`]: finds the present images and those in use, and updates the [`UsageHistory`]. One pass over the lists that the
//! runtime returned; no call of its own, however many containers there are.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use cri_api::{Container, Image};
use hashbrown::{DefaultHashBuilder, HashTable};
use jiff::Timestamp;
use oci::ReferenceOrId;

use super::history::{TrackedRecord, UsageHistory, UsageRecord, key};
use super::node_time::Moment;

/// Users of images other than containers.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysUsed<'a> {
    /// The sandbox image; `None`: there is none, or the runtime pins it.
    pub sandbox_image: Option<&'a ReferenceOrId>,
    /// Images that pods mount as volumes, or need though there is no container of them yet.
    pub volumes: &'a [ReferenceOrId],
    /// Images that are being pulled, or were pulled a moment ago.
    pub pulls: &'a [ReferenceOrId],
}

/// The user of each image, in the order of the list of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    users: Vec<User>,
}

/// User of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The image is not used.
    None,
    /// The container of this number in the list of containers; others may as well.
    Container(usize),
    /// The sandbox image.
    Sandbox,
    /// A pod has mounted it as a volume, or needs it otherwise.
    Volume,
    /// The image is being pulled, or was pulled a moment ago. A pull is not a use, but one is about to follow.
    Pull,
}

impl Detected {
    /// The user of the image of this number in the list.
    #[must_use]
    pub fn user(&self, image: usize) -> User {
        self.users.get(image).copied().unwrap_or(User::None)
    }

    /// Returns true if the image of this number is in use.
    #[must_use]
    pub fn in_use(&self, image: usize) -> bool {
        self.user(image) != User::None
    }

    /// Adapts the users to a list from which images were removed.
    pub(super) fn retain(&mut self, stays: &[bool]) {
        let mut stays = stays.iter();
        self.users.retain(|_| stays.next().copied().unwrap_or(true));
    }
}

/// Inspects the images and containers at `now`, and updates the history: new images get a record, used ones a new last use,
/// records of removed images are removed. Containers count in any state: an exited one may be started again.
pub fn detect(
    history: &mut UsageHistory,
    images: &[Image],
    containers: &[Container],
    always: AlwaysUsed<'_>,
    now: Timestamp,
) -> Detected {
    detect_at(history, images, containers, always, now.into())
}

/// Like [`detect`], at a moment of which more is known than the wall clock.
pub(super) fn detect_at(
    history: &mut UsageHistory,
    images: &[Image],
    containers: &[Container],
    always: AlwaysUsed<'_>,
    moment: Moment,
) -> Detected {
    let now = moment.wall;
    let last_pass = history.begin_pass(moment);
    let mut index = UsageIndex::new(images);
    let mut users = vec![User::None; images.len()];
    index.mark_containers(&mut users, containers);
    for volume in always.volumes {
        index.mark(&mut users, volume, User::Volume);
    }
    if let Some(sandbox_image) = always.sandbox_image {
        index.mark(&mut users, sandbox_image, User::Sandbox);
    }
    for pull in always.pulls {
        index.mark(&mut users, pull, User::Pull);
    }
    record(history, images, containers, &users, &Pass { last: last_pass, now });
    Detected { users }
}

/// When the pass is, and when the one before it was.
struct Pass {
    last: Option<Timestamp>,
    now: Timestamp,
}

/// Seconds since 1970. Container images did not exist before this time: a clock that shows less was not set.
const NO_EARLIER: i64 = 1_400_000_000;

impl Pass {
    /// Returns since when an image that is not in the history is on the node. The time that the service reports counts as far
    /// as it can be true: not before the last pass, which did not see the image, and not after now.
    fn first_detected(&self, image: &Image) -> Timestamp {
        let told = image.pulled_at.and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds.into()).ok());
        let told = told.filter(|at| at.as_second() >= NO_EARLIER).unwrap_or(self.now);
        told.max(self.last.unwrap_or(Timestamp::MIN)).min(self.now)
    }
}

/// Updates the history by one pass.
fn record(history: &mut UsageHistory, images: &[Image], containers: &[Container], users: &[User], at: &Pass) {
    history.passes = history.passes.wrapping_add(1);
    let pass = history.passes;
    history.records.reserve(images.len().saturating_sub(history.records.len()));
    let hasher = history.records.hasher().clone();
    let mut seen = 0;
    for (image, user) in images.iter().zip(users) {
        let key = key(&image.id, handler(image));
        let pulled_at = image.pulled_at.unwrap_or(0);
        let tracked = match history.records.get_mut(&*key) {
            Some(tracked) => tracked,
            None => {
                let new = UsageRecord { pulled_at, ..UsageRecord::new(at.first_detected(image)) };
                history.records.entry(key.into_owned().into_boxed_str()).or_insert(TrackedRecord::new(new))
            }
        };
        if tracked.pass != pass {
            tracked.pass = pass;
            seen += 1;
        }
        let record = &mut tracked.record;
        if record.pulled_at != pulled_at && pulled_at != 0 {
            if record.pulled_at != 0 {
                // Removed and pulled again between two passes.
                record.first_detected = at.first_detected(image);
            }
            record.pulled_at = pulled_at;
        }
        if matches!(user, User::None | User::Pull) {
            continue;
        }
        // An image that was pulled ahead of its use has been used.
        record.protected_until = None;
        record.last_used = Some(at.now);
        if let User::Container(number) = user
            && let Some(container) = containers.get(*number)
        {
            let hash = hasher.hash_one(&container.id) | 1;
            if tracked.container != hash {
                tracked.container = hash;
                tracked.record.used_by = name(container).into_boxed_str();
            }
        }
    }
    if seen != history.records.len() {
        history.records.retain(|_, tracked| tracked.pass == pass);
    }
}

/// Labels by which a kubelet, and every client that follows it, names the pod of a container.
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD: &str = "io.kubernetes.pod.name";

/// Returns `namespace/pod/container`, as far as the labels have it.
pub(crate) fn name(container: &Container) -> String {
    match (container.labels.get(NAMESPACE), container.labels.get(POD)) {
        (Some(namespace), Some(pod)) => [namespace.as_str(), pod, &container.metadata.name].join("/"),
        _ => format!("container {}", container.id),
    }
}

/// The runtime handler that an image is for.
pub(crate) fn handler(image: &Image) -> &str {
    image.spec.as_ref().map_or("", |spec| spec.runtime_handler.as_str())
}

/// Image id of a container, or with an older runtime its image ref.
fn id_of(container: &Container) -> &str {
    if container.image_id.is_empty() { &container.image_ref } else { &container.image_id }
}

/// Keeps the first of several users.
fn set(place: &mut User, user: User) {
    if *place == User::None {
        *place = user;
    }
}

/// Hash of an id. Sixteen digits of a digest are enough: they cannot be chosen.
fn hash_of(builder: &DefaultHashBuilder, id: &str) -> u64 {
    let digest = id.strip_prefix("sha256:").filter(|digest| digest.len() == 64);
    builder.hash_one(digest.and_then(|digest| digest.as_bytes().first_chunk::<16>()).map_or(id.as_bytes(), |d| d))
}

/// Finds images by id, and by name where an id does not fit.
struct UsageIndex<'a> {
    images: &'a [Image],
    hash: DefaultHashBuilder,
    /// Numbers of images by id. There are several of one id only if runtime handlers have images of their own.
    by_id: HashTable<u32>,
    /// False if several images may have one id, or an image is for one runtime handler alone.
    ids_are_enough: bool,
    /// Numbers of images by name, made when first needed.
    names: Option<HashMap<&'a str, usize>>,
}

/// How many containers are looked up together: the processor then waits for the memory of all of them at the same time.
const BLOCK: usize = 32;

impl<'a> UsageIndex<'a> {
    fn new(images: &'a [Image]) -> Self {
        let hash = DefaultHashBuilder::default();
        let mut index =
            Self { images, hash, by_id: HashTable::with_capacity(images.len()), ids_are_enough: true, names: None };
        // No node has more images than that.
        for (number, image) in (0..u32::MAX).zip(images) {
            let hash = index.hash_of(&image.id);
            let is_same = |other: &u32| images[*other as usize].id == image.id;
            index.ids_are_enough &= handler(image).is_empty() && index.by_id.find(hash, is_same).is_none();
            let UsageIndex { by_id, hash: builder, .. } = &mut index;
            by_id.insert_unique(hash, number, |other| hash_of(builder, &images[*other as usize].id));
        }
        index
    }

    fn hash_of(&self, id: &str) -> u64 {
        hash_of(&self.hash, id)
    }

    /// Returns the number of the first image whose id may have this hash: seven bits of it are compared. Reads no image.
    fn first_of(&self, hash: u64) -> Option<usize> {
        self.by_id.find(hash, |_| true).map(|number| *number as usize)
    }

    /// Marks the images of containers. Runtimes may name an image by id, by digest of the manifest or by name.
    fn mark_containers(&mut self, users: &mut [User], containers: &[Container]) {
        for (block, containers) in containers.chunks(BLOCK).enumerate() {
            let mut hashes = [0; BLOCK];
            for (hash, container) in hashes.iter_mut().zip(containers) {
                *hash = self.hash_of(id_of(container));
            }
            let found = hashes.map(|hash| self.first_of(hash));
            for (number, (container, found)) in containers.iter().zip(found).enumerate() {
                let user = User::Container(block * BLOCK + number);
                match found {
                    Some(image) if self.ids_are_enough && self.images[image].id == id_of(container) => {
                        set(&mut users[image], user);
                    }
                    _ => self.mark_container(users, container, user),
                }
            }
        }
    }

    fn mark_container(&mut self, users: &mut [User], container: &Container, user: User) {
        let handler = &container.image.runtime_handler;
        let _ = self.mark_text(users, id_of(container), handler, user)
            || self.mark_text(users, &container.image_ref, handler, user)
            || self.mark_text(users, &container.image.image, handler, user);
    }

    /// Marks an image by the text that a runtime reports, unless the image has a user already. Returns true if there is such an
    /// image. The text is parsed only if it is not in the list of images as it is.
    fn mark_text(&mut self, users: &mut [User], text: &str, runtime_handler: &str, user: User) -> bool {
        if text.is_empty() {
            return false;
        }
        if self.mark_id(users, text, runtime_handler, user) {
            return true;
        }
        let id = self.by_listed_name(text).or_else(|| self.by_meaning(&ReferenceOrId::parse(text)));
        id.is_some_and(|id| self.mark_id(users, id, runtime_handler, user))
    }

    /// Marks an image, unless it has a user already.
    fn mark(&mut self, users: &mut [User], named: &ReferenceOrId, user: User) {
        if named.as_str().is_empty() || self.mark_id(users, named.as_str(), "", user) {
            return;
        }
        if let Some(id) = self.by_listed_name(named.as_str()).or_else(|| self.by_meaning(named)) {
            self.mark_id(users, id, "", user);
        }
    }

    fn mark_id(&self, users: &mut [User], id: &str, runtime_handler: &str, user: User) -> bool {
        let mut is_here = false;
        for &number in self.by_id.iter_hash(self.hash_of(id)) {
            let number = number as usize;
            let image = &self.images[number];
            if image.id != id {
                continue;
            }
            is_here = true;
            // An image without a handler is for every handler, and a user without one may use any.
            let of = handler(image);
            if of.is_empty() || runtime_handler.is_empty() || of == runtime_handler {
                set(&mut users[number], user);
            }
        }
        is_here
    }

    /// Returns the id of the image that the list has by this very name.
    fn by_listed_name(&mut self, text: &str) -> Option<&'a str> {
        if is_whole_id(text) {
            return None; // The id of an image that was removed.
        }
        let images = self.images;
        let names = self.names.get_or_insert_with(|| {
            let all = images.iter().enumerate();
            all.flat_map(|(number, image)| {
                image.repo_tags.iter().chain(&image.repo_digests).map(move |name| (name.as_str(), number))
            })
            .collect()
        });
        names.get(text).map(|number| images[*number].id.as_str())
    }

    /// Returns the id of the image that the list has by another spelling of a name, or by an id without its algorithm.
    fn by_meaning(&mut self, named: &ReferenceOrId) -> Option<&'a str> {
        if is_whole_id(named.as_str()) {
            return None;
        }
        let reference = named.reference();
        let spellings = reference.map(|name| [name.clone().canonical(), name.clone().with_default_tag()]);
        if let Some(id) = spellings.iter().flatten().find_map(|name| self.by_listed_name(&name.to_string())) {
            return Some(id);
        }
        let id = named.id()?.to_string();
        self.images.iter().find(|image| image.id == id).map(|image| image.id.as_str())
    }
}

/// Returns true for an id with its algorithm.
fn is_whole_id(text: &str) -> bool {
    text.len() == "sha256:".len() + 64 && text.starts_with("sha256:")
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
