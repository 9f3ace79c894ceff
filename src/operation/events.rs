//! The events that this crate records by [`tracing`](https://docs.rs/tracing), for logs and metrics.
//!
//! Each event in the table has the field `outcome`. Targets, outcomes and fields are part of the crate's interface;
//! messages and levels are not. Durations are whole microseconds (`u64`); `waited` and `held` are the same durations
//! as texts.
//!
//! | target | `outcome` | recorded when | fields |
//! |---|---|---|---|
//! | `diesel_locks::object_lock` | `granted` | the locks were acquired | `ids`, `waited_us`, `waited` |
//! | | `refused` | a lock is held, and the request does not wait | `ids` |
//! | | `timed_out` | the time of the request, or a time-out of the session, is up | `ids`, `waited_us`, `waited` |
//! | | `stopped` | the `StopToken` of a `LockPool` was stopped | `ids`, `waited_us`, `waited` |
//! | | `failed` | any other error | `ids`, `error` |
//! | | `released` | the transaction or savepoint that was begun for the locks has ended | `ids`, `held_us`, `held` |
//! | `diesel_locks::slot` | `granted` | a slot was acquired | `semaphore`, `number` of a leased slot, `waited_us`, `waited` |
//! | | `refused`, `timed_out`, `stopped`, `failed` | as above | `semaphore`, and as above |
//! | | `released` | a `SlotGuard` or `AsyncSlotGuard`, or the transaction that held a slot, has ended | `semaphore`, `number` of a leased slot, `held_us`, `held` |
//! | | `lost` | a `SlotGuard` or `AsyncSlotGuard` is lost: its lease was not renewed in time, or it was released by force | `semaphore`, `number`, `held_us`, `held` |
//! | `diesel_locks::transaction` | `retried` | a transaction is about to run again, by its [`RetryPolicy`](crate::RetryPolicy) | `reason`, `attempt`, `pause` |
//!
//! A request ends with one of `granted`, `refused`, `timed_out`, `stopped` and `failed`, so their sum counts the
//! requests. A request that waits in an open transaction counts too. [`lock_object`](crate::ObjectLockExt::lock_object)
//! and [`release_slot`](crate::SemaphoreExt::release_slot) record no `released`: the crate does not see when the
//! transaction ends, or when the slot was acquired. A lost guard records `lost` and no `released`.
//!
//! Other events, such as renewals that failed, have targets that begin with `diesel_locks::` too, and no `outcome`.
//!
//! The program `web` makes metrics for Prometheus of these events: `programs/web/src/metrics.rs` in the repository.
