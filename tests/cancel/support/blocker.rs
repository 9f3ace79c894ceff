//! Another session that holds what a method waits for.

use std::sync::Arc;

use diesel::connection::{Connection, TransactionManager};
use diesel_locks::prelude::*;
use tokio::task::spawn_blocking;

use super::engine::Engine;
use super::watch::{HOUR, Held};

pub(crate) struct Blocker<E: Engine> {
    conn: E::Blocking,
    slot: Option<diesel_locks::Slot>,
}

type Manager<C> = <C as Connection>::TransactionManager;

impl<E: Engine> Blocker<E> {
    /// Returns when it is held.
    pub(crate) async fn acquire(database: &Arc<E>, held: &Held) -> Self {
        let (database, held) = (Arc::clone(database), held.clone());
        let acquired = spawn_blocking(move || {
            let mut conn = database.connect();
            if let Held::Slot(name) = held {
                let lease = LeaseOptions::new(HOUR);
                let slot = conn.try_acquire_slot(&Semaphore::new(name, 1), lease);
                let slot = Some(slot.expect("an answer").expect("a free slot"));
                return Self { conn, slot };
            }
            E::prepare_for_locks(&mut conn);
            Manager::<E::Blocking>::begin_transaction(&mut conn).expect("BEGIN");
            match held {
                Held::Object(id) => conn.lock_object(id).expect("a free lock"),
                Held::Number(name) => {
                    conn.next_number(&Sequence::new(name)).expect("a number");
                }
                Held::SlotRow => E::sql(&mut conn, "DELETE FROM diesel_locks_slots"),
                Held::Fences => E::sql(&mut conn, "DELETE FROM diesel_locks_fences"),
                Held::Migrations => E::sql(&mut conn, E::LOCK_MIGRATIONS),
                Held::Slot(_) | Held::Nothing => {}
            }
            Self { conn, slot: None }
        });
        acquired.await.expect("no panic")
    }

    /// Returns when it is released, and what was drawn is given back.
    pub(crate) async fn release(mut self) {
        let released = spawn_blocking(move || match self.slot {
            Some(slot) => {
                self.conn.release_slot(slot).expect("its own slot");
            }
            None => {
                Manager::<E::Blocking>::rollback_transaction(&mut self.conn).expect("ROLLBACK");
            }
        });
        released.await.expect("no panic");
    }
}
