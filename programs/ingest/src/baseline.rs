//! The contents of the database before the writers start.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use diesel::QueryResult;

use crate::check::Delivered;
use crate::store::{Row, Store};

/// The number of rows that are read at a time.
const PAGE: i64 = 1000;

/// Creates the tables, deletes rows if necessary, and returns the rows with which the run starts.
///
/// Generated documents start with an empty table, unless the rows are those of an earlier run with the same documents
/// that was stopped. Rows from files are kept, unless the table is to be emptied.
pub(crate) fn prepare<C: Store>(
    conn: &mut C,
    delivered: &Delivered,
    generated: bool,
    fresh: bool,
    say: impl Fn(&str),
) -> Result<Vec<Row>> {
    diesel_locks::migrate(conn)?;
    conn.create_table()
        .context("can't create the table of documents")?;
    let mut rows = all_rows(conn)?;
    if fresh {
        conn.delete_all()?;
        rows.clear();
    } else if generated {
        let (earlier, real): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.generated);
        rows = real;
        if delivered.were_begun(&earlier) {
            say(&format!(
                "continuing a run that has stored {} documents",
                earlier.len()
            ));
            rows.extend(earlier);
        } else if !earlier.is_empty() {
            conn.delete_generated()?;
            say(&format!(
                "deleted the {} generated documents of an earlier run",
                earlier.len()
            ));
        }
    }
    let duplicates = delivered
        .expected(&BTreeMap::new(), &[])
        .compare(&rows)
        .duplicates;
    ensure!(
        duplicates == 0,
        "the table has {duplicates} duplicates already, from a run with --unlocked; --fresh empties it"
    );
    Ok(rows)
}

pub(crate) fn all_rows<C: Store>(conn: &mut C) -> QueryResult<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let last = rows.last().map_or(0, |row| row.seq);
        let page = conn.rows_after(last, PAGE)?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
    }
}
