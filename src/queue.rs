//! Queues of the waiters of this process, in the order in which they came.
//!
//! The first waiter of a queue polls the database, at least as often as any of them wants to; the others sleep. A release in this process calls
//! [`Queues::notify_released`], which wakes the first sleeping waiter, and that one queries at once. So the number of
//! queries depends on the number of releases, not on the number of waiters. One of the waiters [watches](watch) the time
//! for the first.
//!
//! - A waiter whose query is running does not block the others: meanwhile the next sleeping waiter is the first. So a
//!   connection that does not respond delays only its own waiter. And a waiter may be overtaken: a release during its query
//!   is handed over to the next one.
//! - No release is missed: a waiter whose query was running during a release, and was refused, queries once more.
//! - Other processes are not notified. They poll as often as the first waiter of a queue here, and would hardly ever
//!   find a slot that is handed over within this process. So some releases are yielded to them, each for as long as
//!   the slot would stay free if all waiters of this process polled ([`FairShare`](waiters::FairShare)).
//! - The number of concurrent first queries is limited. When one of them ends, the next one starts.
//! - A name may stand for different things in different databases: each is a target with its own queue. A waiter that knows
//!   its target [joins](Queues::join_target) that queue. Otherwise, if there is one queue, it [joins](Queues::join) that one,
//!   and has to [identify](Turn::Identify) its target soon.
//! - A waiter relies on the queries of others only while they are answered: see `Ticket::asking_by`.

mod queues;
mod ticket;
mod turn;
mod waiter;
mod waiters;
mod wakes;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use queues::Queues;
pub(crate) use ticket::Ticket;
pub(crate) use turn::Turn;
pub(crate) use waiter::Released;
