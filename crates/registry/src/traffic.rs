//! [`Traffic`]: the bytes that a client received from each host of its registries, for metrics; and [`HostBytes`], those of one session.
//! Bodies of manifests, configs and layers count, those of errors and token services do not. `session` counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::lock::Mutex;

/// The most mirrors that are counted by name. The names are those of the configuration; this is a bound for odd ones.
const MAX_MIRRORS: usize = 64;
/// Name of the mirrors beyond that.
const OTHER: &str = "other";

/// The bytes that were received from one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBytes {
    /// `host[:port]`, as configured. Bytes after a redirect count for the host that redirected.
    pub host: String,
    /// True for a mirror, false for the registry itself.
    pub mirror: bool,
    /// Received bytes.
    pub bytes: u64,
}

/// The bytes of all pulls of a client. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Mutex<TrafficCounts>>);

#[derive(Debug, Default)]
struct TrafficCounts {
    registries: u64,
    mirrors: BTreeMap<String, u64>,
}

impl Traffic {
    /// Counts received bytes.
    pub(crate) fn add(&self, host: &str, mirror: bool, bytes: u64) {
        let mut counts = self.0.lock();
        if !mirror {
            counts.registries += bytes;
        } else if let Some(count) = counts.mirrors.get_mut(host) {
            *count += bytes;
        } else {
            let name = if counts.mirrors.len() < MAX_MIRRORS { host } else { OTHER };
            *counts.mirrors.entry(name.to_owned()).or_default() += bytes;
        }
    }

    /// Returns the bytes that registries themselves sent.
    #[must_use]
    pub fn registries(&self) -> u64 {
        self.0.lock().registries
    }

    /// Returns the bytes of each mirror, by its `host[:port]`.
    #[must_use]
    pub fn mirrors(&self) -> BTreeMap<String, u64> {
        self.0.lock().mirrors.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mirrors_are_bounded_and_no_byte_is_lost() {
        let traffic = Traffic::default();
        (0..100).for_each(|n| traffic.add(&format!("m{n}.example"), true, 2));
        traffic.add("m0.example", true, 5);
        traffic.add("r.example", false, 3);
        traffic.add("s.example", false, 4);
        let mirrors = traffic.mirrors();
        assert_eq!((mirrors.len(), mirrors["m0.example"], mirrors[OTHER]), (MAX_MIRRORS + 1, 7, 72));
        assert_eq!(traffic.registries(), 7);
    }
}
