//! Runs the statements of two sessions, and prints them with their results.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use diesel_locks::Error;

use crate::session::{Answer, Session, connect};
use crate::store::Store;

/// A session counts as waiting after this number of checks in a row, with pauses.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    A,
    B,
}

impl Who {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

pub(crate) struct Stage<'a, C> {
    pub(crate) url: &'a str,
    a: Session,
    b: Session,
    /// A third connection, which reads what is committed.
    watcher: C,
    step: u32,
}

impl<'a, C: Store> Stage<'a, C> {
    /// Creates the sessions and the table: two rows, both 0.
    pub(crate) fn set(url: &'a str) -> Result<Self> {
        let mut watcher = connect::<C>(url)?;
        watcher.run(
            "CREATE TABLE IF NOT EXISTS lessons (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
        )?;
        watcher.run("DELETE FROM lessons")?;
        watcher.run("INSERT INTO lessons VALUES (1, 0), (2, 0)")?;
        Ok(Self {
            url,
            a: Session::open::<C>(url)?,
            b: Session::open::<C>(url)?,
            watcher,
            step: 0,
        })
    }

    /// The committed number of the row.
    pub(crate) fn n(&mut self, id: i64) -> Result<i64> {
        Ok(self
            .watcher
            .number(&format!("SELECT n FROM lessons WHERE id = {id}"))?)
    }

    /// Expects that the row has this number at the end.
    pub(crate) fn ends_with(&mut self, id: i64, expected: i64) -> Result<()> {
        let n = self.n(id)?;
        ensure!(
            n == expected,
            "n of row {id} is {n} in the end, not {expected}"
        );
        Ok(())
    }

    /// Runs a statement that must succeed.
    pub(crate) fn does(&mut self, who: Who, sql: &str) -> Result<()> {
        let answer = self.tries(who, sql)?;
        answer.with_context(|| format!("{who} failed"))?;
        Ok(())
    }

    /// Runs a SELECT that must read this number.
    pub(crate) fn reads(&mut self, who: Who, sql: &str, expected: i64) -> Result<()> {
        let answer = self.tries(who, sql)?;
        read(who, answer, expected)
    }

    /// Runs a statement that must not wait, and returns its result.
    pub(crate) fn tries(&mut self, who: Who, sql: &str) -> Result<Answer> {
        self.session(who).ask(sql)?;
        let answer = self.session(who).answer()?;
        self.print(who, sql, &said(&answer));
        Ok(answer)
    }

    /// Runs a statement that must wait for the other session.
    pub(crate) fn waits(&mut self, who: Who, sql: &str) -> Result<()> {
        self.session(who).ask(sql)?;
        let begun = Instant::now();
        let mut seen = 0;
        while seen < LOOKS {
            if let Some(answer) = self.session(who).answer_within(PAUSE)? {
                self.print(who, sql, &said(&answer));
                bail!("{who} did not wait");
            }
            let waiting = C::waiting(self.session(who).id);
            if self.watcher.number(&waiting)? > 0 {
                seen += 1;
            } else {
                seen = 0;
            }
            ensure!(begun.elapsed() < PATIENCE, "{who} is not seen waiting");
        }
        self.print(who, sql, &format!("waits for {}", who.other()));
        Ok(())
    }

    /// Expects that the waiting statement succeeds.
    pub(crate) fn goes_on(&mut self, who: Who) -> Result<()> {
        let answer = self.session(who).answer()?;
        self.print(who, "(goes on)", &said(&answer));
        answer.with_context(|| format!("{who} failed"))?;
        Ok(())
    }

    /// Expects that the waiting SELECT reads this number.
    pub(crate) fn goes_on_and_reads(&mut self, who: Who, expected: i64) -> Result<()> {
        let answer = self.session(who).answer()?;
        self.print(who, "(goes on)", &said(&answer));
        read(who, answer, expected)
    }

    /// Runs a statement of `who` that waits for the other session, which already waits for `who`. Returns the session
    /// whose transaction the database aborted.
    pub(crate) fn clashes(&mut self, who: Who, sql: &str) -> Result<Who> {
        let other = who.other();
        self.session(who).ask(sql)?;
        self.print(who, sql, &format!("waits for {other}, which waits for it"));
        let answers = [
            (who, self.session(who).answer()?),
            (other, self.session(other).answer()?),
        ];
        let [(victim, error), (survivor, answer)] = match answers {
            [mine, theirs] if mine.1.is_err() => [mine, theirs],
            [mine, theirs] => [theirs, mine],
        };
        self.print(victim, "(is ended)", &said(&error));
        self.print(survivor, "(goes on)", &said(&answer));
        ensure!(
            error.is_err_and(|error| error.is_deadlock()),
            "nobody was told of a deadlock"
        );
        answer.with_context(|| format!("{survivor} failed too"))?;
        Ok(victim)
    }

    fn session(&self, who: Who) -> &Session {
        match who {
            Who::A => &self.a,
            Who::B => &self.b,
        }
    }

    pub(crate) fn print(&mut self, who: Who, what: &str, outcome: &str) {
        self.step += 1;
        println!("  {:>2}  {who}  {what:<55}  {outcome}", self.step);
    }
}

fn read(who: Who, answer: Answer, expected: i64) -> Result<()> {
    let n = answer.with_context(|| format!("{who} failed"))?;
    ensure!(n == Some(expected), "{who} has read {n:?}, not {expected}");
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
