//! A session: a connection on its own thread, which can wait while others continue.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use diesel::connection::SimpleConnection;
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

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

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
    pub(crate) fn open(database: &Database) -> Result<Self> {
        let mut conn = connect(database)?;
        let id = number(&mut conn, dialect::session(database.engine))?;
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

pub(crate) fn connect(database: &Database) -> Result<AnyConnection> {
    let mut conn = AnyConnection::open(database)?;
    conn.batch_execute(dialect::set_up(database.engine))?;
    Ok(conn)
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
        let mut conn = connect(database)?;
        act(&mut conn, session, meeting).with_context(|| format!("{session} failed"))
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

/// The differences between the databases.
pub(crate) mod dialect {
    use diesel_locks::IsolationLevel;
    use program_support::database::Engine;

    /// The name of the database in the output.
    pub(crate) fn name(engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => "SQLite",
            Engine::Postgres => "PostgreSQL",
            Engine::Mysql => "MySQL or MariaDB",
        }
    }

    /// Whether plain reads at SERIALIZABLE lock what they read, and do not read a snapshot.
    pub(crate) fn serializable_reads_lock(engine: Engine) -> bool {
        engine == Engine::Mysql
    }

    /// The clause of a SELECT for a shared lock.
    pub(crate) fn shared(engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => "",
            Engine::Postgres => " FOR SHARE",
            // MariaDB has no FOR SHARE.
            Engine::Mysql => " LOCK IN SHARE MODE",
        }
    }

    /// Sets up a session, before any other statement.
    pub(crate) fn set_up(engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => "",
            Engine::Postgres => "SET lock_timeout = '60s'",
            Engine::Mysql => "SET SESSION innodb_lock_wait_timeout = 60",
        }
    }

    /// Selects the id of the current session.
    pub(crate) fn session(engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => "SELECT 0 AS n",
            Engine::Postgres => "SELECT pg_backend_pid()::bigint AS n",
            Engine::Mysql => "SELECT CAST(CONNECTION_ID() AS SIGNED) AS n",
        }
    }

    pub(crate) fn begin_at(engine: Engine, level: IsolationLevel) -> String {
        match engine {
            Engine::Sqlite => "BEGIN".to_owned(),
            Engine::Postgres => format!("BEGIN ISOLATION LEVEL {level}"),
            Engine::Mysql => format!("SET TRANSACTION ISOLATION LEVEL {level}; BEGIN"),
        }
    }

    /// Selects 1 if the session is waiting for a lock, otherwise 0. On MySQL it counts the session while it executes a
    /// statement, because only privileged users can see which sessions wait.
    pub(crate) fn waiting(engine: Engine, session: i64) -> String {
        match engine {
            Engine::Sqlite => "SELECT 0 AS n".to_owned(),
            Engine::Postgres => format!(
                "SELECT count(*) AS n FROM pg_stat_activity \
                 WHERE pid = {session} AND wait_event_type = 'Lock'"
            ),
            Engine::Mysql => format!(
                "SELECT COUNT(*) AS n FROM /*!80022 performance_schema.processlist */\
                 /*M!100100 information_schema.processlist */ WHERE id = {session} AND command <> 'Sleep'"
            ),
        }
    }
}
