//! What several engines do alike with slots, by the statements of their modules `slot_sql`. For their modules `slots`.

/// `$run`: the trait by which the engine runs statements. `$failure`: its error type.
macro_rules! slot_methods {
    ($conn:ty, $run:path, $failure:ty) => {
        use crate::semaphore::backend::Expiry;

        fn key(slot: &Slot) -> slot_sql::Key<'_> {
            slot_sql::Key {
                name: slot.semaphore.as_ref(),
                number: slot.number_i32(),
                token: slot.token.as_bytes(),
            }
        }

        fn renew(
            conn: &mut $conn,
            slot: &Slot,
            lease_us: i64,
            expiry: Expiry,
        ) -> Result<usize, $failure> {
            use $run as _;

            let key = key(slot);
            match expiry {
                Expiry::Unexpired => slot_sql::RenewUnexpired { key, lease_us }.execute(conn),
                Expiry::IncludeExpired => slot_sql::Renew { key, lease_us }.execute(conn),
            }
        }

        fn release(conn: &mut $conn, slot: &Slot, expiry: Expiry) -> Result<usize, $failure> {
            use $run as _;

            let key = key(slot);
            match expiry {
                Expiry::Unexpired => slot_sql::ReleaseUnexpired { key }.execute(conn),
                Expiry::IncludeExpired => slot_sql::Release { key }.execute(conn),
            }
        }

        fn release_unused(conn: &mut $conn, slot: &Slot) -> Result<usize, $failure> {
            use $run as _;

            slot_sql::ReleaseUnused { key: key(slot) }.execute(conn)
        }

        /// The largest fence of all slots, or the clock if that is later.
        fn largest_fence(conn: &mut $conn) -> Result<i64, $failure> {
            use $run as _;

            let last: Option<i64> = slot_sql::last_fence().get_result(conn)?;
            let now_us: i64 = slot_sql::now().get_result(conn)?;
            Ok(last.unwrap_or(0).max(crate::semaphore::fence::at(now_us)))
        }
    };
}
pub(super) use slot_methods;

/// What only PostgreSQL and MySQL do alike, because they lock rows. `$text`: the Rust type of a bound name. `$stored`: the type of a name that is read.
/// `$count`: runs a statement that returns no rows.
/// `$delete`: the statement that deletes the slots above a number, which are locked. Expects `at_read_committed`, which runs several statements in a
/// transaction.
#[cfg(any(feature = "postgres", feature = "mysql"))]
macro_rules! locking_slot_methods {
    ($conn:ty, $text:ty, $stored:ty, $run:path, $count:path, $delete:path, $failure:ty) => {
        use crate::engine::retry::autocommit_retry;
        use crate::engine::slot_resize::{BATCH_SIZE, slots_to_add, slots_to_delete};

        /// Adds the next slots in the open transaction. A session that adds or removes slots locks the floor first, so
        /// only one does at a time.
        fn create_batch(
            conn: &mut $conn,
            name: &$text,
            permits: i32,
            block: bool,
        ) -> Result<BatchOutcome, $failure> {
            use $run as _;

            let floor: Option<i64> = if block {
                slot_sql::lock_fence_floor().load(conn)?.pop()
            } else {
                slot_sql::lock_fence_floor_if_free().load(conn)?.pop()
            };
            let Some(fence) = floor else {
                let there: Vec<i64> = slot_sql::fence_floor().load(conn)?;
                return Ok(if there.is_empty() {
                    BatchOutcome::NoFenceFloor
                } else {
                    BatchOutcome::Contended
                });
            };
            let last: Option<i32> = slot_sql::last_number(name).load(conn)?.pop();
            let numbers = slots_to_add(last, permits);
            let is_last = *numbers.end() == permits;
            if !numbers.is_empty() {
                $count(slot_sql::insert_slots(name, numbers, fence), conn)?;
            }
            Ok(if is_last {
                BatchOutcome::Complete
            } else {
                BatchOutcome::Partial
            })
        }

        /// Whether another session has locked the floor. Called outside a transaction.
        fn floor_is_locked(conn: &mut $conn) -> Result<bool, $failure> {
            use $run as _;

            let free: Vec<i64> = slot_sql::lock_fence_floor_if_free().load(conn)?;
            if !free.is_empty() {
                return Ok(false);
            }
            let there: Vec<i64> = slot_sql::fence_floor().load(conn)?;
            Ok(!there.is_empty())
        }

        /// Inserts the floor unless it exists.
        fn insert_fence_floor(conn: &mut $conn) -> Result<(), Error> {
            let last = autocommit_retry(conn, largest_fence)?;
            autocommit_retry(conn, |conn| {
                $count(slot_sql::insert_fence_floor(last), conn)
            })?;
            Ok(())
        }

        /// Raises the floor in the open transaction, by `by` above all fences, if there is a floor and it does not get
        /// too large.
        fn raise_fence_floor(conn: &mut $conn, by: Duration) -> Result<RaiseOutcome, $failure> {
            use $run as _;

            let Some(floor): Option<i64> = slot_sql::lock_fence_floor().load(conn)?.pop() else {
                return Ok(RaiseOutcome::NoFenceFloor);
            };
            let last = largest_fence(conn)?.max(floor);
            let Some(raised) = crate::semaphore::fence::raised(last, by) else {
                return Ok(RaiseOutcome::TooLarge);
            };
            $count(slot_sql::set_fence_floor(raised), conn)?;
            Ok(RaiseOutcome::RaisedTo(raised))
        }

        /// Releases every leased slot; returns how many were held.
        fn force_release(conn: &mut $conn, name: &$text) -> Result<usize, Error> {
            use $run as _;

            let claimed: Vec<(i32, bool)> =
                autocommit_retry(conn, |conn| slot_sql::held_numbers(name).load(conn))?;
            let mut held = 0;
            for (number, unexpired) in claimed {
                let freed = autocommit_retry(conn, |conn| {
                    $count(slot_sql::force_release(name, number), conn)
                })?;
                held += if unexpired { freed } else { 0 };
            }
            Ok(held)
        }

        /// Deletes the last slots of each semaphore that are free and unused for `age_us`, and returns how many.
        fn purge(conn: &mut $conn, age_us: i64) -> Result<usize, Error> {
            use $run as _;

            let semaphores: Vec<($stored, Option<i32>)> =
                autocommit_retry(conn, |conn| slot_sql::semaphores().load(conn))?;
            let mut purged = 0;
            for (name, permits) in semaphores {
                loop {
                    let removed = at_read_committed(conn, |conn| {
                        delete_last(conn, name.as_ref(), age_us, permits.unwrap_or(0))
                    })?;
                    match removed {
                        None => insert_fence_floor(conn)?,
                        Some(0) => break,
                        Some(removed) => purged += removed,
                    }
                }
            }
            Ok(purged)
        }

        /// Deletes the last slots that are free, unused for `age_us` and not locked, down to the first that is not, so
        /// that the numbers have no gaps. Returns how many, or `None` when the row of `diesel_locks_fences` is missing.
        fn delete_last(
            conn: &mut $conn,
            name: &$text,
            age_us: i64,
            permits: i32,
        ) -> Result<Option<usize>, $failure> {
            use $run as _;

            let Some(floor): Option<i64> = slot_sql::lock_fence_floor().load(conn)?.pop() else {
                return Ok(None);
            };
            let last: Option<i32> = slot_sql::last_number(name).load(conn)?.pop();
            let retained: Option<i32> = slot_sql::last_retained(name, age_us, permits)
                .load(conn)?
                .pop();
            let above = retained.unwrap_or(0);
            let rows: Vec<(i32, i64)> =
                slot_sql::lock_free_above(name, above, BATCH_SIZE.into()).load(conn)?;
            let Some(deletion) = slots_to_delete(last, &rows, floor) else {
                return Ok(Some(0));
            };
            if deletion.fence > floor {
                $count(slot_sql::set_fence_floor(deletion.fence), conn)?;
            }
            $count($delete(name, deletion.above), conn).map(Some)
        }
    };
}
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use locking_slot_methods;
