//! [`Backoff`]: how long a pod waits before an image is pulled for it again, and why. Pure: the caller passes the time,
//! nothing is read, written or logged. The manager asks it before a pull and reports the outcome of the pull to it.
//!
//! As in the kubelet an entry belongs to a pod's uid and the image as it was requested, begins with 10 s, doubles up to
//! 300 s, is forgotten after 600 s, and outlives a success. In addition: causes that pass by themselves have a lower cap;
//! a registry that names a time is not asked for so long, for any pod; an entry is removed when the credentials or the
//! registry's configuration change; and entries of deleted pods are removed without a success.

mod plain;

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

pub use plain::{BackoffEntry, BackoffOptions, BackoffSelector};

use crate::Cause;

/// The pod and image of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    /// As it was requested.
    pub(crate) image: &'a str,
    pub(crate) registry: &'a str,
    /// Fingerprints of the pull's dependencies: when they change, earlier failures do not count.
    pub(crate) marks: Marks,
}

/// Fingerprints of what a pull depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Fingerprint of the credentials that a look-up could return.
    pub(crate) keyring: u64,
    /// Fingerprint of the registry's configuration.
    pub(crate) registry: u64,
}

/// How a pull failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a> {
    pub(crate) cause: Cause,
    /// How long the registry wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
    /// Reason and message.
    pub(crate) message: &'a str,
}

/// Why there is no pull now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActiveBackoff {
    pub(crate) cause: Cause,
    /// Reason and message of the failure behind it.
    pub(crate) message: String,
    pub(crate) until: Instant,
    /// True if an event is to be recorded.
    pub(crate) tell: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BackoffKey {
    uid: String,
    image: String,
}

#[derive(Clone, Debug)]
struct BackoffState {
    namespace: String,
    name: String,
    registry: String,
    marks: Marks,
    cause: Cause,
    message: String,
    failures: u32,
    /// The back-off that the next failure doubles.
    base: Duration,
    window: Duration,
    updated: Instant,
    told: bool,
    /// A pull has succeeded since: it is kept only for what the next failure doubles.
    succeeded: bool,
}

impl BackoffState {
    fn until(&self) -> Instant {
        self.updated + self.window
    }

    fn is_forgotten(&self, now: Instant, options: &BackoffOptions) -> bool {
        now.saturating_duration_since(self.updated) > (options.max * 2).max(self.window)
    }
}

/// A registry that wants to be left alone.
#[derive(Clone, Debug)]
struct BackoffHold {
    until: Instant,
    cause: Cause,
    marks: Marks,
    message: String,
}

/// The back-off of all pods.
#[derive(Debug)]
pub(crate) struct Backoff {
    options: BackoffOptions,
    entries: HashMap<BackoffKey, BackoffState>,
    /// By registry.
    holds: HashMap<String, BackoffHold>,
    next_sweep: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(options: BackoffOptions) -> Self {
        Self { options, entries: HashMap::new(), holds: HashMap::new(), next_sweep: None }
    }

    /// Changes the options for failures from now on. Waits that have begun last as long as they would have.
    pub(crate) fn set_options(&mut self, options: BackoffOptions) {
        self.options = options;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the back-off if a pull has to wait. It asks for an event once per window, or always by option.
    pub(crate) fn check(&mut self, subject: &Subject<'_>, now: Instant) -> Option<ActiveBackoff> {
        self.sweep_sometimes(now);
        self.forget_what_changed(subject);
        if let Some(hold) = self.hold(subject, now) {
            self.join_hold(subject, &hold, now);
        }
        let every = self.options.event_every_check;
        let entry = self.entries.get_mut(&key(subject))?;
        if now >= entry.until() {
            return None;
        }
        let tell = every || !std::mem::replace(&mut entry.told, true);
        Some(ActiveBackoff { cause: entry.cause, message: entry.message.clone(), until: entry.until(), tell })
    }

    /// The same, without any change: what the next check would find.
    pub(crate) fn peek(&self, subject: &Subject<'_>, now: Instant) -> Option<ActiveBackoff> {
        let entry = self.entries.get(&key(subject)).filter(|entry| entry.marks == subject.marks && now < entry.until());
        let own =
            entry.map(|e| ActiveBackoff { cause: e.cause, message: e.message.clone(), until: e.until(), tell: false });
        let hold = self.hold(subject, now);
        let held = hold.map(|h| ActiveBackoff { cause: h.cause, message: h.message, until: h.until, tell: false });
        match (own, held) {
            (Some(own), Some(held)) if held.until > own.until => Some(held),
            (own, held) => own.or(held),
        }
    }

    /// Notes a failure: a new window begins.
    pub(crate) fn failed(&mut self, subject: &Subject<'_>, failure: Failure<'_>, now: Instant) {
        self.sweep_sometimes(now);
        self.forget_what_changed(subject);
        let options = self.options;
        let before = self.entries.get(&key(subject)).filter(|entry| !entry.is_forgotten(now, &options));
        let before = before.filter(|entry| entry.failures > 0);
        let failures = before.map_or(1, |entry| entry.failures.saturating_add(1));
        let base = before.map_or(options.initial, |entry| entry.base.saturating_mul(2)).min(options.max);
        let cap = match options.by_cause && failure.cause.passes_by_itself() {
            true => options.passing_max.min(options.max),
            false => options.max,
        };
        let mut window = base.min(cap);
        let asked = failure.retry_after.filter(|_| options.by_cause).map(|asked| asked.min(options.retry_after_max));
        if let Some(asked) = asked {
            window = window.max(asked);
            self.leave_alone(subject, failure, now + asked);
        }
        let entry = BackoffState {
            namespace: subject.namespace.to_owned(),
            name: subject.name.to_owned(),
            registry: subject.registry.to_owned(),
            marks: subject.marks,
            cause: failure.cause,
            message: failure.message.to_owned(),
            failures,
            base,
            window,
            updated: now,
            told: false,
            succeeded: false,
        };
        self.insert(key(subject), entry, now);
    }

    /// Records that the pod has its image. As in the kubelet the entry stays: the back-off of an image that fails now and then
    /// does not start from the beginning.
    pub(crate) fn succeeded(&mut self, uid: &str, image: &str, now: Instant) {
        if self.entries.is_empty() {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&BackoffKey { uid: uid.to_owned(), image: image.to_owned() }) {
            entry.succeeded = true;
        }
        self.sweep_sometimes(now);
    }

    /// Returns the entries that wait, and those whose wait is over without a success since, sorted by pod and image.
    pub(crate) fn list(&mut self, now: Instant) -> Vec<BackoffEntry> {
        self.sweep(now);
        let waiting = self.entries.iter().filter(|(_, entry)| !entry.succeeded || now < entry.until());
        let mut list: Vec<BackoffEntry> = waiting
            .map(|(key, entry)| BackoffEntry {
                namespace: entry.namespace.clone(),
                name: entry.name.clone(),
                uid: key.uid.clone(),
                image: key.image.clone(),
                registry: entry.registry.clone(),
                cause: entry.cause,
                message: entry.message.clone(),
                failures: entry.failures,
                window: entry.window,
                until: entry.until(),
                remaining: entry.until().saturating_duration_since(now),
            })
            .collect();
        list.sort_by(|a, b| (&a.namespace, &a.name, &a.image, &a.uid).cmp(&(&b.namespace, &b.name, &b.image, &b.uid)));
        list
    }

    /// Removes entries, and returns how many. The wait that a registry asked for is removed with the entries that it
    /// holds, because the user wants a pull now.
    pub(crate) fn reset(&mut self, what: &BackoffSelector) -> usize {
        let chosen = |key: &BackoffKey, entry: &BackoffState| match what {
            BackoffSelector::All => true,
            BackoffSelector::Image(image) => key.image == *image,
            BackoffSelector::Pod { namespace, name } => entry.namespace == *namespace && entry.name == *name,
            BackoffSelector::Uid(uid) => key.uid == *uid,
            BackoffSelector::Registry(registry) => entry.registry == *registry,
        };
        match what {
            BackoffSelector::All => self.holds.clear(),
            BackoffSelector::Registry(registry) => drop(self.holds.remove(registry)),
            BackoffSelector::Image(_) | BackoffSelector::Pod { .. } | BackoffSelector::Uid(_) => {}
        }
        let before = self.entries.len();
        let holds = &mut self.holds;
        self.entries.retain(|key, entry| {
            let go = chosen(key, entry);
            if go {
                holds.remove(&entry.registry);
            }
            !go
        });
        before - self.entries.len()
    }

    /// Keeps what the subject's registry asked for.
    fn leave_alone(&mut self, subject: &Subject<'_>, failure: Failure<'_>, until: Instant) {
        if self.holds.len() >= self.options.max_entries.max(1) && !self.holds.contains_key(subject.registry) {
            return;
        }
        let hold =
            BackoffHold { until, cause: failure.cause, marks: subject.marks, message: failure.message.to_owned() };
        self.holds.insert(subject.registry.to_owned(), hold);
    }

    /// The hold of the subject's registry, if it still lasts.
    fn hold(&self, subject: &Subject<'_>, now: Instant) -> Option<BackoffHold> {
        let hold = self.holds.get(subject.registry)?;
        let same_way = hold.marks.registry == subject.marks.registry;
        (same_way && now < hold.until).then(|| hold.clone())
    }

    /// A registry's wish becomes the subject's own window, so that it is listed and can be reset.
    fn join_hold(&mut self, subject: &Subject<'_>, hold: &BackoffHold, now: Instant) {
        let key = key(subject);
        if self.entries.get(&key).is_some_and(|entry| entry.until() >= hold.until) {
            return;
        }
        let before = self.entries.get(&key).filter(|entry| !entry.is_forgotten(now, &self.options));
        let entry = BackoffState {
            namespace: subject.namespace.to_owned(),
            name: subject.name.to_owned(),
            registry: subject.registry.to_owned(),
            marks: subject.marks,
            cause: hold.cause,
            message: hold.message.clone(),
            failures: before.map_or(0, |entry| entry.failures),
            base: before.map_or(self.options.initial, |entry| entry.base),
            window: hold.until.saturating_duration_since(now),
            updated: now,
            told: false,
            succeeded: false,
        };
        self.insert(key, entry, now);
    }

    /// Drops the subject's entry where the credentials or the registry's configuration are others than when it was made.
    fn forget_what_changed(&mut self, subject: &Subject<'_>) {
        let key = key(subject);
        if self.entries.get(&key).is_some_and(|entry| entry.marks != subject.marks) {
            self.entries.remove(&key);
        }
        let changed = |hold: &BackoffHold| hold.marks.registry != subject.marks.registry;
        if self.holds.get(subject.registry).is_some_and(changed) {
            self.holds.remove(subject.registry);
        }
    }

    fn insert(&mut self, key: BackoffKey, entry: BackoffState, now: Instant) {
        let full = self.entries.len() >= self.options.max_entries.max(1);
        if full && !self.entries.contains_key(&key) {
            self.sweep(now);
            if self.entries.len() >= self.options.max_entries.max(1) {
                let first = self.entries.iter().min_by_key(|(_, entry)| entry.until()).map(|(key, _)| key.clone());
                first.map(|key| self.entries.remove(&key));
            }
        }
        self.entries.insert(key, entry);
    }

    fn sweep_sometimes(&mut self, now: Instant) {
        if self.next_sweep.is_none_or(|next| now >= next) {
            self.sweep(now);
        }
    }

    fn sweep(&mut self, now: Instant) {
        let options = self.options;
        self.entries.retain(|_, entry| !entry.is_forgotten(now, &options));
        self.holds.retain(|_, hold| now < hold.until);
        self.next_sweep = Some(now + options.max.max(Duration::from_secs(1)));
    }
}

fn key(subject: &Subject<'_>) -> BackoffKey {
    BackoffKey { uid: subject.uid.to_owned(), image: subject.image.to_owned() }
}

#[cfg(test)]
#[path = "backoff_tests.rs"]
mod tests;
