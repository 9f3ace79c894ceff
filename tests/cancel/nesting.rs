//! A future that is dropped inside an open transaction, whose closure goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::locks::{read_committed, write};
use crate::support::after::{After, keep_bare};
use crate::support::blocker::Blocker;
use crate::support::case::Waits;
use crate::support::dropped::{End, poll_then_drop, poll_until};
use crate::support::engine::{BoxFuture, Engine, Source};
use crate::support::watch::{HOUR, Held, Watch};

const OUTER: &str = "Document:outer";
const INNER: &str = "Document:inner";
const SEQUENCE: &str = "inner";
const SLOT: &str = "inner";

/// Who starts the outer transaction.
#[derive(Clone, Copy, Debug)]
enum Outer {
    Lock,
    Transaction,
    /// diesel-async's own.
    Diesel,
}

/// What is dropped in it.
#[derive(Clone, Copy, Debug)]
enum Inner {
    WithLock,
    Lock,
    Draw,
    /// A slot for a lease, which is released again.
    Lease,
    WithSlot,
}

impl Inner {
    fn held(self) -> Held {
        match self {
            Self::WithLock | Self::Lock => Held::Object(INNER),
            Self::Lease | Self::WithSlot => Held::Slot(SLOT),
            Self::Draw => Held::Number(SEQUENCE),
        }
    }
}

pub(crate) async fn free<E: Engine>() {
    for inner in [
        Inner::WithLock,
        Inner::Lock,
        Inner::Draw,
        Inner::Lease,
        Inner::WithSlot,
    ] {
        Nested::<E>::run(Outer::Lock, inner, false).await;
    }
    Nested::<E>::run(Outer::Transaction, Inner::WithLock, false).await;
    Nested::<E>::run(Outer::Diesel, Inner::Draw, false).await;
}

pub(crate) async fn held_by_another<E: Engine>() {
    // The outer transaction is the one writer.
    if E::ONE_WRITER {
        return;
    }
    for inner in [Inner::WithLock, Inner::Lock, Inner::Draw] {
        Nested::<E>::run(Outer::Transaction, inner, true).await;
    }
    Nested::<E>::run(Outer::Diesel, Inner::Draw, true).await;
}

/// The closure begins a transaction of diesel-async, drops its future while the transaction ends, and then returns `Ok` or an
/// error.
pub(crate) async fn dropped_at_its_end<E: Engine>() {
    let database = E::new();
    let watch = Watch::new(&database);
    for source in Source::ALL {
        for outer in [Outer::Lock, Outer::Transaction] {
            for fails in [false, true] {
                drop_at_its_end(&database, &watch, (source, outer, fails)).await;
            }
        }
    }
}

async fn drop_at_its_end<E: Engine>(
    database: &E,
    watch: &Watch<E>,
    (source, outer, fails): (Source, Outer, bool),
) {
    let place = format!("in {outer:?}, {source:?}, the closure fails: {fails}");
    let connections = database.connections(source).await;
    let mut conn = connections.take().await;
    let session = E::session(&mut conn).await;
    let closure = async |conn: &mut E::Conn| -> Result<(), Error> {
        write(conn, ATTEMPT).await?;
        // It may end in one poll.
        while !is_dropped_at_its_end::<E>(conn).await {}
        if fails {
            return Err(DieselError::NotFound.into());
        }
        Ok(())
    };
    let result = match outer {
        Outer::Transaction => conn.run_transaction(read_committed::<E>(), closure).await,
        _ => conn.with_object_lock(OUTER, closure).await,
    };

    let after = After {
        watch,
        session,
        place: &place,
    };
    let bare = keep_bare::<E>(source, conn);
    after.until_quiet().await;
    after.until_free(&Held::Object(OUTER)).await;
    // On SQLite diesel-async waits for the statement that it drops, which has ended the inner transaction.
    let ended = E::ONE_WRITER;
    match &result {
        Ok(()) => assert!(ended && !fails, "{place}"),
        Err(error) if fails => {
            let own = matches!(error, Error::Database(DieselError::NotFound));
            assert!(own, "{place}: {error:?}");
        }
        Err(error) => assert!(error.is_transaction_aborted(), "{place}: {error:?}"),
    }
    let committed = watch.written(ATTEMPT).await > 0;
    assert_eq!(committed, result.is_ok(), "{place}");
    if let Some(mut bare) = bare {
        let next = bare.transaction(async |conn| conn.batch_execute("SELECT 1").await);
        let next: QueryResult<()> = next.await;
        assert_eq!(next.is_ok(), ended, "{place}: {next:?}");
    }
    after.check_next(&mut connections.take().await).await;
    watch.with(|conn| E::sql(conn, "DELETE FROM written")).await;
}

const ATTEMPT: usize = 0;

/// Begins a transaction of diesel-async, and drops it in the poll in which it begins to end. Returns `false` if it has ended
/// in that poll.
async fn is_dropped_at_its_end<E: Engine>(conn: &mut E::Conn) -> bool {
    let is_ending = AtomicBool::new(false);
    let inner = async |conn: &mut E::Conn| -> Result<(), Error> {
        conn.batch_execute("SELECT 1").await?;
        is_ending.store(true, Ordering::SeqCst);
        Ok(())
    };
    let ended = poll_until(conn.transaction(inner), || is_ending.load(Ordering::SeqCst)).await;
    if let Some(ended) = &ended {
        assert!(ended.is_ok(), "{ended:?}");
    }
    ended.is_none()
}

struct Nested<E: Engine> {
    database: Arc<E>,
    watch: Watch<E>,
    outer: Outer,
    inner: Inner,
    blocked: bool,
}

/// Polls after which the inner future is dropped where it can't be seen to wait.
const MOST_POLLS: usize = 40;

impl<E: Engine> Nested<E> {
    async fn run(outer: Outer, inner: Inner, blocked: bool) {
        let database = Arc::new(E::new());
        let watch = Watch::new(&*database);
        let this = Self {
            database,
            watch,
            outer,
            inner,
            blocked,
        };
        for source in Source::ALL {
            let mut polls = 0;
            while polls <= MOST_POLLS {
                match this.attempt(source, polls).await {
                    End::Dropped => polls += 1,
                    _ => break,
                }
            }
        }
    }

    async fn attempt(&self, source: Source, polls: usize) -> End<Result<(), Error>> {
        let Self { outer, inner, .. } = *self;
        let place = format!("{inner:?} in {outer:?}, {source:?}, dropped after {polls} polls");
        let connections = self.database.connections(source).await;
        let mut conn = connections.take().await;
        let session = E::session(&mut conn).await;
        let held = inner.held();
        let (blocker, waits) = if self.blocked {
            let blocker = Blocker::acquire(&self.database, &held).await;
            (Some(blocker), Waits::InStatement)
        } else {
            (None, Waits::Never)
        };
        let waits = waits.ask(&self.watch, session);
        let end = Mutex::new(None);
        let closure = async |conn: &mut E::Conn| -> Result<(), Error> {
            write(conn, polls).await?;
            let (ended, _) = poll_then_drop(inner.call::<E>(conn, polls), polls, &waits).await;
            *end.lock().expect("no panic") = Some(ended);
            Ok(())
        };
        let result = match outer {
            Outer::Lock => conn.with_object_lock(OUTER, closure).await,
            Outer::Transaction => conn.run_transaction(read_committed::<E>(), closure).await,
            Outer::Diesel => conn.transaction(closure).await,
        };
        let end = end
            .into_inner()
            .expect("no panic")
            .expect("the closure ran");

        let after = After {
            watch: &self.watch,
            session,
            place: &place,
        };
        let bare = keep_bare::<E>(source, conn);
        after.until_quiet().await;
        after.until_free(&Held::Object(OUTER)).await;
        if let Some(blocker) = blocker {
            blocker.release().await;
        }
        after.until_free(&held).await;
        let is_open = match &end {
            End::Ready(Ok(())) => true,
            End::Dropped => polls == 0,
            End::DroppedWaiting => false,
            end => panic!("{place}: {end:?}"),
        };
        assert_eq!(result.is_ok(), is_open, "{place}: {result:?}");
        if let Err(error) = result
            && !matches!(outer, Outer::Diesel)
        {
            assert!(error.is_transaction_aborted(), "{place}: {error:?}");
        }
        let committed = self.watch.written(polls).await > 0;
        assert_eq!(committed, is_open, "{place}");
        if let Some(bare) = bare {
            after.check_bare(bare, Some(is_open)).await;
        }
        after.check_next(&mut connections.take().await).await;
        self.watch
            .with(|conn| E::sql(conn, "DELETE FROM written"))
            .await;
        end
    }
}

impl Inner {
    fn call<E: Engine>(
        self,
        conn: &mut E::Conn,
        attempt: usize,
    ) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let one = Semaphore::new(SLOT, 1);
            match self {
                Self::Lease => {
                    let slot = conn.try_acquire_slot(&one, LeaseOptions::new(HOUR)).await?;
                    conn.release_slot(slot.expect("a free slot"))
                        .await
                        .map(drop)
                }
                Self::WithSlot => {
                    conn.with_slot(&one, Wait::Forever, async |conn| write(conn, attempt).await)
                        .await
                }
                Self::WithLock => {
                    conn.with_object_lock(INNER, async |conn| write(conn, attempt).await)
                        .await
                }
                Self::Lock => conn.lock_object(INNER).await,
                Self::Draw => {
                    let sequence = Sequence::new(SEQUENCE);
                    conn.next_number(&sequence).await.map(drop)
                }
            }
        })
    }
}
