//! Lists semaphores, slots and sequences on MySQL and MariaDB.
//!
//! A row's name is never empty: reading one detects a client library that loses texts.

use diesel::mysql::Mysql;

use super::big_selects::big_select;
use super::bytes::{Bytes, check_client_library};
use super::execute::{self, MysqlError};
use crate::Error;
use crate::engine::list_queries::list_queries;
use crate::link::Link;
use crate::semaphore::backend::{HeldRow, SemaphoreRow};

type Semaphore = (Bytes, Option<i32>, Option<i32>, i64);
type Held = (i32, Option<Bytes>, Option<Vec<u8>>, i64, i64, i64, i64);

list_queries!(
    mysql,
    Mysql,
    impl Link<Backend = Mysql>,
    [u8],
    Bytes,
    Vec<u8>,
    Semaphore,
    Held,
    execute,
    MysqlError
);

pub(super) async fn list_semaphores(
    conn: &mut impl Link<Backend = Mysql>,
    request: &ListRequest,
) -> Result<Vec<SemaphoreRow>, Error> {
    let rows = big_select!(conn, semaphores(conn, request))?;
    let row = |(name, permits, slots, held): Semaphore| SemaphoreRow {
        name: text(name.0),
        permits,
        slots,
        held,
    };
    Ok(rows.into_iter().map(row).collect())
}

pub(super) async fn list_held(
    conn: &mut impl Link<Backend = Mysql>,
    request: &ListRequest,
) -> Result<Vec<(String, HeldRow)>, Error> {
    let rows = big_select!(conn, held_slots(conn, request))?;
    // A broken client library does not lose a name of one byte, a slot may have no token, and a holder may be empty.
    if rows
        .iter()
        .any(|(_, row)| row.2.as_ref().is_some_and(Vec::is_empty))
    {
        check_client_library(conn).await?;
    }
    let row = |(name, row): (Bytes, Held)| (text(name.0), held_row(row));
    Ok(rows.into_iter().map(row).collect())
}

pub(super) async fn list_sequences(
    conn: &mut impl Link<Backend = Mysql>,
    request: &ListRequest,
) -> Result<Vec<(String, String, i64)>, Error> {
    let rows = big_select!(conn, sequences(conn, request))?;
    let row = |(name, scope, last): (Bytes, Vec<u8>, i64)| (text(name.0), text(scope), last);
    Ok(rows.into_iter().map(row).collect())
}

fn held_row(row: Held) -> HeldRow {
    HeldRow {
        number: row.0,
        token: row.1.map(|token| token.0),
        holder: row.2.map(text),
        fence: row.3,
        acquired_us: row.4,
        expires_us: row.5,
        remaining_us: row.6,
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
