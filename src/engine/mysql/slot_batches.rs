//! Renews and releases many slots with one statement.

use diesel::mysql::Mysql;

use super::autocommit;
use super::execute::Run;
use super::slot_sql::batch::{Leases, OwnedLeases, ReleaseBatch, ReleaseUnusedBatch, RenewBatch};
use crate::Error;
use crate::engine::retry::autocommit_retry;
use crate::link::Link;
use crate::semaphore::backend::ReleaseKind;
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::transaction::depth;

/// The most leases in one statement: 2 MB with the longest names. MariaDB's default for `max_allowed_packet` is 16 MB.
const RENEWAL_BATCH: usize = 1000;

/// Splits the leases into the parts of one statement each.
pub(super) fn parts(leases: &[RenewalRequest]) -> impl Iterator<Item = &[RenewalRequest]> {
    leases.chunks(RENEWAL_BATCH)
}

fn asked<'a>(conn: &mut impl Link<Backend = Mysql>, asked: &'a str) -> Result<Leases<'a>, Error> {
    let in_transaction = (depth::depth(conn)? > 0).into();
    Ok(Leases {
        asked,
        in_transaction,
    })
}

/// Releases the slots of a part, and returns the tokens of those that another session has locked.
pub(super) async fn release_part(
    conn: &mut impl Link<Backend = Mysql>,
    leases: &[RenewalRequest],
    kind: ReleaseKind,
) -> Result<Vec<Vec<u8>>, Error> {
    let json = RenewalRequest::as_json(leases);
    let asked = asked(conn, &json)?;
    let freed = match kind {
        ReleaseKind::Used => {
            let release = || ReleaseBatch { leases: asked };
            autocommit_retry!(conn, release().execute(conn).await)?
        }
        ReleaseKind::Unused => {
            let release = || ReleaseUnusedBatch { leases: asked };
            autocommit_retry!(conn, release().execute(conn).await)?
        }
    };
    if freed == leases.len() {
        return Ok(Vec::new());
    }
    let owned = still_owned(conn, leases, asked).await?;
    Ok(owned.into_iter().map(|lease| lease.token).collect())
}

/// Renews the leases of a part.
pub(super) async fn renew_part(
    conn: &mut impl Link<Backend = Mysql>,
    leases: &[RenewalRequest],
) -> Result<Vec<RenewalResult>, Error> {
    let json = RenewalRequest::as_json(leases);
    let asked = asked(conn, &json)?;
    let renew = || RenewBatch { leases: asked };
    let renewed = autocommit_retry!(conn, renew().execute(conn).await)?;
    if renewed == leases.len() {
        return Ok(leases
            .iter()
            .map(|lease| RenewalResult {
                token: lease.token.to_vec(),
                remaining_us: lease.lease_us,
            })
            .collect());
    }
    // Some leases are lost, or another session has locked their rows.
    still_owned(conn, leases, asked).await
}

/// Returns the leases whose tokens still match.
async fn still_owned(
    conn: &mut impl Link<Backend = Mysql>,
    leases: &[RenewalRequest],
    asked: Leases<'_>,
) -> Result<Vec<RenewalResult>, Error> {
    let query = OwnedLeases { asked: asked.asked };
    let rows: Vec<(i64, i64, i64)> = query.load(conn).await?;
    if asked.in_transaction == 0 && rows.iter().any(|row| row.2 == 0) {
        return Err(autocommit::reason(conn).await);
    }
    let owned = rows.into_iter().filter_map(|(position, remaining_us, _)| {
        let lease = leases.get(usize::try_from(position - 1).ok()?)?;
        Some(RenewalResult {
            token: lease.token.to_vec(),
            remaining_us,
        })
    });
    Ok(owned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_NAME_CHARS;

    /// Each statement must fit into `max_allowed_packet`.
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
