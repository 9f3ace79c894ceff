//! A session: a connection on its own thread, which can wait while others continue.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel_locks::Error;

use crate::store::Store;

/// Longer than any wait, deadlocks included.
const PATIENCE: Duration = Duration::from_secs(90);

/// The result of a statement: the number that it read, nothing, or an error.
pub(crate) type Answer = Result<Option<i64>, Error>;

pub(crate) struct Session {
    /// The session's id on the server.
    pub(crate) id: i64,
    statements: Sender<String>,
    answers: Receiver<Answer>,
}

impl Session {
    pub(crate) fn open<C: Store>(url: &str) -> Result<Self> {
        let mut conn = connect::<C>(url)?;
        let id = conn.number(C::SESSION)?;
        let (statements, asked) = channel::<String>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            for sql in asked {
                // The receiver is gone if the lesson has ended early.
                let _ = answer.send(execute(&mut conn, &sql));
            }
        });
        Ok(Self {
            id,
            statements,
            answers,
        })
    }

    pub(crate) fn ask(&self, sql: &str) -> Result<()> {
        self.statements
            .send(sql.to_owned())
            .context("the session has ended")
    }

    pub(crate) fn answer(&self) -> Result<Answer> {
        self.answer_within(PATIENCE)?
            .context("the database does not answer")
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

pub(crate) fn connect<C: Store>(url: &str) -> Result<C> {
    let mut conn = C::establish(url).context("can't connect to the database")?;
    conn.batch_execute(C::SET_UP)?;
    Ok(conn)
}

/// Runs a statement. BEGIN, COMMIT and ROLLBACK go through Diesel, so that it knows of the transactions.
fn execute<C: Store>(conn: &mut C, sql: &str) -> Answer {
    match sql {
        "COMMIT" => AnsiTransactionManager::commit_transaction(conn)?,
        "ROLLBACK" => AnsiTransactionManager::rollback_transaction(conn)?,
        _ if sql.contains("BEGIN") => AnsiTransactionManager::begin_transaction_sql(conn, sql)?,
        _ if sql.starts_with("SELECT") => return Ok(Some(conn.number(sql)?)),
        _ => conn.run(sql)?,
    }
    Ok(None)
}
