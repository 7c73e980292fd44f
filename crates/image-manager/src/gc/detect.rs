//! [`detect`]: which images are here, which of them are in use, and what that adds to the [`UsageHistory`]. One pass over
//! the lists that the runtime answered; no call of its own, however many containers there are.

use std::collections::HashMap;

use cri_api::{Container, Image};
use jiff::Timestamp;

use super::history::{UsageHistory, UsageRecord, key};

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
    record(history, images, containers, &users, now);
    Detected { users }
}

fn record(history: &mut UsageHistory, images: &[Image], containers: &[Container], users: &[User], now: Timestamp) {
    history.passes += 1;
    let pass = history.passes;
    history.records.reserve(images.len().saturating_sub(history.records.len()));
    for (image, user) in images.iter().zip(users) {
        let key = key(&image.id, handler(image));
        if !history.records.contains_key(&*key) {
            history.records.insert(key.clone().into_owned().into_boxed_str(), UsageRecord::new(now));
        }
        let Some(record) = history.records.get_mut(&*key) else { continue };
        record.pass = pass;
        if matches!(user, User::None | User::Pull) {
            continue;
        }
        // A clock that was set back does not take a use away.
        record.last_used = Some(record.last_used.map_or(now, |earlier| earlier.max(now)));
        if let User::Container(number) = user
            && let Some(container) = containers.get(*number)
            && !is_named(&record.used_by, container)
        {
            record.used_by = name(container).into_boxed_str();
        }
    }
    history.records.retain(|_, record| record.pass == pass);
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
    /// The first image of an id. There are several of one id only where runtime handlers have images of their own.
    ids: HashMap<&'a str, usize>,
    /// The next image of the same id, where there is one.
    next: HashMap<usize, usize>,
    /// Images by name and by normal form of the name, made when first asked for.
    names: Option<HashMap<&'a str, usize>>,
}

impl<'a> Index<'a> {
    fn new(images: &'a [Image]) -> Self {
        let mut ids = HashMap::with_capacity(images.len());
        let mut next = HashMap::new();
        for (number, image) in images.iter().enumerate().rev() {
            if let Some(later) = ids.insert(image.id.as_str(), number) {
                next.insert(number, later);
            }
        }
        Self { images, ids, next, names: None }
    }

    /// Whether there is such an image.
    fn mark(&mut self, users: &mut [User], what: &str, runtime_handler: &str, user: User) -> bool {
        if what.is_empty() {
            return false;
        }
        let mut found = self.ids.get(what).copied().or_else(|| self.by_name(what));
        let is_here = found.is_some();
        while let Some(number) = found {
            // An image without a handler is for every handler, and a user without one may use any.
            let of = handler(&self.images[number]);
            if (of.is_empty() || runtime_handler.is_empty() || of == runtime_handler) && users[number] == User::None {
                users[number] = user;
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
            whole.then(|| self.ids.get(format!("sha256:{text}").as_str()).copied()).flatten()
        })
    }
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
