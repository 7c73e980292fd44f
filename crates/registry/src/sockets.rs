//! [`Sockets`]: how many sockets an HTTP client may have to an origin. A pool alone opens another socket whenever a request
//! is made before the last one's socket is returned, and whenever a transfer was given up whose socket is not closed yet; a registry
//! that counts connections refuses those. Here a socket counts from before it is opened until it is closed, a transfer from its
//! request until its body is dropped, and a socket is opened only while there are fewer sockets than transfers. So there are
//! never more sockets than there were transfers at once, without a timer: a request that may open none gets the socket
//! that comes back, or opens one when the other is closed. `connector` asks, `http_client` counts the transfers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use base::lock::Mutex;
use tokio::sync::watch;

/// The sockets of one HTTP client, by origin.
#[derive(Clone, Default)]
pub(crate) struct Sockets(Arc<Mutex<HashMap<String, Weak<OriginCounts>>>>);

/// The counts of one origin.
#[derive(Default)]
struct OriginCounts(watch::Sender<SocketCounts>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SocketCounts {
    transfers: usize,
    sockets: usize,
}

/// A request and its answer, until the answer's body is dropped.
pub(crate) struct Transfer(Arc<OriginCounts>);

/// A socket that is open, or about to be.
pub(crate) struct Socket(Arc<OriginCounts>);

/// The transfer that wanted a socket is over.
#[derive(Debug, thiserror::Error)]
#[error("the request that needed this connection has ended")]
pub(crate) struct TransferEnded;

tokio::task_local! {
    /// The transfer that a connection is made for: the pool polls the connector within the request.
    pub(crate) static TRANSFER: Weak<Transfer>;
}

impl Sockets {
    /// Counts a transfer to an origin (`scheme://host[:port]`).
    pub(crate) fn transfer(&self, origin: &str) -> Arc<Transfer> {
        let origin = self.origin(origin);
        origin.0.send_modify(|counts| counts.transfers += 1);
        Arc::new(Transfer(origin))
    }

    /// Waits until a socket may be opened for a transfer.
    ///
    /// # Errors
    /// [`TransferEnded`], when the transfer is over.
    pub(crate) async fn admit(&self, transfer: &Weak<Transfer>) -> Result<Socket, TransferEnded> {
        let origin = transfer.upgrade().map(|transfer| Arc::clone(&transfer.0)).ok_or(TransferEnded)?;
        let mut changes = origin.0.subscribe();
        loop {
            if transfer.strong_count() == 0 {
                return Err(TransferEnded);
            }
            let admitted = origin.0.send_if_modified(|counts| {
                let free = counts.sockets < counts.transfers;
                counts.sockets += usize::from(free);
                free
            });
            if admitted {
                return Ok(Socket(origin));
            }
            changes.changed().await.map_err(|_| TransferEnded)?;
        }
    }

    fn origin(&self, name: &str) -> Arc<OriginCounts> {
        let mut origins = self.0.lock();
        if let Some(origin) = origins.get(name).and_then(Weak::upgrade) {
            return origin;
        }
        origins.retain(|_, origin| origin.strong_count() > 0);
        let origin = Arc::new(OriginCounts::default());
        origins.insert(name.to_owned(), Arc::downgrade(&origin));
        origin
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.transfers -= 1);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.sockets -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const ORIGIN: &str = "https://r.example";

    #[tokio::test]
    async fn there_are_never_more_sockets_than_transfers() {
        let sockets = Sockets::default();
        let one = sockets.transfer(ORIGIN);
        let (wanted, two) = (Arc::downgrade(&one), sockets.transfer(ORIGIN));
        let first = sockets.admit(&wanted).now_or_never().expect("at once").expect("is wanted");
        let _second = sockets.admit(&wanted).now_or_never().expect("at once").expect("is wanted");
        assert!(sockets.admit(&wanted).now_or_never().is_none(), "two transfers have two sockets");
        // The socket of the transfer that ends is not closed yet: the next transfer waits for it.
        drop(two);
        let three = sockets.transfer(ORIGIN);
        let third = sockets.admit(&wanted);
        let mut third = std::pin::pin!(third);
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(third.await.is_ok());
        drop(three);
    }

    #[tokio::test]
    async fn abandoned_dial_opens_no_connection() {
        let sockets = Sockets::default();
        let transfer = sockets.transfer(ORIGIN);
        let wanted = Arc::downgrade(&transfer);
        let _socket = sockets.admit(&wanted).await.expect("is wanted");
        let second = sockets.admit(&wanted);
        let mut second = std::pin::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        drop(transfer);
        assert!(second.await.is_err());
        assert!(sockets.admit(&wanted).await.is_err());
    }

    #[tokio::test]
    async fn origins_do_not_wait_for_each_other_and_are_forgotten() {
        let sockets = Sockets::default();
        for n in 0..3 {
            let transfer = sockets.transfer(&format!("https://{n}.example"));
            assert!(sockets.admit(&Arc::downgrade(&transfer)).now_or_never().is_some());
        }
        let _last = sockets.transfer(ORIGIN);
        assert_eq!(sockets.0.lock().len(), 1);
    }
}
