//! What several engines do alike with slots, by the statements of their modules `slot_sql`. For their modules `slots`.

/// `$run`: the module whose functions run statements. `$failure`: its error type.
macro_rules! slot_methods {
    ($conn:ty, $run:ident, $failure:ty) => {
        use crate::semaphore::backend::Expiry;

        fn key(slot: &Slot) -> slot_sql::Key<'_> {
            slot_sql::Key {
                name: slot.semaphore.as_ref(),
                number: slot.number_i32(),
                token: slot.token.as_bytes(),
                in_transaction: 1,
            }
        }

        /// [`key`] for a statement that may run outside a transaction.
        fn key_anywhere<'a>(conn: &mut $conn, slot: &'a Slot) -> slot_sql::Key<'a> {
            let inside = crate::transaction::depth::depth(conn).is_ok_and(|depth| depth > 0);
            slot_sql::Key {
                in_transaction: inside.into(),
                ..key(slot)
            }
        }

        async fn renew(
            conn: &mut $conn,
            slot: &Slot,
            lease_us: i64,
            expiry: Expiry,
        ) -> Result<usize, $failure> {
            let key = key_anywhere(conn, slot);
            match expiry {
                Expiry::Unexpired => {
                    $run::execute(conn, slot_sql::RenewUnexpired { key, lease_us }).await
                }
                Expiry::IncludeExpired => {
                    $run::execute(conn, slot_sql::Renew { key, lease_us }).await
                }
            }
        }

        async fn release(conn: &mut $conn, slot: &Slot, expiry: Expiry) -> Result<usize, $failure> {
            let key = key_anywhere(conn, slot);
            match expiry {
                Expiry::Unexpired => $run::execute(conn, slot_sql::ReleaseUnexpired { key }).await,
                Expiry::IncludeExpired => $run::execute(conn, slot_sql::Release { key }).await,
            }
        }

        async fn release_unused(conn: &mut $conn, slot: &Slot) -> Result<usize, $failure> {
            let key = key_anywhere(conn, slot);
            $run::execute(conn, slot_sql::ReleaseUnused { key }).await
        }

        const SLOTS_TABLE: &str = "diesel_locks_slots";

        /// Fails if a statement that has to change a row has changed none: a trigger or a rule suppresses it.
        fn assert_changed(changed: usize, table: &'static str) -> Result<(), $failure> {
            if changed > 0 {
                return Ok(());
            }
            let source = None;
            Err(crate::engine::retry::StatementError::of(
                Error::ProtectedRow { table, source }.into(),
            ))
        }

        /// The largest fence of all slots, or the clock if that is later.
        async fn largest_fence(conn: &mut $conn) -> Result<i64, $failure> {
            let last: Option<i64> = $run::get_result(conn, slot_sql::last_fence()).await?;
            let now_us: i64 = $run::get_result(conn, slot_sql::now()).await?;
            Ok(last.unwrap_or(0).max(crate::semaphore::fence::at(now_us)))
        }
    };
}
pub(super) use slot_methods;

/// What only PostgreSQL and MySQL do alike, because they lock rows. `$text`: the Rust type of a bound name. `$stored`: the type of a name that is read.
/// `$delete`: the statement that deletes the slots above a number, which are locked. Expects the macro `at_read_committed`, which
/// runs several statements in a transaction.
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
macro_rules! locking_slot_methods {
    ($db:ty, $conn:ty, $text:ty, $stored:ty, $run:ident, $delete:path, $failure:ty) => {
        use crate::engine::retry::autocommit_retry;
        use crate::engine::slot_resize::{BATCH_SIZE, slots_to_add, slots_to_delete};

        const FENCES_TABLE: &str = "diesel_locks_fences";

        /// Adds the next slots in the open transaction. A session that adds or removes slots locks the floor first, so
        /// only one does at a time.
        async fn create_batch(
            conn: &mut $conn,
            name: &$text,
            permits: i32,
            block: bool,
        ) -> Result<BatchOutcome, $failure> {
            let floor: Option<i64> = if block {
                $run::load(conn, slot_sql::lock_fence_floor()).await?.pop()
            } else {
                $run::load(conn, slot_sql::lock_fence_floor_if_free())
                    .await?
                    .pop()
            };
            let Some(fence) = floor else {
                let there: Vec<i64> = $run::load(conn, slot_sql::fence_floor()).await?;
                return Ok(if there.is_empty() {
                    BatchOutcome::NoFenceFloor
                } else {
                    BatchOutcome::Contended
                });
            };
            let last: Option<i32> = $run::load(conn, slot_sql::last_number(name)).await?.pop();
            let numbers = slots_to_add(last, permits);
            let is_last = *numbers.end() == permits;
            if !numbers.is_empty() {
                let added = slot_sql::insert_slots(name, numbers, fence);
                assert_changed($run::execute(conn, added).await?, SLOTS_TABLE)?;
            }
            Ok(if is_last {
                BatchOutcome::Complete
            } else {
                BatchOutcome::Partial
            })
        }

        /// Whether another session has locked the floor. Called outside a transaction.
        async fn floor_is_locked(conn: &mut $conn) -> Result<bool, $failure> {
            let free: Vec<i64> = $run::load(conn, slot_sql::lock_fence_floor_if_free()).await?;
            if !free.is_empty() {
                return Ok(false);
            }
            let there: Vec<i64> = $run::load(conn, slot_sql::fence_floor()).await?;
            Ok(!there.is_empty())
        }

        /// Inserts the floor unless it exists.
        async fn insert_fence_floor(conn: &mut $conn) -> Result<(), Error> {
            let last = autocommit_retry!(conn, largest_fence(conn).await)?;
            autocommit_retry!(
                conn,
                $run::execute(conn, slot_sql::insert_fence_floor(last)).await
            )?;
            Ok(())
        }

        /// Raises the floor in the open transaction, by `by` above all fences, if there is a floor and it does not get
        /// too large.
        async fn raise_fence_floor(
            conn: &mut $conn,
            by: Duration,
        ) -> Result<RaiseOutcome, $failure> {
            let Some(floor): Option<i64> =
                $run::load(conn, slot_sql::lock_fence_floor()).await?.pop()
            else {
                return Ok(RaiseOutcome::NoFenceFloor);
            };
            let last = largest_fence(conn).await?.max(floor);
            let Some(raised) = crate::semaphore::fence::raised(last, by) else {
                return Ok(RaiseOutcome::TooLarge);
            };
            if raised > floor {
                let changed = $run::execute(conn, slot_sql::set_fence_floor(raised)).await?;
                assert_changed(changed, FENCES_TABLE)?;
            }
            Ok(RaiseOutcome::RaisedTo(raised))
        }

        /// Releases every leased slot; returns how many were held.
        async fn force_release(conn: &mut $conn, name: &$text) -> Result<usize, Error> {
            let claimed: Vec<(i32, bool)> =
                autocommit_retry!(conn, $run::load(conn, slot_sql::held_numbers(name)).await)?;
            let mut held = 0;
            for (number, unexpired) in claimed {
                let release = || slot_sql::force_release(name, number);
                let freed = autocommit_retry!(conn, $run::execute(conn, release()).await)?;
                held += if unexpired { freed } else { 0 };
            }
            Ok(held)
        }

        /// Deletes the last slots of each semaphore that are free and unused for `age_us`, and returns how many.
        async fn purge(conn: &mut $conn, age_us: i64) -> Result<usize, Error> {
            let semaphores: Vec<($stored, Option<i32>)> =
                autocommit_retry!(conn, $run::load(conn, slot_sql::semaphores()).await)?;
            let mut purged = 0;
            for (name, permits) in semaphores {
                loop {
                    let permits = permits.unwrap_or(0);
                    let removed = at_read_committed!(
                        conn,
                        delete_last(conn, name.as_ref(), age_us, permits).await
                    )?;
                    match removed {
                        None => <$db as SemaphoreBackend<_>>::create_fence_floor(conn).await?,
                        Some(0) => break,
                        Some(removed) => purged += removed,
                    }
                }
            }
            Ok(purged)
        }

        /// Deletes the last slots that are free, unused for `age_us` and not locked, down to the first that is not, so
        /// that the numbers have no gaps. Returns how many, or `None` when the row of `diesel_locks_fences` is missing.
        async fn delete_last(
            conn: &mut $conn,
            name: &$text,
            age_us: i64,
            permits: i32,
        ) -> Result<Option<usize>, $failure> {
            let Some(floor): Option<i64> =
                $run::load(conn, slot_sql::lock_fence_floor()).await?.pop()
            else {
                return Ok(None);
            };
            let last: Option<i32> = $run::load(conn, slot_sql::last_number(name)).await?.pop();
            let retained: Option<i32> =
                $run::load(conn, slot_sql::last_retained(name, age_us, permits))
                    .await?
                    .pop();
            let above = retained.unwrap_or(0);
            let rows: Vec<(i32, i64)> = $run::load(
                conn,
                slot_sql::lock_free_above(name, above, BATCH_SIZE.into()),
            )
            .await?;
            let Some(deletion) = slots_to_delete(last, &rows, floor) else {
                return Ok(Some(0));
            };
            if deletion.fence > floor {
                let raised = slot_sql::set_fence_floor(deletion.fence);
                assert_changed($run::execute(conn, raised).await?, FENCES_TABLE)?;
            }
            let deleted = $run::execute(conn, $delete(name, deletion.above)).await?;
            assert_changed(deleted, SLOTS_TABLE)?;
            Ok(Some(deleted))
        }
    };
}
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
pub(super) use locking_slot_methods;
