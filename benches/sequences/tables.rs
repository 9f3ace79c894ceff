//! The tables of the designs, and the rows of all sequences.

use anyhow::Result;
use diesel_locks::prelude::*;

use crate::designs::Design;
use crate::sql::Baselines;

/// For each design a table with the next numbers, and one that the rows go to. A
/// number that came twice would be an error there.
pub(crate) fn create_and_fill<C: Baselines>(
    conn: &mut C,
    designs: &[Design],
    sequences: &[Sequence],
) -> Result<()> {
    let rows: Vec<_> = (0..sequences.len())
        .map(|id| format!("({id}, 0)"))
        .collect();
    for design in designs {
        let suffix = design.suffix();
        conn.batch_execute(&format!(
            "CREATE TABLE next_{suffix} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)"
        ))?;
        conn.batch_execute(&format!(
            "CREATE TABLE pass_{suffix} (id BIGINT NOT NULL, number BIGINT NOT NULL, \
             PRIMARY KEY (id, number))"
        ))?;
        conn.batch_execute(&format!(
            "INSERT INTO next_{suffix} VALUES {}",
            rows.join(", ")
        ))?;
    }
    // On MySQL and MariaDB the first draw of a process takes longer.
    for _ in 0..2 {
        conn.transaction(|conn| {
            for sequence in sequences {
                conn.next_number(sequence)?;
            }
            diesel::QueryResult::Ok(())
        })?;
    }
    Ok(())
}
