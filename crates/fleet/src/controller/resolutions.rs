//! [`Resolutions`]: the digests of rollouts that begin, and of images that could not be resolved before. Each set is resolved by one
//! task at a time, once for a rollout; only failures are tried again, at growing intervals. Secrets are read where they are and kept
//! for the time of the task alone. Called by [`super::pass`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use cluster::ClusterClient;
use cluster::client::{Failure, failure, text};
use cluster::pull_secrets;
use credentials::PullSecret;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::resolver::TagResolver;
use crate::api::{ImageSet, Resolution, ResolvedImage, SetImage};
use crate::rollout::rollout_hash;

/// First and longest wait after a failure.
const FIRST_RETRY: Duration = Duration::from_secs(30);
const LAST_RETRY: Duration = Duration::from_secs(600);

/// Resolution of one set.
struct Entry {
    hash: String,
    /// `None` until the first task ended.
    images: Option<Vec<ResolvedImage>>,
    is_running: bool,
    retry_at: Instant,
    wait: Duration,
}

#[derive(Clone)]
pub(super) struct Resolutions {
    client: ClusterClient,
    namespace: String,
    resolver: Arc<dyn TagResolver>,
    tasks: TaskTracker,
    changed: Arc<Notify>,
    stop: CancellationToken,
    /// Guards the resolutions by uid of the set.
    entries: Arc<Mutex<HashMap<String, Entry>>>,
}

impl Resolutions {
    pub(super) fn new(
        (client, namespace, resolver): (&ClusterClient, &str, &Arc<dyn TagResolver>),
        tasks: &TaskTracker,
        changed: &Arc<Notify>,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            resolver: Arc::clone(resolver),
            tasks: tasks.clone(),
            changed: Arc::clone(changed),
            stop: stop.clone(),
            entries: Arc::default(),
        }
    }

    /// Drops the resolutions of sets that do not exist any more.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.entries.lock().retain(|uid, _| exists(uid));
    }

    /// Returns the images of a set as far as they are resolved, and starts a task if one is due. `None` if nothing is known that the
    /// status of the set does not have.
    pub(super) fn of(&self, set: &ImageSet) -> Option<Vec<ResolvedImage>> {
        let hash = rollout_hash(&set.spec);
        if set.spec.resolution == Resolution::OnNode {
            return Some(set.spec.images.iter().map(unresolved).collect());
        }
        let uid = set.metadata.uid.clone()?;
        let mut entries = self.entries.lock();
        if !needs_digests(set, &hash) {
            entries.remove(&uid);
            return None;
        }
        let entry = entries.entry(uid.clone()).or_insert_with(|| Entry::new(&hash));
        if entry.hash != hash {
            *entry = Entry::new(&hash);
        }
        if !entry.is_running && entry.retry_at <= Instant::now() {
            entry.is_running = true;
            let (all, missing) = (self.clone(), entry.missing(set));
            let secrets = set.spec.pull_secrets.iter().map(|secret| secret.name.clone()).collect();
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                stop.run_until_cancelled(all.resolve(uid, hash, missing, secrets)).await;
            });
        }
        entry.images.clone()
    }

    async fn resolve(&self, uid: String, hash: String, images: Vec<SetImage>, secrets: Vec<String>) {
        let (secrets, problems) = self.secrets(secrets).await;
        let mut resolved = self.resolver.resolve(&images, &secrets).await;
        if !problems.is_empty() {
            for image in resolved.iter_mut().filter(|image| image.digest.is_none()) {
                let error = image.message.take().unwrap_or_default();
                image.message = Some(format!("{}; {error}", problems.join(", ")).chars().take(256).collect());
            }
        }
        {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&uid).filter(|entry| entry.hash == hash) else { return };
            entry.finish(resolved);
        }
        self.changed.notify_one();
    }

    /// Reads the secrets; the second list has what is wrong with those that cannot be read.
    async fn secrets(&self, names: Vec<String>) -> (Vec<PullSecret>, Vec<String>) {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for name in names {
            match pull_secrets::read(&self.client, &self.namespace, &name).await {
                Ok(secret) => found.push(secret),
                Err(error) if failure(&error) == Failure::NotFound => {
                    problems.push(format!("secret {}/{name} does not exist", self.namespace));
                }
                Err(error) => {
                    problems.push(format!("secret {}/{name} cannot be read: {}", self.namespace, text(&error)))
                }
            }
        }
        (found, problems)
    }
}

impl Entry {
    fn new(hash: &str) -> Self {
        Self { hash: hash.to_owned(), images: None, is_running: false, retry_at: Instant::now(), wait: FIRST_RETRY }
    }

    /// Returns the images of the set that have no digest yet.
    fn missing(&self, set: &ImageSet) -> Vec<SetImage> {
        let is_begun = set.status.as_ref().is_some_and(|status| status.rollout_hash.as_ref() == Some(&self.hash));
        let of_status = set.status.iter().filter(|_| is_begun).flat_map(|status| &status.resolved);
        let known: Vec<&str> = of_status
            .chain(self.images.iter().flatten())
            .filter(|image| image.digest.is_some())
            .map(|image| image.name.as_str())
            .collect();
        set.spec.images.iter().filter(|image| !known.contains(&image.name.as_str())).cloned().collect()
    }

    /// Takes the result of a task. Digests that are known stay.
    fn finish(&mut self, resolved: Vec<ResolvedImage>) {
        match &mut self.images {
            None => self.images = Some(resolved),
            Some(images) => {
                for new in resolved {
                    match images.iter_mut().find(|image| image.name == new.name) {
                        Some(image) => *image = new,
                        None => images.push(new),
                    }
                }
            }
        }
        self.is_running = false;
        self.retry_at = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(LAST_RETRY);
    }
}

/// Returns true if the set has a rollout to begin, or an image without a digest.
fn needs_digests(set: &ImageSet, hash: &str) -> bool {
    let Some(status) = &set.status else { return true };
    let is_begun = status.rollout_hash.as_deref() == Some(hash);
    !is_begun || status.rolled_back_from.is_none() && status.resolved.iter().any(|image| image.digest.is_none())
}

fn unresolved(image: &SetImage) -> ResolvedImage {
    ResolvedImage { name: image.name.clone(), pull_policy: image.pull_policy, ..ResolvedImage::default() }
}
