//! What others see of the database: by a connection that blocks, on a thread for blocking work, so that the runtime goes
//! on also if it has one thread.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::result::Error::RollbackTransaction;
use diesel_locks::prelude::*;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::engine::{Activity, Engine};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Watch<E: Engine>(Arc<Mutex<E::Blocking>>);

impl<E: Engine> Clone for Watch<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Engine> Watch<E> {
    pub(crate) fn new(database: &E) -> Self {
        Self(Arc::new(Mutex::new(database.connect())))
    }

    /// Does this on the connection.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut E::Blocking) -> T + Send + 'static,
    ) -> T {
        let conn = Arc::clone(&self.0);
        let done = spawn_blocking(move || work(&mut conn.lock().expect("no panic before")));
        done.await.expect("no panic")
    }

    /// Does this on the connection, in code that can't await.
    pub(crate) fn blocking<T>(&self, work: impl FnOnce(&mut E::Blocking) -> T) -> T {
        work(&mut self.0.lock().expect("no panic before"))
    }

    pub(crate) async fn number(&self, expression: impl Into<String>) -> i64 {
        let expression = expression.into();
        self.with(move |conn| E::blocking_number(conn, &expression))
            .await
    }

    /// What the session does; `None` where that is not shown.
    pub(crate) async fn activity(&self, session: Option<i64>) -> Option<Activity> {
        let session = session?;
        self.with(move |conn| E::activity(conn, session)).await
    }

    /// Whether the session runs one statement for longer.
    pub(crate) async fn waits(&self, session: Option<i64>) -> bool {
        let first = self.activity(session).await;
        let Some(Activity::Running(_)) = first else {
            return false;
        };
        sleep(Duration::from_millis(30)).await;
        self.activity(session).await == first
    }

    /// Ends the session, and returns when it has ended.
    pub(crate) async fn end(&self, session: i64) {
        self.with(move |conn| E::sql(conn, &E::end_session(session)))
            .await;
        while self.activity(Some(session)).await != Some(Activity::Gone) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The parts that this attempt has written.
    pub(crate) async fn written(&self, attempt: usize) -> i64 {
        let count = format!("SELECT count(*) FROM written WHERE attempt = {attempt}");
        self.number(count).await
    }
}

/// What a method holds.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Object(&'static str),
    /// The only slot of this semaphore.
    Slot(&'static str),
    /// The last number of this sequence: others wait for it.
    Number(&'static str),
    /// The rows of all slots, by a transaction that deletes them and rolls back.
    SlotRow,
    /// The row of fences, which a session locks that adds or removes slots.
    Fences,
    /// The right to migrate.
    Migrations,
    Nothing,
}

impl Held {
    pub(crate) fn is_free<E: Engine>(&self, conn: &mut E::Blocking) -> bool {
        let done = |_: &mut E::Blocking| diesel_locks::Result::<_>::Ok(());
        match self {
            Self::Object(id) => conn
                .try_with_object_lock(*id, done)
                .expect("an answer")
                .is_some(),
            Self::Slot(name) => {
                let one = Semaphore::new(*name, 1);
                conn.try_with_slot(&one, done).expect("an answer").is_some()
            }
            Self::Number(name) => {
                // Waits for the transaction that drew before, and gives its own number back.
                let sequence = Sequence::new(*name);
                let drawn = conn.run_transaction(TransactionOptions::new(), |conn| {
                    conn.next_number(&sequence)?;
                    diesel::QueryResult::<()>::Err(RollbackTransaction)
                });
                assert!(matches!(drawn, Err(RollbackTransaction)), "{drawn:?}");
                true
            }
            Self::Migrations => E::blocking_number(conn, E::NOBODY_MIGRATES) == 1,
            Self::SlotRow | Self::Fences | Self::Nothing => true,
        }
    }
}
