//! What is checked after a drop.

use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use tokio::time::{sleep, timeout};

use super::dropped::LONG;
use super::engine::{Activity, AfterDrop, Engine, Source, Taken};
use super::watch::{Held, Watch};

/// 100 ms is promised. The machine may be busy, and other tests run at the same time.
const SOON: Duration = Duration::from_secs(20);

/// The queries of the next user, who would get the answers and the cancel requests of the one before.
const QUERIES: usize = 50;

pub(crate) struct After<'a, E: Engine> {
    pub(crate) watch: &'a Watch<E>,
    /// The session of the connection.
    pub(crate) session: Option<i64>,
    pub(crate) place: &'a str,
}

/// Gives a connection back to its pool; returns one of no pool.
pub(crate) fn keep_bare<E: Engine>(source: Source, conn: Taken<E::Conn>) -> Option<Taken<E::Conn>> {
    (source == Source::Bare).then_some(conn)
}

impl<E: Engine> After<'_, E> {
    /// Returns when the session neither runs a statement nor has a transaction open.
    pub(crate) async fn until_quiet(&self) {
        self.until_quiet_is(self.session, "the session").await;
    }

    async fn until_quiet_is(&self, session: Option<i64>, whose: &str) {
        let started = Instant::now();
        loop {
            match self.watch.activity(session).await {
                None | Some(Activity::Gone | Activity::Idle) => return,
                Some(busy) => assert!(
                    started.elapsed() < SOON,
                    "{}: {whose}: {busy:?} after {SOON:?}",
                    self.place
                ),
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns when another session has had it.
    pub(crate) async fn until_free(&self, held: &Held) {
        let started = Instant::now();
        while !self.is_free(held).await {
            let time = started.elapsed();
            assert!(
                time < SOON,
                "{}: {held:?} is held after {time:?}",
                self.place
            );
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn is_free(&self, held: &Held) -> bool {
        let held = held.clone();
        self.watch.with(move |conn| held.is_free::<E>(conn)).await
    }

    /// A connection of no pool works or says that it does not, and its session ends with it. `is_open`: whether it works,
    /// if that is certain.
    pub(crate) async fn check_bare(&self, mut conn: Taken<E::Conn>, is_open: Option<bool>) {
        let place = self.place;
        let next: QueryResult<()> = conn
            .transaction(async |conn| conn.batch_execute("SELECT 1").await)
            .await;
        let is_open = is_open.unwrap_or(next.is_ok());
        assert_eq!(
            next.is_ok(),
            is_open,
            "{place}: the next transaction: {next:?}"
        );
        let mut answers = Vec::new();
        for _ in 0..4 {
            let answer = timeout(LONG, E::number(&mut conn, "4711".to_owned())).await;
            answers.push(answer.unwrap_or_else(|_| panic!("{place}: no answer")));
        }
        let after = if is_open {
            AfterDrop::Work
        } else {
            E::AFTER_DROP
        };
        let as_promised = match after {
            AfterDrop::Work => answers.iter().all(|answer| *answer == Ok(4711)),
            AfterDrop::Fail => answers.iter().all(Result::is_err),
            AfterDrop::FailLater => answers[2..].iter().all(Result::is_err),
        };
        assert!(as_promised, "{place}: {answers:?}");
        drop(conn);
        let started = Instant::now();
        while !matches!(
            self.watch.activity(self.session).await,
            None | Some(Activity::Gone)
        ) {
            assert!(started.elapsed() < SOON, "{place}: the session is left");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Who gets a connection next has a clean one.
    pub(crate) async fn check_next(&self, conn: &mut Taken<E::Conn>) {
        let place = self.place;
        for query in 0..QUERIES {
            let expected = 1000 + i64::try_from(query).expect("a small number");
            let answer = E::number(conn, format!("1000 + {query}")).await;
            assert_eq!(answer, Ok(expected), "{place}: query {query}");
        }
        let session = E::session(conn).await;
        self.until_quiet_is(session, "the next session").await;
        if let Some(expression) = E::IN_TRANSACTION {
            let open = E::number(conn, expression.to_owned()).await;
            assert_eq!(open, Ok(0), "{place}: transactions of the next connection");
        }
        // SQLite has no sessions to look at, and refuses a second BEGIN.
        let next = conn.transaction(async |conn| conn.batch_execute("SELECT 1").await);
        assert_eq!(next.await, Ok(()), "{place}: the next transaction");
    }
}
