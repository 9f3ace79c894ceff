//! Runs the statements of two sessions, and prints them with their results.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel};
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};

use crate::session::SessionName::{self, A, B};
use crate::session::{Answer, Session, both, number, run_statement, select, update};

/// Longer than a statement takes that does not wait for a lock.
const BLOCKED: Duration = Duration::from_millis(300);

/// Longer than any wait, deadlocks included.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a statement must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Done,
    /// It reads this number.
    Reads(i64),
    /// It waits for the other session, and continues at a later step.
    Waits,
    /// On SQLite it is refused the write lock without waiting for it.
    Busy,
    SerializationFailure,
}

/// When both sessions wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meet {
    /// Before their transactions.
    Before,
    /// In their transactions, when they have read.
    HavingRead,
}

/// In place of a statement: the one that waits continues.
pub(crate) const CONTINUES: &str = "(continues)";

pub(crate) struct Scenario<'a> {
    pub(crate) database: &'a Database,
    a: Session,
    b: Session,
    /// A third connection, which reads what is committed.
    observer: AnyConnection,
    step: u32,
}

impl<'a> Scenario<'a> {
    /// Creates the sessions and the table: two rows, both 0.
    pub(crate) fn new(database: &'a Database) -> Result<Self> {
        let mut observer = AnyConnection::open(database)?;
        run_statement(
            &mut observer,
            "CREATE TABLE IF NOT EXISTS lessons (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
        )?;
        run_statement(&mut observer, "DELETE FROM lessons")?;
        run_statement(&mut observer, "INSERT INTO lessons VALUES (1, 0), (2, 0)")?;
        Ok(Self {
            database,
            a: Session::open(database)?,
            b: Session::open(database)?,
            observer,
            step: 0,
        })
    }

    pub(crate) fn engine(&self) -> Engine {
        self.database.engine
    }

    /// Begins a transaction by this statement in each session.
    pub(crate) fn both_begin(&mut self, begin: &str) -> Result<()> {
        self.step(A, begin, Expected::Done)?;
        self.step(B, begin, Expected::Done)
    }

    /// Begins a transaction at this level in each session.
    pub(crate) fn both_begin_at(&mut self, level: IsolationLevel) -> Result<()> {
        self.both_begin(&self.engine().begin_at(level))
    }

    /// The committed number of the row.
    pub(crate) fn n(&mut self, id: i64) -> Result<i64> {
        Ok(number(&mut self.observer, &select(id, ""))?)
    }

    /// Expects that the row has this number at the end.
    pub(crate) fn expect_row(&mut self, id: i64, expected: i64) -> Result<()> {
        let n = self.n(id)?;
        ensure!(
            n == expected,
            "n of row {id} is {n} in the end, not {expected}"
        );
        Ok(())
    }

    /// Runs a statement, or waits for the one that continues, and expects this result.
    pub(crate) fn step(
        &mut self,
        session: SessionName,
        sql: &str,
        expected: Expected,
    ) -> Result<()> {
        if expected == Expected::Waits {
            self.session(session).ask(sql)?;
            if let Some(answer) = self.session(session).answer_within(BLOCKED)? {
                self.print(session, sql, &said(&answer));
                bail!("{session:?} did not wait");
            }
            self.print(session, sql, &format!("waits for {:?}", session.other()));
            return Ok(());
        }
        let answer = self.run(session, sql)?;
        let is_expected = match (&answer, expected) {
            (Ok(None), Expected::Done) => true,
            (Ok(Some(n)), Expected::Reads(expected)) => *n == expected,
            (Err(error), Expected::Busy) => error.is_timeout(),
            (Err(error), Expected::SerializationFailure) => error.is_serialization_failure(),
            _ => false,
        };
        ensure!(
            is_expected,
            "{session:?} got {}, not {expected:?}",
            said(&answer)
        );
        Ok(())
    }

    /// Runs a statement that must not wait, or waits for the one that continues.
    pub(crate) fn run(&mut self, session: SessionName, sql: &str) -> Result<Answer> {
        if sql != CONTINUES {
            self.session(session).ask(sql)?;
        }
        let answer = self.answer(session)?;
        self.print(session, sql, &said(&answer));
        Ok(answer)
    }

    fn answer(&self, session: SessionName) -> Result<Answer> {
        self.session(session)
            .answer_within(PATIENCE)?
            .context("the database does not answer")
    }

    /// Runs a statement that waits for the other session, which already waits for this one. Returns the session whose
    /// transaction the database aborted.
    pub(crate) fn expect_deadlock(
        &mut self,
        session: SessionName,
        sql: &str,
    ) -> Result<SessionName> {
        let other = session.other();
        self.session(session).ask(sql)?;
        self.print(
            session,
            sql,
            &format!("waits for {other:?}, which waits for it"),
        );
        let mine = (session, self.answer(session)?);
        let theirs = (other, self.answer(other)?);
        let [(victim, error), (survivor, answer)] = if mine.1.is_err() {
            [mine, theirs]
        } else {
            [theirs, mine]
        };
        self.print(victim, "(is rolled back)", &said(&error));
        self.print(survivor, CONTINUES, &said(&answer));
        ensure!(
            error.is_err_and(|error| error.is_deadlock()),
            "no session got a deadlock error"
        );
        answer.with_context(|| format!("{survivor:?} failed too"))?;
        Ok(victim)
    }

    fn session(&self, session: SessionName) -> &Session {
        match session {
            A => &self.a,
            B => &self.b,
        }
    }

    /// Reads a row and writes one more into a row, in `run_transaction`, in both sessions at the same time. Returns how many
    /// attempts each needed.
    pub(crate) fn both_add_one(
        &mut self,
        transaction: TransactionOptions,
        rows: [(i64, i64); 2],
        lock: &str,
        meet: Meet,
    ) -> Result<[u32; 2]> {
        let attempts = both(self.database, |conn, session, mut meeting| {
            let (read, write) = rows[session as usize];
            if meet == Meet::Before {
                meeting.wait();
            }
            let mut attempts = 0;
            conn.run_transaction(transaction, |conn| {
                attempts += 1;
                let n = number(conn, &select(read, lock))?;
                meeting.wait();
                run_statement(conn, &update(write, n + 1))?;
                Ok::<_, Error>(attempts)
            })
        })?;
        for (session, attempts) in [A, B].into_iter().zip(attempts) {
            let (read, write) = rows[session as usize];
            let what = format!("reads row {read} and updates row {write}");
            self.print(session, &what, &format!("attempts: {attempts}"));
        }
        Ok(attempts)
    }

    pub(crate) fn print(&mut self, session: SessionName, what: &str, outcome: &str) {
        self.step += 1;
        println!("  {:>2}  {session:?}  {what:<45}  {outcome}", self.step);
    }
}

/// The result in the database's words.
fn said(answer: &Answer) -> String {
    let error = match answer {
        Ok(Some(n)) => return n.to_string(),
        Ok(None) => return "ok".to_owned(),
        Err(error) => error,
    };
    let own =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let kind = match error {
        Error::Deadlock { .. } => "DEADLOCK",
        Error::SerializationFailure { .. } => "SERIALIZATION FAILURE",
        Error::StatementTimeout { .. } => "BUSY",
        _ => "ERROR",
    };
    format!("{kind}: {own}")
}
