//! [`Flight`]: the side of a flight that does the work.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::single_flight::call::{Call, Shared, Table, WaiterId};

/// A flight that runs. It leaves its [`Group`](crate::single_flight::Group) when it is dropped, also by a panic; only then do its waiters
/// get the answer, so that a later caller starts another flight.
#[must_use = "dropping it ends the flight without an answer"]
pub struct Flight<K: Hash + Eq, S: Shared, A, W = ()> {
    table: Arc<Table<K, S, A, W>>,
    call: Arc<Call<K, S, A, W>>,
    sender: watch::Sender<Option<A>>,
    answer: Option<A>,
}

impl<K: Hash + Eq, S: Shared, A, W> Flight<K, S, A, W> {
    pub(crate) fn new(
        table: Arc<Table<K, S, A, W>>,
        call: Arc<Call<K, S, A, W>>,
        sender: watch::Sender<Option<A>>,
    ) -> Self {
        Self { table, call, sender, answer: None }
    }

    /// The value that the waiters of the flight share.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.call.shared
    }

    /// Ends the flight with an answer for all its waiters.
    pub fn land(mut self, answer: A) {
        self.answer = Some(answer);
    }

    /// The first waiter, in order of arrival, for which `of` returns something.
    pub fn find_waiter<R>(&self, of: impl FnMut(&mut W) -> Option<R>) -> Option<(WaiterId, R)> {
        self.call.find_waiter(of)
    }

    /// Answers one waiter before the flight ends; it is no longer a waiter afterwards.
    pub fn answer_one(&self, waiter: WaiterId, answer: A) {
        self.call.answer_one(waiter, answer);
    }

    /// Leaves the group if there are no waiters. Returns true if there are none.
    #[must_use]
    pub fn retire(&self) -> bool {
        self.table.retire(&self.call)
    }

    /// Returns when there have been no waiters for as long as `linger` returns. The flight has left its group by then, so that
    /// no caller joins an abandoned flight.
    pub async fn abandoned(&self, linger: impl Fn(&S) -> Duration) {
        loop {
            self.call.until_waited_for(false).await;
            let joined = self.call.until_waited_for(true);
            if tokio::time::timeout(linger(&self.call.shared), joined).await.is_err() && self.retire() {
                return;
            }
        }
    }
}

impl<K: Hash + Eq, S: Shared, A, W> Drop for Flight<K, S, A, W> {
    fn drop(&mut self) {
        self.table.remove(&self.call);
        if let Some(answer) = self.answer.take() {
            self.sender.send_replace(Some(answer));
        }
    }
}
