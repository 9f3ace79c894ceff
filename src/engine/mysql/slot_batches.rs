//! Renews and releases many slots with one statement. Raw SQL here, because the DSL has neither JSON tables nor locks in a
//! subquery.

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Integer, Text};

use crate::Error;
use crate::engine::clock::Clock;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::slot_sql::COMMITTED_AT_ONCE;
use crate::engine::mysql::sql::{ANY_JOIN, ANY_JOIN_HINT, ANY_SIZE, ANY_SIZE_HINT, EVERY_ROW};
use crate::engine::mysql::{execute, session};
use crate::engine::slot_queries::{Release, ReleaseUnused};
use crate::engine::slots::{self, ReleaseKind};
use crate::link::raw_sql::{push, statement};
use crate::link::{On, depth};
use crate::values::lease::{RenewalRequest, RenewalResult};

/// The requested leases as a table, joined with the slots whose tokens match.
const ASKED: &str = ", '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(2040) PATH '$.name', number INTEGER PATH '$.number', \
     token VARCHAR(32) PATH '$.token', lease_us BIGINT PATH '$.lease_us')) AS asked \
     STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = UNHEX(asked.name) \
     AND slot.number = asked.number AND slot.token = UNHEX(asked.token)";

#[derive(Clone, Copy)]
pub(crate) struct Leases<'a> {
    /// As JSON.
    asked: &'a str,
    /// 1 in a transaction, otherwise 0: then nothing is changed that would not be committed at once.
    in_transaction: i32,
}

/// The beginning of an update of the requested leases, except those whose row another session has locked.
impl QueryFragment<Mysql> for Leases<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        push!(out;
            {ANY_JOIN}; "UPDATE "; {ANY_JOIN_HINT};
            "(SELECT slot.name, slot.number, asked.lease_us FROM JSON_TABLE(", Text = self.asked; {ASKED};
            " WHERE "; {COMMITTED_AT_ONCE}; " OR ", Integer = &self.in_transaction;
            " LIMIT 1000000 FOR UPDATE /*!80000 OF slot */ SKIP LOCKED) AS mine \
             STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
             ON slot.name = mine.name AND slot.number = mine.number";
        );
        Ok(())
    }
}

statement! {
    Mysql;
    RenewBatch<'a> { leases: Leases<'a> } -> Integer,
    |self| {
        [&self.leases]; " SET slot.expires_us = GREATEST(slot.hold_until_us, "; {Mysql::NOW};
        " + mine.lease_us) WHERE slot.expires_us > "; {Mysql::NOW}
    }
}

statement! {
    Mysql;
    ReleaseBatch<'a> { leases: Leases<'a> } -> Integer,
    |self| { [&self.leases]; [&Release] }
}

statement! {
    Mysql;
    ReleaseUnusedBatch<'a> { leases: Leases<'a> } -> Integer,
    |self| { [&self.leases]; [&ReleaseUnused] }
}

statement! {
    Mysql;
    /// Reads the remaining time of each lease whose token still matches. Identifies it by its position in the request,
    /// from 1, because a broken client library loses texts but not numbers. The third number is 0 if statements are not
    /// committed at once.
    OwnedLeases<'a> { asked: &'a str } -> (BigInt, BigInt, BigInt),
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT}; "asked.place, slot.expires_us - "; {Mysql::NOW}; ", "; {COMMITTED_AT_ONCE};
        " FROM JSON_TABLE(", Text = self.asked; {ASKED}; {EVERY_ROW};
    }
}

/// The most leases in one statement: 2 MB with the longest names. MariaDB's default for `max_allowed_packet` is 16 MB.
const RENEWAL_BATCH: usize = 1000;

pub(crate) fn parts(leases: &[RenewalRequest]) -> impl Iterator<Item = &[RenewalRequest]> {
    leases.chunks(RENEWAL_BATCH)
}

fn asked<'a>(conn: &mut impl On<Mysql>, asked: &'a str) -> Result<Leases<'a>, Error> {
    let in_transaction = (depth::depth(conn.status())? > 0).into();
    Ok(Leases {
        asked,
        in_transaction,
    })
}

pub(crate) async fn release_part(
    conn: &mut impl On<Mysql>,
    leases: &[RenewalRequest],
    kind: ReleaseKind,
) -> Result<Vec<Vec<u8>>, Error> {
    let json = RenewalRequest::as_json(leases);
    let asked = asked(conn, &json)?;
    let freed = match kind {
        ReleaseKind::Used => {
            let release = || ReleaseBatch { leases: asked };
            autocommit_retry!(conn, execute::execute(conn, release()).await)?
        }
        ReleaseKind::Unused => {
            let release = || ReleaseUnusedBatch { leases: asked };
            autocommit_retry!(conn, execute::execute(conn, release()).await)?
        }
    };
    if freed == leases.len() {
        return Ok(Vec::new());
    }
    let owned = still_owned(conn, leases, asked).await?;
    Ok(owned.into_iter().map(|lease| lease.token).collect())
}

pub(crate) async fn renew_part(
    conn: &mut impl On<Mysql>,
    leases: &[RenewalRequest],
) -> Result<Vec<RenewalResult>, Error> {
    let json = RenewalRequest::as_json(leases);
    let asked = asked(conn, &json)?;
    let renew = || RenewBatch { leases: asked };
    let renewed = autocommit_retry!(conn, execute::execute(conn, renew()).await)?;
    if renewed == leases.len() {
        let all = leases.iter();
        let all = all.map(|lease| slots::renewed((lease.token.to_vec(), lease.lease_us)));
        return Ok(all.collect());
    }
    // Some leases are lost, or another session has locked their rows.
    still_owned(conn, leases, asked).await
}

async fn still_owned(
    conn: &mut impl On<Mysql>,
    leases: &[RenewalRequest],
    asked: Leases<'_>,
) -> Result<Vec<RenewalResult>, Error> {
    let query = OwnedLeases { asked: asked.asked };
    let rows: Vec<(i64, i64, i64)> = execute::load(conn, query).await?;
    if asked.in_transaction == 0 && rows.iter().any(|row| row.2 == 0) {
        return Err(session::commits_nothing(conn).await);
    }
    let owned = rows.into_iter().filter_map(|(position, remaining_us, _)| {
        let lease = leases.get(usize::try_from(position - 1).ok()?)?;
        Some(slots::renewed((lease.token.to_vec(), remaining_us)))
    });
    Ok(owned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::limits::MAX_NAME_CHARS;

    #[test]
    fn many_leases_are_named_in_several_statements() {
        let lease = RenewalRequest {
            semaphore: "🔒".repeat(MAX_NAME_CHARS),
            number: i32::MAX,
            token: [255; 16],
            lease_us: i64::MAX,
        };
        let leases = vec![lease; 2 * RENEWAL_BATCH + 1];
        let fits = |part| RenewalRequest::as_json(part).len() < 4 * 1024 * 1024;
        assert!(parts(&leases).all(fits));
        let parts: Vec<usize> = parts(&leases).map(<[_]>::len).collect();
        assert_eq!(parts, [RENEWAL_BATCH, RENEWAL_BATCH, 1]);
    }
}
