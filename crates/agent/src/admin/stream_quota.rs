//! [`StreamQuota`]: the streams of events that may be open. Streams of callers that may change state are counted separately, and
//! every other user has a share: no user can take the streams of root, nor those of another user. Called by the routes of streams.

use std::collections::HashMap;
use std::sync::Arc;

use base::lock::Mutex;

/// Streams of callers who may change things.
const PRIVILEGED: usize = 64;
/// Streams of all other users.
const OTHERS: usize = 32;
/// Of these, streams of one user.
const PER_USER: usize = 8;

/// The open streams.
#[derive(Clone, Debug)]
pub(super) struct StreamQuota {
    /// Streams that callers who may change things may have.
    privileged: usize,
    /// Guards the numbers of open streams.
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    privileged: usize,
    users: HashMap<Option<u32>, usize>,
}

/// The limit that a further stream would exceed.
#[derive(Debug, thiserror::Error)]
#[error("{limit} streams of events of {owner} are open, which is the limit")]
pub(super) struct TooManyStreams {
    limit: usize,
    owner: &'static str,
}

/// The place of an open stream, until it is dropped.
#[derive(Debug)]
pub(super) struct StreamPlace {
    quota: StreamQuota,
    user: Option<u32>,
    is_privileged: bool,
}

impl Default for StreamQuota {
    fn default() -> Self {
        Self { privileged: PRIVILEGED, open: Arc::default() }
    }
}

impl StreamQuota {
    /// No limit for callers who may change things.
    pub(super) fn unlimited() -> Self {
        Self { privileged: usize::MAX, open: Arc::default() }
    }

    /// A place for a stream of this user.
    ///
    /// # Errors
    /// Too many streams are open.
    pub(super) fn place(&self, user: Option<u32>, is_privileged: bool) -> Result<StreamPlace, TooManyStreams> {
        let mut open = self.open.lock();
        if is_privileged {
            if open.privileged >= self.privileged {
                return Err(TooManyStreams { limit: self.privileged, owner: "privileged users" });
            }
            open.privileged += 1;
        } else {
            if open.users.get(&user).is_some_and(|count| *count >= PER_USER) {
                return Err(TooManyStreams { limit: PER_USER, owner: "this user" });
            }
            if open.users.values().sum::<usize>() >= OTHERS {
                return Err(TooManyStreams { limit: OTHERS, owner: "unprivileged users" });
            }
            *open.users.entry(user).or_default() += 1;
        }
        Ok(StreamPlace { quota: self.clone(), user, is_privileged })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.quota.open.lock();
        if self.is_privileged {
            open.privileged -= 1;
            return;
        }
        if let Some(count) = open.users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens streams until one is refused.
    fn fill(quota: &StreamQuota, user: u32) -> (Vec<StreamPlace>, String) {
        let mut places = Vec::new();
        loop {
            match quota.place(Some(user), user == 0) {
                Ok(place) => places.push(place),
                Err(error) => return (places, error.to_string()),
            }
        }
    }

    #[test]
    fn users_cannot_take_the_streams_of_others() {
        let quota = StreamQuota::default();
        let (first, line) = fill(&quota, 1000);
        assert_eq!(first.len(), PER_USER);
        assert_eq!(line, "8 streams of events of this user are open, which is the limit");
        let (second, _) = fill(&quota, 1001);
        assert_eq!(second.len(), PER_USER, "another user has a share");
        let more: Vec<_> = (1002..1010).map(|user| fill(&quota, user).0).collect();
        assert_eq!(more.iter().map(Vec::len).sum::<usize>(), OTHERS - 2 * PER_USER, "many users have no more together");
        let (root, line) = fill(&quota, 0);
        assert_eq!((root.len(), line.contains("of privileged users")), (PRIVILEGED, true));
        drop(first);
        assert_eq!(fill(&quota, 2000).0.len(), PER_USER, "a closed stream is free for another");
        drop((root, second, more));
        assert!(quota.open.lock().users.is_empty());
    }
}
