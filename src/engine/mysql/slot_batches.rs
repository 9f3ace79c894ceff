//! Renews and releases many slots with one statement. Raw SQL here, because the DSL has neither JSON tables nor locks in a
//! subquery.

use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Integer, Text};

use crate::engine::dialect::Dialect;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::sql::{
    ANY_JOIN, ANY_JOIN_HINT, ANY_SIZE, ANY_SIZE_HINT, COMMITTED_AT_ONCE, EVERY_ROW,
};
use crate::engine::slots::{self, ReleaseKind};
use crate::link::Link;
use crate::link::depth::{self, StartedTransaction};
use crate::link::raw_sql::{push, statement};
use crate::rt;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::{Error, IsolationLevel};

/// Between two looks.
const ARRIVAL_PAUSE: Duration = Duration::from_millis(5);

/// The most leases in one statement: 2 MB with the longest names. MariaDB's default for `max_allowed_packet` is 16 MB.
const RENEWAL_BATCH: usize = 1000;

const ASKED: &str = ", '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(2040) PATH '$.name', number INTEGER PATH '$.number', \
     token VARCHAR(32) PATH '$.token', lease_us BIGINT PATH '$.lease_us', seen INTEGER PATH '$.seen')) AS asked \
     STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = UNHEX(asked.name) \
     AND slot.number = asked.number AND slot.token = UNHEX(asked.token)";

/// The requested leases with the fences of their grants, beside the slots, whatever their tokens.
const GRANTED: &str = ", '$[*]' COLUMNS (name VARCHAR(2040) PATH '$.name', number INTEGER PATH '$.number', \
     token VARCHAR(32) PATH '$.token', fence BIGINT PATH '$.fence')) AS asked \
     LEFT JOIN diesel_locks_slots AS slot ON slot.name = UNHEX(asked.name) AND slot.number = asked.number";

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
            "(SELECT slot.name, slot.number, asked.lease_us, asked.seen FROM JSON_TABLE(", Text = self.asked; {ASKED};
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
    /// Leaves out a lease whose release is requested, unless the holder has seen that or `all` is 1: so the number of renewed leases
    /// shows a request without another round trip.
    RenewBatch<'a> { leases: Leases<'a>, all: i32 } -> Integer,
    |self| {
        [&self.leases]; " SET slot.expires_us = GREATEST(slot.hold_until_us, "; {Mysql::NOW};
        " + mine.lease_us) WHERE slot.expires_us > "; {Mysql::NOW};
        " AND (slot.release_requested_us = 0 OR mine.seen = 1 OR ", Integer = &self.all; ")"
    }

    ReleaseBatch<'a> { leases: Leases<'a>, kind: ReleaseKind } -> Integer, by text,
    |self| { [&self.leases]; {self.kind.set()} }

    /// Reads the remaining time of each lease whose token still matches, and when its release was requested. Identifies it by its
    /// position in the request, from 1, because a broken client library loses texts. The last number is 0 if statements are not
    /// committed at once.
    OwnedLeases<'a> { asked: &'a str } -> (BigInt, BigInt, BigInt, BigInt),
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT}; "asked.place, slot.expires_us - "; {Mysql::NOW};
        ", slot.release_requested_us, "; {COMMITTED_AT_ONCE};
        " FROM JSON_TABLE(", Text = self.asked; {ASKED}; {EVERY_ROW};
    }

    /// Counts the leases whose grant this node has not received yet, those whose token matches, and the unexpired of these.
    Grants<'a> { asked: &'a str } -> (BigInt, BigInt, BigInt),
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT};
        "COUNT(CASE WHEN slot.fence IS NULL OR slot.fence < asked.fence THEN 1 END), \
         COUNT(CASE WHEN slot.token = UNHEX(asked.token) THEN 1 END), \
         COUNT(CASE WHEN slot.token = UNHEX(asked.token) AND slot.expires_us > "; {Mysql::NOW}; " THEN 1 END) \
         FROM JSON_TABLE(", Text = self.asked; {GRANTED};
    }
}

/// What is known of leases that a statement has not found.
#[derive(Default)]
pub(crate) struct Found {
    /// A token matches: the statement may have come before the grant.
    pub(crate) is_owned: bool,
    /// One of these leases has not expired.
    pub(crate) is_unexpired: bool,
}

/// How long a batch may wait for grants: other leases of it have been renewed, and the renewer waits for the answer.
fn arrival_limit(leases: &[RenewalRequest]) -> Duration {
    let shortest = leases.iter().map(|lease| lease.lease_us).min();
    let shortest = u64::try_from(shortest.unwrap_or(0)).unwrap_or(0);
    Duration::from_micros(shortest / 12).clamp(ARRIVAL_PAUSE, Duration::from_secs(1))
}

pub(crate) fn parts(leases: &[RenewalRequest]) -> impl Iterator<Item = &[RenewalRequest]> {
    leases.chunks(RENEWAL_BATCH)
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    /// After a statement that has not found all of these leases: waits, but not longer than this, for grants that this node of
    /// a cluster has not received yet. In a transaction that reads from a snapshot, which would not show them, it does nothing.
    pub(crate) async fn await_grants(
        &mut self,
        leases: &[RenewalRequest],
        limit: Duration,
    ) -> Result<Found, Error> {
        let read_committed = StartedTransaction(Some(IsolationLevel::ReadCommitted));
        if depth::depth(self.0.status())? > 0
            && depth::started(self.0.status()) != Some(read_committed)
        {
            return Ok(Found::default());
        }
        let json = RenewalRequest::as_json(leases);
        let started = Instant::now();
        loop {
            let grants = || Grants { asked: &json };
            let (missing, owned, unexpired): (i64, i64, i64) =
                autocommit_retry!(self.0, self.get_result(grants()).await)?;
            if missing == 0 || started.elapsed() >= limit {
                return Ok(Found {
                    is_owned: owned > 0,
                    is_unexpired: unexpired > 0,
                });
            }
            rt::pause(ARRIVAL_PAUSE).await;
        }
    }

    fn leases<'a>(&mut self, asked: &'a str) -> Result<Leases<'a>, Error> {
        let in_transaction = (depth::depth(self.0.status())? > 0).into();
        Ok(Leases {
            asked,
            in_transaction,
        })
    }

    pub(crate) async fn release_part(
        &mut self,
        requests: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let json = RenewalRequest::as_json(requests);
        let leases = self.leases(&json)?;
        let limit = arrival_limit(requests);
        let mut left = requests.len();
        for first in [true, false] {
            if !first && !self.await_grants(requests, limit).await?.is_owned {
                break;
            }
            let release = || ReleaseBatch { leases, kind };
            let freed = autocommit_retry!(self.0, self.execute(release()).await)?;
            left = left.saturating_sub(freed);
            if left == 0 {
                return Ok(Vec::new());
            }
        }
        let owned = self.still_owned(requests, leases).await?;
        Ok(owned.into_iter().map(|lease| lease.token).collect())
    }

    pub(crate) async fn renew_part(
        &mut self,
        requests: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let json = RenewalRequest::as_json(requests);
        let leases = self.leases(&json)?;
        let renew = |all| RenewBatch { leases, all };
        let renewed = autocommit_retry!(self.0, self.execute(renew(0)).await)?;
        if renewed == requests.len() {
            let renewed = |lease: &RenewalRequest| RenewalResult {
                token: lease.token.to_vec(),
                remaining_us: lease.lease_us,
                release_requested: lease.release_seen,
            };
            return Ok(requests.iter().map(renewed).collect());
        }
        // Some leases are lost, or not received by this node yet, or another session has locked their rows, or their release is
        // requested.
        let limit = arrival_limit(requests);
        if self.await_grants(requests, limit).await?.is_owned {
            autocommit_retry!(self.0, self.execute(renew(1)).await)?;
        }
        self.still_owned(requests, leases).await
    }

    async fn still_owned(
        &mut self,
        requests: &[RenewalRequest],
        leases: Leases<'_>,
    ) -> Result<Vec<RenewalResult>, Error> {
        let query = OwnedLeases {
            asked: leases.asked,
        };
        let rows: Vec<(i64, i64, i64, i64)> = self.load(query).await?;
        if leases.in_transaction == 0 && rows.iter().any(|row| row.3 == 0) {
            return Err(self.commits_nothing().await);
        }
        let owned = rows
            .into_iter()
            .filter_map(|(position, left, asked_us, _)| {
                let request = requests.get(usize::try_from(position - 1).ok()?)?;
                Some(slots::renewed((request.token.to_vec(), left, asked_us)))
            });
        Ok(owned.collect())
    }
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
            fence: i64::MAX,
            lease_us: i64::MAX,
            release_seen: false,
        };
        let leases = vec![lease; 2 * RENEWAL_BATCH + 1];
        let fits = |part| RenewalRequest::as_json(part).len() < 4 * 1024 * 1024;
        assert!(parts(&leases).all(fits));
        let parts: Vec<usize> = parts(&leases).map(<[_]>::len).collect();
        assert_eq!(parts, [RENEWAL_BATCH, RENEWAL_BATCH, 1]);
    }
}
