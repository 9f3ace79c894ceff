//! What stands in the crate's tables, row by row, read without the crate.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use uuid::Uuid;

use super::Backend;

/// A row of `diesel_locks_slots` but for its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRow {
    pub(crate) token: Option<Uuid>,
    pub(crate) holder: Option<String>,
    pub(crate) fence: i64,
    pub(crate) acquired_us: i64,
    pub(crate) expires_us: i64,
    pub(crate) hold_until_us: i64,
}

/// Rows by their keys.
pub(crate) type Slots = BTreeMap<(String, i32), SlotRow>;

/// All rows, but for the one of `diesel_locks_fences`, which belongs to all semaphores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// Whether the row is kept.
    pub(crate) locks: BTreeMap<String, bool>,
    pub(crate) slots: Slots,
    /// The permits.
    pub(crate) semaphores: BTreeMap<String, i32>,
    /// The last number.
    pub(crate) sequences: BTreeMap<(String, String), i64>,
}

impl Tables {
    /// What has nothing to do with the semaphore.
    pub(crate) fn without_semaphore(mut self, name: &str) -> Self {
        self.slots.retain(|(of, _), _| of != name);
        self.semaphores.remove(name);
        self
    }

    /// The rows of the semaphore, by number.
    pub(crate) fn slots_of(&self, name: &str) -> Vec<(i32, &SlotRow)> {
        let of = self.slots.iter().filter(|((of, _), _)| of == name);
        of.map(|((_, number), row)| (*number, row)).collect()
    }
}

/// As it stands in the tables: in whole microseconds, fractions rounded up.
pub(crate) fn us(duration: Duration) -> i64 {
    let us = duration.as_nanos().div_ceil(1000);
    i64::try_from(us).expect("within the limits")
}

/// Whether `expires_us` is the expiry after a renewal of the slot `before` to a time within `ends`. A slot that is to be held
/// for longer does not expire earlier.
pub(crate) fn is_renewal<B: Backend>(
    before: &SlotRow,
    ends: RangeInclusive<i64>,
    expires_us: i64,
) -> bool {
    let ends = before.hold_until_us.max(*ends.start())..=before.hold_until_us.max(*ends.end());
    // MySQL and MariaDB move an expiry that is there already.
    let is_moved = B::ENGINE == "mysql"
        && ends.contains(&before.expires_us)
        && expires_us == before.expires_us + 1;
    ends.contains(&expires_us) || is_moved
}

/// Removes all rows. The fences continue to grow.
pub(crate) fn clear<B: Backend>(conn: &mut B::Conn) {
    for table in [
        "diesel_locks_objects",
        "diesel_locks_slots",
        "diesel_locks_semaphores",
        "diesel_locks_sequences",
    ] {
        B::sql(conn, &format!("DELETE FROM {table}"));
    }
}

/// A text as the engine hands it out.
pub(super) trait Stored {
    /// What is not UTF-8 was not stored as it was given.
    fn text(self) -> String;
}

impl Stored for String {
    fn text(self) -> String {
        self
    }
}

impl Stored for Vec<u8> {
    fn text(self) -> String {
        String::from_utf8(self).expect("what was stored is UTF-8")
    }
}

pub(super) fn token(bytes: &[u8]) -> Uuid {
    Uuid::from_slice(bytes).expect("a token has 16 bytes")
}

/// Reads the slots, and all tables, by the schema of an engine; `$text` is what its texts come as.
macro_rules! read_tables {
    ($schema:ident, $text:ty) => {
        fn slots(conn: &mut Self::Conn) -> $crate::support::tables::Slots {
            use crate::schema::$schema::diesel_locks_slots;
            use diesel::prelude::*;

            use $crate::support::tables::{SlotRow, Stored, token};

            type Row = (
                $text,
                i32,
                Option<Vec<u8>>,
                Option<$text>,
                i64,
                i64,
                i64,
                i64,
            );
            let rows: Vec<Row> = diesel_locks_slots::table
                .select((
                    diesel_locks_slots::name,
                    diesel_locks_slots::number,
                    diesel_locks_slots::token,
                    diesel_locks_slots::holder,
                    diesel_locks_slots::fence,
                    diesel_locks_slots::acquired_us,
                    diesel_locks_slots::expires_us,
                    diesel_locks_slots::hold_until_us,
                ))
                .load(conn)
                .expect("slots");
            rows.into_iter()
                .map(|row| {
                    let slot = SlotRow {
                        token: row.2.as_deref().map(token),
                        holder: row.3.map(Stored::text),
                        fence: row.4,
                        acquired_us: row.5,
                        expires_us: row.6,
                        hold_until_us: row.7,
                    };
                    ((row.0.text(), row.1), slot)
                })
                .collect()
        }

        fn tables(conn: &mut Self::Conn) -> $crate::support::tables::Tables {
            use crate::schema::$schema::{
                diesel_locks_objects, diesel_locks_semaphores, diesel_locks_sequences,
            };
            use diesel::prelude::*;

            use $crate::support::tables::{Stored, Tables};

            let slots = Self::slots(conn);
            let locks: Vec<($text, bool)> = diesel_locks_objects::table
                .select((diesel_locks_objects::id, diesel_locks_objects::kept))
                .load(conn)
                .expect("locks");
            let semaphores: Vec<($text, i32)> = diesel_locks_semaphores::table
                .load(conn)
                .expect("semaphores");
            let sequences: Vec<($text, $text, i64)> =
                diesel_locks_sequences::table.load(conn).expect("sequences");
            Tables {
                locks: locks
                    .into_iter()
                    .map(|(id, kept)| (id.text(), kept))
                    .collect(),
                slots,
                semaphores: semaphores
                    .into_iter()
                    .map(|(name, permits)| (name.text(), permits))
                    .collect(),
                sequences: sequences
                    .into_iter()
                    .map(|(name, scope, last)| ((name.text(), scope.text()), last))
                    .collect(),
            }
        }
    };
}
pub(super) use read_tables;
