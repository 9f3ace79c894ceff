//! The list of semaphores.

use std::fmt::Write;

use diesel_locks::{Error, InspectExt, ListOptions, SemaphoreInfo};
use serde_json::json;

use super::{Printed, print};
use crate::database::AnyConnection;
use crate::output::name;

pub(super) fn read(
    conn: &mut AnyConnection,
    options: &ListOptions,
    limit: u32,
) -> Result<Printed, Error> {
    let found = conn.semaphores(options)?;
    Ok(print(
        found,
        limit,
        text,
        |it| json!({ "name": it.name, "held": it.held, "permits": it.permits, "slots": it.slots }),
    ))
}

/// The name is the last column, so that a long one moves no other.
fn text(semaphores: &[SemaphoreInfo]) -> String {
    if semaphores.is_empty() {
        return String::new();
    }
    let mut text = format!("  {:>6}  {:>7}  {:>6}  NAME", "HELD", "PERMITS", "SLOTS");
    for it in semaphores {
        // The programs have a number of their own then.
        let permits = it
            .permits
            .map_or("not set".to_owned(), |permits| permits.to_string());
        let _ = write!(
            text,
            "\n  {:>6}  {permits:>7}  {:>6}  {}",
            it.held,
            it.slots,
            name(&it.name)
        );
    }
    text
}
