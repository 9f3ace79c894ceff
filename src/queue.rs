//! Queues of the waiters of this process, in the order in which they came.
//!
//! The first waiter of a queue polls the database, at least as often as any of them wants to; the others sleep. A release in
//! this process calls the first sleeping waiter, which queries at once. So the number of queries depends on the number of
//! releases, not on the number of waiters. [`alarm`](crate::rt::alarm) watches the time.
//!
//! - A waiter whose query is running does not block the others: meanwhile the next sleeping waiter is the first. So a
//!   connection that does not respond, or a future that its application does not poll, delays the others for a moment. And a
//!   waiter may be overtaken: a release during its query is handed over to the next one.
//! - No release is missed: a waiter whose query was running during a release that nobody else was notified of, and that is
//!   refused, queries once more.
//! - Other processes are not notified of a release. Some releases are yielded to them ([`fair_share`]).
//! - A name may stand for different things in different databases: each is a target with its own queue. A waiter that does not
//!   know its target yet queries first, if nobody waits for the name ([`Place::query_first`]), and finds the target out before
//!   it [joins](Place::join).
//! - A waiter relies on the queries of others only while they are answered: see [`Place::ask_by`].

mod fair_share;
mod line;
mod place;
mod queues;
#[cfg(test)]
mod tests;

pub(crate) use crate::queue::line::{Options, Released};
pub(crate) use crate::queue::place::Place;
pub(crate) use crate::queue::queues::{Key, Queues};

/// The longest pause between two queries of the first waiter, before jitter.
pub(crate) const MAX_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);
