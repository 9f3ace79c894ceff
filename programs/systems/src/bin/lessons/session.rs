//! A session: a connection on its own thread, which can wait while others continue.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_locks::Error;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::meeting::Meeting;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionName {
    A,
    B,
}

impl SessionName {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The result of a statement: the number that it read, nothing, or an error.
pub(crate) type Answer = Result<Option<i64>, Error>;

pub(crate) struct Session {
    statements: Sender<String>,
    answers: Receiver<Answer>,
}

impl Session {
    pub(crate) fn open(database: &Database) -> Result<Self> {
        let mut conn = AnyConnection::open(database)?;
        let (statements, asked) = channel::<String>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            for sql in asked {
                // The receiver is gone if the lesson has ended early.
                let _ = answer.send(execute(&mut conn, &sql));
            }
        });
        Ok(Self {
            statements,
            answers,
        })
    }

    pub(crate) fn ask(&self, sql: &str) -> Result<()> {
        self.statements
            .send(sql.to_owned())
            .context("the session has ended")
    }

    /// The answer, or `None` if there is none within this time.
    pub(crate) fn answer_within(&self, time: Duration) -> Result<Option<Answer>> {
        match self.answers.recv_timeout(time) {
            Ok(answer) => Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error).context("the session has ended"),
        }
    }
}

/// Runs a statement. BEGIN, COMMIT and ROLLBACK go through Diesel, so that it knows of the transactions.
fn execute(conn: &mut AnyConnection, sql: &str) -> Answer {
    match sql {
        "COMMIT" => conn.commit()?,
        "ROLLBACK" => conn.roll_back()?,
        _ if sql.contains("BEGIN") => conn.begin(sql)?,
        _ if sql.starts_with("SELECT") => return Ok(Some(number(conn, sql)?)),
        _ => run_statement(conn, sql)?,
    }
    Ok(None)
}

/// The number in the column `n` of the only row.
pub(crate) fn number(conn: &mut AnyConnection, sql: &str) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Number {
        #[diesel(sql_type = BigInt)]
        n: i64,
    }
    let row: Number = diesel::sql_query(sql).get_result(conn)?;
    Ok(row.n)
}

pub(crate) fn run_statement(conn: &mut AnyConnection, sql: &str) -> QueryResult<()> {
    diesel::sql_query(sql).execute(conn)?;
    Ok(())
}

/// A SELECT of row `id`, with `lock` at the end.
pub(crate) fn select(id: i64, lock: &str) -> String {
    format!("SELECT n FROM lessons WHERE id = {id}{lock}")
}

pub(crate) fn update(id: i64, n: i64) -> String {
    format!("UPDATE lessons SET n = {n} WHERE id = {id}")
}

/// Runs `act` for A and for B at the same time, each on its own connection, and with a point at which they wait for each
/// other. Returns both results.
pub(crate) fn both<T: Send>(
    database: &Database,
    act: impl Fn(&mut AnyConnection, SessionName, Meeting) -> Result<T, Error> + Sync,
) -> Result<[T; 2]> {
    let run = |session, meeting| -> Result<T> {
        let mut conn = AnyConnection::open(database)?;
        act(&mut conn, session, meeting).with_context(|| format!("{session:?} failed"))
    };
    let run = &run;
    thread::scope(|scope| {
        let sessions = [SessionName::A, SessionName::B].into_iter();
        let threads: Vec<_> = sessions
            .zip(Meeting::of(2))
            .map(|(session, meeting)| scope.spawn(move || run(session, meeting)))
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        let results = results.collect::<Result<Vec<_>>>()?;
        results
            .try_into()
            .map_err(|_| anyhow!("there are two sessions"))
    })
}
