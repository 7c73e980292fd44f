//! Work that several callers want at the same time, done once, as Go's `singleflight` does it.
//!
//! A [`Group`] holds the flights that are under way, by key. A caller [joins](Group::join) the flight of a key and gets a
//! [`Ticket`], with which it waits for the answer; dropping the ticket is leaving. The first caller also gets the
//! [`Flight`], runs it as a task of its own, and [lands](Flight::land) it with the answer for all.
//!
//! Unlike Go's, a flight ends when its last waiter has left; it decides through [`Shared::last_left`] whether it ends at
//! once or lingers. A [`Hub`] reports the progress of a flight to its subscribers.
//!
//! This crate knows nothing of the work: it starts no tasks, and reads no clock but tokio's timer.

mod call;
mod flight;
mod group;
mod hub;

pub use call::{Shared, WaiterId};
pub use flight::Flight;
pub use group::{Group, Joined, Ticket};
pub use hub::{Hub, Progress, Subscription};
