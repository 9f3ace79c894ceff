//! The commands that change something.

use std::time::Duration;

use diesel_locks::uuid::Uuid;
use diesel_locks::{
    Error, InspectExt, ListOptions, ObjectLockExt, SemaphoreExt, SemaphoreInfo, Slot, SlotInfo,
};
use serde_json::json;

use crate::arguments::Grant;
use crate::database::AnyConnection;
use crate::failure::Failure;
use crate::list::slots::holder;
use crate::output::{Report, counted, duration, name};

pub(crate) fn release(conn: &mut AnyConnection, grant: &Grant) -> Result<Report, Failure> {
    let (held, token) = find(conn, grant)?;
    let slot = Slot::from_parts(&grant.semaphore, grant.slot, token, grant.fence);
    conn.release_slot(slot)
        .map_err(|error| lost(error, grant))?;
    let text = format!("released {}, which {} held", slot_of(grant), holder(&held));
    Ok(report(text, &held))
}

pub(crate) fn request_release(conn: &mut AnyConnection, grant: &Grant) -> Result<Report, Failure> {
    let (held, _) = find(conn, grant)?;
    conn.request_release(&held)
        .map_err(|error| lost(error, grant))?;
    let (slot, holder) = (slot_of(grant), holder(&held));
    let text =
        format!("requested the release of {slot} from {holder}, which sees it at its next renewal");
    Ok(report(text, &held))
}

fn report(text: String, held: &SlotInfo) -> Report {
    let fence = held.fence.to_string();
    let json = json!({ "semaphore": held.semaphore, "slot": held.number, "fence": fence, "holder": held.holder });
    Report::new(text, json)
}

pub(crate) fn release_all(conn: &mut AnyConnection, semaphore: &str) -> Result<Report, Failure> {
    let released = conn.force_release_all(semaphore)?;
    let text = format!(
        "released {} of {}",
        counted(released, "slot"),
        name(semaphore)
    );
    Ok(Report::new(
        text,
        json!({ "released": released, "semaphore": semaphore }),
    ))
}

pub(crate) fn set_permits(
    conn: &mut AnyConnection,
    semaphore: &str,
    permits: u32,
) -> Result<Report, Failure> {
    let before = semaphore_named(conn, semaphore)?;
    conn.set_permits(semaphore, permits)?;
    let was = match before.as_ref().map(|it| it.permits) {
        None => "a new semaphore".to_owned(),
        Some(None) => "not set before".to_owned(),
        Some(Some(permits)) => format!("before: {permits}"),
    };
    let permits_text = counted(usize::try_from(permits).unwrap_or(usize::MAX), "permit");
    let text = format!("{}: {permits_text} ({was})", name(semaphore));
    let json = json!({
        "semaphore": semaphore,
        "permits": permits,
        "permits_before": before.as_ref().and_then(|it| it.permits),
        "created": before.is_none(),
    });
    Ok(Report::new(text, json))
}

pub(crate) fn purge(
    conn: &mut AnyConnection,
    older_than: Duration,
    objects: bool,
) -> Result<Report, Failure> {
    let slots = conn.purge_slots(older_than)?;
    let objects = if objects {
        Some(conn.purge_object_locks()?)
    } else {
        None
    };
    let mut text = format!("removed {}", counted(slots, "slot"));
    if let Some(objects) = objects {
        text = format!("{text} and {}", counted(objects, "kept object"));
    }
    Ok(Report::new(
        text,
        json!({ "slots": slots, "objects": objects }),
    ))
}

pub(crate) fn raise_fences(conn: &mut AnyConnection, by: Duration) -> Result<Report, Failure> {
    let fence = conn.raise_fences(by)?;
    let text = format!("the fences of all future grants exceed {fence}");
    Ok(Report::new(text, json!({ "fence": fence.to_string() })))
}

/// The held slot with the fence that the operator has seen, and its token.
fn find(conn: &mut AnyConnection, grant: &Grant) -> Result<(SlotInfo, Uuid), Failure> {
    let slots = conn.held_slots(&ListOptions::new().name(&grant.semaphore))?;
    let slot = slot_of(grant);
    let Some(held) = slots.into_iter().find(|held| held.number == grant.slot) else {
        if semaphore_named(conn, &grant.semaphore)?.is_none() {
            let semaphore = grant.semaphore.clone();
            return Err(Error::UnknownSemaphore { semaphore }.into());
        }
        let free = format!("{slot} is not held: nothing was done");
        return Err(Failure::NotDone(free));
    };
    let (fence, holder) = (held.fence, holder(&held));
    match held.token {
        None => Err(Failure::NotDone(format!(
            "{slot} was released by its holder, and is free in {}, when its minimum hold time is over; `release-all` ends it",
            duration(held.remaining)
        ))),
        Some(_) if fence != grant.fence => Err(Failure::NotDone(format!(
            "{slot} has the fence {fence} by now, and not {}; {holder} holds it: nothing was done",
            grant.fence
        ))),
        Some(token) => Ok((held, token)),
    }
}

/// A semaphore with slots or a registered number of permits.
pub(crate) fn semaphore_named(
    conn: &mut AnyConnection,
    name: &str,
) -> Result<Option<SemaphoreInfo>, Error> {
    Ok(conn.semaphores(&ListOptions::new().name(name))?.pop())
}

fn slot_of(grant: &Grant) -> String {
    format!("slot {} of {}", grant.slot, name(&grant.semaphore))
}

/// The slot was held a moment ago.
fn lost(error: Error, grant: &Grant) -> Failure {
    if error.is_slot_lost() {
        let slot = slot_of(grant);
        return Failure::NotDone(format!(
            "{slot} was released or granted to another holder meanwhile: nothing was done"
        ));
    }
    error.into()
}
