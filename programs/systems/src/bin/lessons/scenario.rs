//! Runs the statements of two sessions, and prints them with their results.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use diesel_locks::{Error, IsolationLevel};
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};
use program_support::terminal;

use crate::session::{
    Answer, Session, SessionName, connect, dialect, number, run_statement, select,
};
use crate::transcript;

/// A session counts as waiting after this number of checks in a row, with pauses.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

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
        let mut observer = connect(database)?;
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

    /// The statement that begins a transaction at this level.
    pub(crate) fn begin_at(&self, level: IsolationLevel) -> String {
        dialect::begin_at(self.engine(), level)
    }

    /// Begins a transaction in each session.
    pub(crate) fn both_begin(&mut self) -> Result<()> {
        self.expect_ok(SessionName::A, "BEGIN")?;
        self.expect_ok(SessionName::B, "BEGIN")
    }

    /// Begins a transaction at this level in each session.
    pub(crate) fn both_begin_at(&mut self, level: IsolationLevel) -> Result<()> {
        let begin = self.begin_at(level);
        self.expect_ok(SessionName::A, &begin)?;
        self.expect_ok(SessionName::B, &begin)
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

    /// Runs a statement that must succeed.
    pub(crate) fn expect_ok(&mut self, session: SessionName, sql: &str) -> Result<()> {
        let answer = self.execute(session, sql)?;
        answer.with_context(|| format!("{session} failed"))?;
        Ok(())
    }

    /// Runs a SELECT that must read this number.
    pub(crate) fn expect_value(
        &mut self,
        session: SessionName,
        sql: &str,
        expected: i64,
    ) -> Result<()> {
        let answer = self.execute(session, sql)?;
        read(session, answer, expected)
    }

    /// Runs a statement that must not wait, and returns its result.
    pub(crate) fn execute(&mut self, session: SessionName, sql: &str) -> Result<Answer> {
        self.session(session).ask(sql)?;
        let answer = self.session(session).answer()?;
        self.print(session, sql, &said(&answer));
        Ok(answer)
    }

    /// Runs a statement that must wait for the other session.
    pub(crate) fn expect_blocked(&mut self, session: SessionName, sql: &str) -> Result<()> {
        self.session(session).ask(sql)?;
        let begun = Instant::now();
        let mut seen = 0;
        while seen < LOOKS {
            if let Some(answer) = self.session(session).answer_within(PAUSE)? {
                self.print(session, sql, &said(&answer));
                bail!("{session} did not wait");
            }
            let waiting = dialect::waiting(self.engine(), self.session(session).id);
            if number(&mut self.observer, &waiting)? > 0 {
                seen += 1;
            } else {
                seen = 0;
            }
            ensure!(begun.elapsed() < PATIENCE, "{session} is not seen waiting");
        }
        self.print(session, sql, &format!("waits for {}", session.other()));
        Ok(())
    }

    /// Expects that the waiting statement succeeds.
    pub(crate) fn expect_unblocked(&mut self, session: SessionName) -> Result<()> {
        let answer = self.session(session).answer()?;
        self.print(session, "(continues)", &said(&answer));
        answer.with_context(|| format!("{session} failed"))?;
        Ok(())
    }

    /// Expects that the waiting SELECT reads this number.
    pub(crate) fn expect_unblocked_value(
        &mut self,
        session: SessionName,
        expected: i64,
    ) -> Result<()> {
        let answer = self.session(session).answer()?;
        self.print(session, "(continues)", &said(&answer));
        read(session, answer, expected)
    }

    /// Runs a statement of `who` that waits for the other session, which already waits for `who`. Returns the session
    /// whose transaction the database aborted.
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
            &format!("waits for {other}, which waits for it"),
        );
        let answers = [
            (session, self.session(session).answer()?),
            (other, self.session(other).answer()?),
        ];
        let [(victim, error), (survivor, answer)] = match answers {
            [mine, theirs] if mine.1.is_err() => [mine, theirs],
            [mine, theirs] => [theirs, mine],
        };
        self.print(victim, "(is rolled back)", &said(&error));
        self.print(survivor, "(continues)", &said(&answer));
        ensure!(
            error.is_err_and(|error| error.is_deadlock()),
            "no session got a deadlock error"
        );
        answer.with_context(|| format!("{survivor} failed too"))?;
        Ok(victim)
    }

    fn session(&self, session: SessionName) -> &Session {
        match session {
            SessionName::A => &self.a,
            SessionName::B => &self.b,
        }
    }

    /// Prints how many attempts each session needed.
    pub(crate) fn print_attempts(&mut self, what: &str, [a, b]: [u32; 2]) {
        for (session, attempts) in [(SessionName::A, a), (SessionName::B, b)] {
            self.print(session, what, &format!("attempts: {attempts}"));
        }
    }

    pub(crate) fn print(&mut self, session: SessionName, what: &str, outcome: &str) {
        self.step += 1;
        terminal::print(transcript::step(self.step, session, what, outcome));
    }
}

fn read(session: SessionName, answer: Answer, expected: i64) -> Result<()> {
    let n = answer.with_context(|| format!("{session} failed"))?;
    ensure!(
        n == Some(expected),
        "{session} has read {n:?}, not {expected}"
    );
    Ok(())
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
