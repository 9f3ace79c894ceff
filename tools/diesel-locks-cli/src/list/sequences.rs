//! The list of sequences.

use std::fmt::Write;

use diesel_locks::{Error, InspectExt, ListOptions, SequenceInfo};
use serde_json::json;

use super::{Printed, print};
use crate::database::AnyConnection;
use crate::output::name;

pub(super) fn read(
    conn: &mut AnyConnection,
    options: &ListOptions,
    limit: u32,
) -> Result<Printed, Error> {
    let found = conn.sequences(options)?;
    Ok(print(
        found,
        limit,
        text,
        |it| json!({ "name": it.name, "key": it.key, "last_number": it.last_number.to_string() }),
    ))
}

fn text(sequences: &[SequenceInfo]) -> String {
    if sequences.is_empty() {
        return String::new();
    }
    let mut text = format!("  {:>19}  NAME", "LAST NUMBER");
    for it in sequences {
        let key = it
            .key
            .as_ref()
            .map_or(String::new(), |key| format!(", key {}", name(key)));
        let _ = write!(text, "\n  {:>19}  {}{key}", it.last_number, name(&it.name));
    }
    text
}
