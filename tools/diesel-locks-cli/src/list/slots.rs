//! The list of held slots.

use diesel_locks::{Error, InspectExt, ListOptions, SlotInfo};
use serde_json::{Value, json};

use super::{Printed, print};
use crate::database::AnyConnection;
use crate::output::{between, duration, json_time, name, time};

pub(super) fn read(
    conn: &mut AnyConnection,
    options: &ListOptions,
    limit: u32,
) -> Result<Printed, Error> {
    let found = conn.held_slots(options)?;
    let text = |slots: &[SlotInfo]| match slots {
        [] => " (slots of transactions are not visible)".to_owned(),
        slots => slots.iter().map(lines).collect::<Vec<_>>().join("\n"),
    };
    Ok(print(found, limit, text, json))
}

/// The text of the slot's holder; words in place of a text that is missing or empty.
pub(crate) fn holder(slot: &SlotInfo) -> String {
    match slot.holder.as_deref() {
        None => "an unknown holder".to_owned(),
        Some("") => "a holder without a name".to_owned(),
        Some(holder) => name(holder),
    }
}

/// The slot in lines of its own: names have up to 255 characters.
fn lines(slot: &SlotInfo) -> String {
    let now = slot.expires_at - slot.remaining;
    let (semaphore, number, fence) = (name(&slot.semaphore), slot.number, slot.fence);
    let mut lines = vec![format!("  {semaphore} slot {number}, fence {fence}")];
    let held = duration(between(slot.acquired_at, now));
    let (since, until) = (time(slot.acquired_at), time(slot.expires_at));
    let left = duration(slot.remaining);
    if slot.token.is_some() {
        lines.push(format!(
            "    held by {} since {since} ({held})",
            holder(slot)
        ));
        lines.push(format!("    lease expires {until}, in {left}"));
    } else {
        lines.push(format!("    was held by {} since {since}", holder(slot)));
        lines.push(format!(
            "    released, with a minimum hold time: free {until}, in {left}"
        ));
    }
    if let Some(at) = slot.release_requested_at {
        let ago = duration(between(at, now));
        lines.push(format!("    release requested {}, {ago} ago", time(at)));
    }
    if let Some(data) = &slot.data {
        lines.push(format!("    data: {}", name(data)));
    }
    lines.join("\n")
}

/// Fences exceed the numbers that JavaScript has.
fn json(slot: &SlotInfo) -> Value {
    json!({
        "semaphore": slot.semaphore,
        "slot": slot.number,
        "fence": slot.fence.to_string(),
        "holder": slot.holder,
        "released": slot.token.is_none(),
        "acquired_at": json_time(slot.acquired_at),
        "expires_at": json_time(slot.expires_at),
        "expires_in_s": slot.remaining.as_secs_f64(),
        "release_requested_at": slot.release_requested_at.map(json_time),
        "data": slot.data,
    })
}
