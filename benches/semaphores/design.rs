//! The designs that are compared: acquire and release of one permit.

use std::time::Duration;

use clap::ValueEnum;
use diesel::QueryResult;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Slot};
use uuid::Uuid;

use crate::harness::{Backend, Engine, Measured, Value, Variant, statements};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Design {
    /// The lock table of 2015: a transaction that locks the semaphore's row, deletes what has expired, counts
    /// tokens, and inserts one.
    #[value(name = "2015: parent row, tokens")]
    Tokens,
    /// The slot table of version 4: a transaction that locks a free row and skips locked ones, and updates it.
    #[value(name = "version 4: row per slot")]
    Rows,
    /// Solid Queue's: one row per semaphore, counted down and up. It does not record the holders.
    #[value(name = "counter row")]
    Counter,
    /// Two updates and nothing else: no check of the number of permits, and none of a refusal.
    /// The limit.
    #[value(name = "two bare updates")]
    TwoUpdates,
    #[value(name = "diesel-locks")]
    Ours,
}

statements! {
    LockParent = "SELECT permits FROM parents WHERE name = $1 FOR UPDATE";
    DeleteExpired = "DELETE FROM tokens WHERE name = $1 AND expires_on < $n";
    CountTokens = "SELECT COUNT(*) FROM tokens WHERE name = $1";
    InsertToken = "INSERT INTO tokens (token, name, expires_on) VALUES ($2, $1, $s)";
    DeleteToken = "DELETE FROM tokens WHERE token = $1";

    PickRow = "SELECT id FROM rows4 WHERE name = $1 AND number < $2 \
               AND (token IS NULL OR expires_on < $n) LIMIT 1 FOR UPDATE SKIP LOCKED";
    ClaimRow = "UPDATE rows4 SET token = $2, expires_on = $s WHERE id = $1";
    FreeRow = "UPDATE rows4 SET token = NULL, expires_on = NULL WHERE token = $1";

    CountDown = "UPDATE counters SET value = value - 1, expires_on = $s WHERE name = $1 AND value > 0";
    CountUp = "UPDATE counters SET value = value + 1, expires_on = $s WHERE name = $1 AND value < $2";

    ClaimSlot = "UPDATE two_updates SET token = $2, fence = fence + 1, expires_on = $s WHERE name = $1 \
                AND number = (SELECT number FROM two_updates WHERE name = $1 AND expires_on <= $n \
                ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING number",
               "UPDATE two_updates SET token = $2, fence = LAST_INSERT_ID(fence + 1), expires_on = $s \
                WHERE name = $1 AND expires_on <= $n ORDER BY number LIMIT 1";
    FreeSlot = "UPDATE two_updates SET token = NULL, expires_on = '2000-01-01 00:00:00' \
                WHERE name = $1 AND number = $3 AND token = $2",
               "UPDATE two_updates SET token = NULL, expires_on = '2000-01-01 00:00:00' \
                WHERE name = $1 AND token = $2";
}

enum Held {
    Slot(Slot),
    Token(String),
    Numbered(String, i64),
    Counted,
}

impl Variant for Design {
    /// The level at which a user of InnoDB would run it; on PostgreSQL it is the default. Ours is for every level.
    fn prepare<C: Backend>(self, conn: &mut C) -> QueryResult<()> {
        if C::ENGINE != Engine::Mysql {
            return Ok(());
        }
        let level = match self {
            Self::Ours => "REPEATABLE READ",
            _ => "READ COMMITTED",
        };
        conn.batch_execute(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))
    }
}

impl Design {
    /// Acquires and releases; counts it when it was refused.
    pub(crate) fn cycle<C: Backend>(
        self,
        conn: &mut C,
        semaphore: &Semaphore,
        measured: &mut Measured,
    ) -> QueryResult<()> {
        let Some(held) = self.acquire(conn, semaphore)? else {
            measured.refusals += 1;
            return Ok(());
        };
        // Without a retry the permit would stay held until the lease ends.
        while let Err(error) = self.release(conn, semaphore, &held) {
            let error = Error::from(error);
            if !error.is_deadlock() {
                return Err(error.into());
            }
            measured.deadlocks += 1;
        }
        Ok(())
    }

    fn acquire<C: Backend>(self, conn: &mut C, semaphore: &Semaphore) -> QueryResult<Option<Held>> {
        let name = Value::Text(semaphore.name());
        let permits = i64::from(semaphore.permits().expect("its own"));
        let token = || Uuid::new_v4().simple().to_string();
        match self {
            Self::Ours => {
                let lease = LeaseOptions::new(Duration::from_secs(10));
                Ok(conn.try_acquire_slot(semaphore, lease)?.map(Held::Slot))
            }
            Self::Tokens => conn.transaction(|conn| {
                conn.number::<LockParent>(&[name])?;
                conn.change::<DeleteExpired>(&[name])?;
                if conn.number::<CountTokens>(&[name])? >= Some(permits) {
                    return Ok(None);
                }
                let token = token();
                conn.change::<InsertToken>(&[name, Value::Text(&token)])?;
                Ok(Some(Held::Token(token)))
            }),
            Self::Rows => conn.transaction(|conn| {
                let Some(id) = conn.number::<PickRow>(&[name, Value::Number(permits)])? else {
                    return Ok(None);
                };
                let token = token();
                conn.change::<ClaimRow>(&[Value::Number(id), Value::Text(&token)])?;
                Ok(Some(Held::Token(token)))
            }),
            Self::Counter => {
                let changed = conn.change::<CountDown>(&[name])?;
                Ok((changed > 0).then_some(Held::Counted))
            }
            Self::TwoUpdates if C::ENGINE == Engine::Postgres => {
                let token = token();
                let changed = conn.number::<ClaimSlot>(&[name, Value::Text(&token)])?;
                Ok(changed.map(|number| Held::Numbered(token, number)))
            }
            Self::TwoUpdates => {
                let token = token();
                let changed = conn.change::<ClaimSlot>(&[name, Value::Text(&token)])?;
                Ok((changed > 0).then_some(Held::Numbered(token, 0)))
            }
        }
    }

    fn release<C: Backend>(
        self,
        conn: &mut C,
        semaphore: &Semaphore,
        held: &Held,
    ) -> QueryResult<()> {
        let name = Value::Text(semaphore.name());
        let released = match held {
            Held::Slot(slot) => {
                conn.release_slot(slot)?;
                1
            }
            Held::Token(token) if self == Self::Tokens => {
                conn.change::<DeleteToken>(&[Value::Text(token)])?
            }
            Held::Token(token) => conn.change::<FreeRow>(&[Value::Text(token)])?,
            Held::Numbered(token, number) => {
                conn.change::<FreeSlot>(&[name, Value::Text(token), Value::Number(*number)])?
            }
            Held::Counted => conn.change::<CountUp>(&[
                name,
                Value::Number(semaphore.permits().expect("its own").into()),
            ])?,
        };
        assert_eq!(released, 1, "{} released what it held", self.name());
        Ok(())
    }
}
