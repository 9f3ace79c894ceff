//! The lessons for databases with locks on rows (PostgreSQL, MySQL, MariaDB).

use anyhow::{Result, bail, ensure};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};
use program_support::connection::AnyConnection;
use program_support::database::Engine;

use crate::LessonRunner;
use crate::scenario::Expected::{Done, Reads, SerializationFailure, Waits};
use crate::scenario::{CONTINUES, Meet, Scenario};
use crate::session::SessionName::{A, B};
use crate::session::{both, number, run_statement, select, update};

const FOR_UPDATE: &str = " FOR UPDATE";

pub(crate) fn run(runner: &mut LessonRunner<'_>) {
    upgrades(runner);
    lock_order(runner);
    lost_updates(runner);
    if runner.database.engine == Engine::Postgres {
        commits(runner);
    }
}

/// The clause of a SELECT for a shared lock.
fn shared(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => " FOR SHARE",
        // MariaDB has no FOR SHARE.
        _ => " LOCK IN SHARE MODE",
    }
}

/// A shared lock that is upgraded by an UPDATE.
fn upgrades(runner: &mut LessonRunner<'_>) {
    runner.lesson("read with a shared lock, then update");
    runner.part("Both read shared", |scenario| {
        let shared = shared(scenario.engine());
        upgrade(scenario, "BEGIN", shared)
    });
    // InnoDB locks what it reads at this level, and does not read a snapshot.
    if runner.database.engine == Engine::Mysql {
        runner.part("Both read plainly, at SERIALIZABLE", |scenario| {
            let begin = scenario.engine().begin_at(IsolationLevel::Serializable);
            upgrade(scenario, &begin, "")
        });
    }
    runner.part(
        "Remedy: read with the lock that the update needs",
        for_update,
    );
    runner.part("Remedy: run_transaction retries the victim", victim_retried);
}

fn upgrade(scenario: &mut Scenario<'_>, begin: &str, lock: &str) -> Result<String> {
    scenario.both_begin(begin)?;
    for session in [A, B] {
        scenario.step(session, &select(1, lock), Reads(0))?;
    }
    scenario.step(A, &update(1, 1), Waits)?;
    let victim = scenario.expect_deadlock(B, &update(1, 1))?;
    scenario.step(victim, "ROLLBACK", Done)?;
    scenario.step(victim.other(), "COMMIT", Done)?;
    scenario.expect_row(1, 1)?;
    Ok(format!(
        "a deadlock on a single row: {victim:?}'s transaction is rolled back"
    ))
}

fn for_update(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.both_begin("BEGIN")?;
    scenario.step(A, &select(1, FOR_UPDATE), Reads(0))?;
    scenario.step(B, &select(1, FOR_UPDATE), Waits)?;
    scenario.step(A, &update(1, 1), Done)?;
    scenario.step(A, "COMMIT", Done)?;
    scenario.step(B, CONTINUES, Reads(1))?;
    scenario.step(B, &update(1, 2), Done)?;
    scenario.step(B, "COMMIT", Done)?;
    scenario.expect_row(1, 2)?;
    Ok("no session fails, no update is lost: B waits before it reads".to_owned())
}

fn victim_retried(scenario: &mut Scenario<'_>) -> Result<String> {
    let attempts = scenario.both_add_one(
        TransactionOptions::new().retry(RetryPolicy::max_attempts(5)),
        [(1, 1), (1, 1)],
        shared(scenario.engine()),
        Meet::HavingRead,
    )?;
    ensure!(
        attempts.contains(&1),
        "no session succeeded at its first attempt"
    );
    ensure!(attempts != [1, 1], "no session was retried");
    scenario.expect_row(1, 2)?;
    Ok("n is 2: no update is lost; the victim ran twice".to_owned())
}

/// Locks on two rows in different orders.
fn lock_order(runner: &mut LessonRunner<'_>) {
    runner.lesson("two rows, in different orders");
    runner.part("A locks rows 1 and 2, B locks rows 2 and 1", opposite);
    runner.part("Remedy: lock rows in the same order everywhere", same);
    runner.part("Remedy: with_object_lock sorts the ids", sorted);
}

fn opposite(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.both_begin("BEGIN")?;
    scenario.step(A, &select(1, FOR_UPDATE), Reads(0))?;
    scenario.step(B, &select(2, FOR_UPDATE), Reads(0))?;
    scenario.step(A, &select(2, FOR_UPDATE), Waits)?;
    let victim = scenario.expect_deadlock(B, &select(1, FOR_UPDATE))?;
    scenario.step(victim, "ROLLBACK", Done)?;
    scenario.step(victim.other(), "COMMIT", Done)?;
    Ok("FOR UPDATE alone does not prevent a deadlock".to_owned())
}

fn same(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.both_begin("BEGIN")?;
    scenario.step(A, &select(1, FOR_UPDATE), Reads(0))?;
    scenario.step(B, &select(1, FOR_UPDATE), Waits)?;
    scenario.step(A, &select(2, FOR_UPDATE), Reads(0))?;
    for id in [2, 1] {
        scenario.step(A, &update(id, 1), Done)?;
    }
    scenario.step(A, "COMMIT", Done)?;
    scenario.step(B, CONTINUES, Reads(1))?;
    scenario.step(B, &select(2, FOR_UPDATE), Reads(1))?;
    scenario.step(B, "COMMIT", Done)?;
    Ok("B waits at its first row, and holds no lock that A needs".to_owned())
}

/// The number of repetitions.
const ROUNDS: i64 = 20;

fn sorted(scenario: &mut Scenario<'_>) -> Result<String> {
    both(
        scenario.database,
        |conn: &mut AnyConnection, session, mut start| {
            let ids = if session == A { [1, 2] } else { [2, 1] };
            start.wait();
            for _ in 0..ROUNDS {
                let lock = LockRequest::all(ids.map(|id| ObjectId::new("Lesson", id.to_string())));
                conn.with_object_lock(lock, |conn| {
                    for id in ids {
                        let n = number(conn, &select(id, ""))?;
                        run_statement(conn, &update(id, n + 1))?;
                    }
                    Ok::<_, Error>(())
                })?;
            }
            Ok(())
        },
    )?;
    scenario.print(A, "locks and updates 1 and 2", "20 times");
    scenario.print(B, "locks and updates 2 and 1", "20 times");
    for id in [1, 2] {
        scenario.expect_row(id, 2 * ROUNDS)?;
    }
    Ok("no session fails, no update is lost".to_owned())
}

/// Updates that are lost without an error.
fn lost_updates(runner: &mut LessonRunner<'_>) {
    runner.lesson("read plainly, then update");
    runner.part("Both read 0 and write 1, at READ COMMITTED", |scenario| {
        ensure!(
            old_read(scenario, IsolationLevel::ReadCommitted)?,
            "B failed"
        );
        Ok("two updates, but n is 1: one update is lost, without an error".to_owned())
    });
    runner.part(
        "Both read 0 and write 1, at REPEATABLE READ",
        repeatable_read,
    );
    runner.part("Remedy: let the database compute", computed);
    LessonRunner::note("or read FOR UPDATE, as in lesson 1");
}

/// Both read 0 and write 1, one after the other. Returns whether B's update succeeds.
fn old_read(scenario: &mut Scenario<'_>, level: IsolationLevel) -> Result<bool> {
    scenario.both_begin_at(level)?;
    for session in [A, B] {
        scenario.step(session, &select(1, ""), Reads(0))?;
    }
    scenario.step(A, &update(1, 1), Done)?;
    scenario.step(A, "COMMIT", Done)?;
    let succeeds = match scenario.run(B, &update(1, 1))? {
        Ok(_) => true,
        Err(error) if error.is_serialization_failure() => false,
        Err(error) => bail!(error),
    };
    scenario.step(B, if succeeds { "COMMIT" } else { "ROLLBACK" }, Done)?;
    scenario.expect_row(1, 1)?;
    Ok(succeeds)
}

/// MariaDB refuses the update with `innodb_snapshot_isolation`, the default in newer versions.
fn repeatable_read(scenario: &mut Scenario<'_>) -> Result<String> {
    let is_innodb = scenario.engine() == Engine::Mysql;
    if old_read(scenario, IsolationLevel::RepeatableRead)? {
        ensure!(is_innodb, "B did not fail");
        return Ok("InnoDB loses an update at this level too, without an error".to_owned());
    }
    Ok("B's snapshot is older than A's update, so B fails: run_transaction retries it".to_owned())
}

fn computed(scenario: &mut Scenario<'_>) -> Result<String> {
    let one_more = "UPDATE lessons SET n = n + 1 WHERE id = 1";
    scenario.both_begin_at(IsolationLevel::ReadCommitted)?;
    scenario.step(A, one_more, Done)?;
    scenario.step(B, one_more, Waits)?;
    scenario.step(A, "COMMIT", Done)?;
    scenario.step(B, CONTINUES, Done)?;
    scenario.step(B, "COMMIT", Done)?;
    scenario.expect_row(1, 2)?;
    Ok("n is 2: no update is lost".to_owned())
}

/// A transaction that fails at COMMIT, where reads see a snapshot at SERIALIZABLE (PostgreSQL).
fn commits(runner: &mut LessonRunner<'_>) {
    runner.lesson("each session reads what the other writes, at SERIALIZABLE");
    runner.part("No session waits, and all statements succeed", skew);
    runner.part("Remedy: run_transaction retries it", skew_retried);
}

fn skew(scenario: &mut Scenario<'_>) -> Result<String> {
    scenario.both_begin_at(IsolationLevel::Serializable)?;
    scenario.step(A, &select(2, ""), Reads(0))?;
    scenario.step(B, &select(1, ""), Reads(0))?;
    scenario.step(A, &update(1, 1), Done)?;
    scenario.step(B, &update(2, 1), Done)?;
    scenario.step(A, "COMMIT", Done)?;
    scenario.step(B, "COMMIT", SerializationFailure)?;
    scenario.expect_row(2, 0)?;
    Ok("COMMIT fails, though all statements before it succeeded".to_owned())
}

fn skew_retried(scenario: &mut Scenario<'_>) -> Result<String> {
    let attempts = scenario.both_add_one(
        TransactionOptions::new()
            .isolation(IsolationLevel::Serializable)
            .retry(RetryPolicy::max_attempts(5)),
        [(2, 1), (1, 2)],
        "",
        Meet::HavingRead,
    )?;
    ensure!(attempts != [1, 1], "no session failed");
    let mut n = [scenario.n(1)?, scenario.n(2)?];
    n.sort_unstable();
    ensure!(n == [1, 2], "the rows are {n:?}, not 1 and 2");
    Ok("the result is that of one transaction after the other".to_owned())
}
