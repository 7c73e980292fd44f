//! How many events may be written: a limit for the whole node, and one for each object, as the kubelet's spam filter has it.
//! Pure; the time is an argument. Called by [`super::EventWriter`].

use std::time::Duration;

use hashlink::LruCache;
use image_manager::ObjectRef;
use tokio::time::Instant;

/// Events of the node: at once, and how often one more.
const NODE: (f64, Duration) = (50.0, Duration::from_millis(200));
/// Events about one object: at once, and how often one more.
const OBJECT: (f64, Duration) = (25.0, Duration::from_secs(300));
/// Number of objects that are remembered.
const OBJECTS: usize = 4096;

/// A bucket that fills up again with time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// Fills up; what is missing until there is one for the taking.
    fn fill(&mut self, (most, every): (f64, Duration), now: Instant) -> Option<Duration> {
        let more = now.saturating_duration_since(self.at).as_secs_f64() / every.as_secs_f64();
        self.left = (self.left + more).min(most);
        self.at = now;
        (self.left < 1.0).then(|| every.mul_f64(1.0 - self.left))
    }
}

/// The budget of a node.
pub(super) struct Budget {
    node: Bucket,
    objects: LruCache<(String, String, String), Bucket>,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self { node: Bucket { left: NODE.0, at: now }, objects: LruCache::new(OBJECTS) }
    }

    /// Returns the wait until the node may write an event.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.node.fill(NODE, now)
    }

    /// Takes one for this object; false if there were too many about it, and this one is to be dropped.
    pub(super) fn take(&mut self, object: &ObjectRef, now: Instant) -> bool {
        let key = (object.namespace.clone(), object.name.clone(), object.uid.clone());
        let mut bucket = self.objects.remove(&key).unwrap_or(Bucket { left: OBJECT.0, at: now });
        let fits = bucket.fill(OBJECT, now).is_none();
        if fits {
            bucket.left -= 1.0;
            self.node.left -= 1.0;
        }
        self.objects.insert(key, bucket);
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef { name: name.to_owned(), ..ObjectRef::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn one_object_does_not_speak_for_all() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let taken = (0..40).filter(|_| budget.take(&object("loud"), start)).count();
        assert_eq!(taken, 25);
        assert!(budget.take(&object("quiet"), start));
        let later = start + Duration::from_secs(600);
        assert_eq!((0..40).filter(|_| budget.take(&object("loud"), later)).count(), 2, "one in five minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn the_node_has_a_rate() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut taken = 0;
        while budget.wait(start).is_none() {
            assert!(budget.take(&object(&taken.to_string()), start));
            taken += 1;
        }
        assert_eq!((taken, budget.wait(start)), (50, Some(Duration::from_millis(200))));
        assert_eq!(budget.wait(start + Duration::from_millis(250)), None);
    }
}
