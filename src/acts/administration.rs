//! For operators: creates the tables, registers semaphores, sets their permits, creates and removes slots, releases them by force,
//! raises fences; lists semaphores, slots and sequences.

use std::borrow::Borrow;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::acts::slot_attempts::create_slots;
use crate::acts::slot_queue;
use crate::acts::transaction::{assert_open_if_in_transaction, outside};
use crate::engine::Engine;
use crate::engine::migration_runner::SqlMigration;
use crate::engine::slots::{HeldRow, RaiseOutcome, SemaphoreRow};
use crate::error::NameKind;
use crate::error::limits::LONGEST_LEASE;
use crate::values::lease;
use crate::values::slot::FirstSlot;
use crate::{Error, ListOptions, Semaphore, SemaphoreInfo, SequenceInfo, SlotInfo};

pub(crate) async fn migrate(engine: &mut dyn Engine) -> Result<Vec<String>, Error> {
    outside(engine, "migrate", "MySQL and MariaDB would commit it")?;
    run_pending(engine, None).await
}

pub(crate) async fn run_migrations(
    engine: &mut dyn Engine,
    application: &[SqlMigration],
) -> Result<Vec<String>, Error> {
    let reason =
        "a migration may have to run outside of one, and MySQL and MariaDB would commit it";
    outside(engine, "run_migrations", reason)?;
    run_pending(engine, Some(application)).await
}

/// Looks once more at tables that are different: another session may have run migrations between the looks at the tables and
/// at the versions that are recorded.
async fn run_pending(
    engine: &mut dyn Engine,
    application: Option<&[SqlMigration]>,
) -> Result<Vec<String>, Error> {
    match engine.migrate(application).await {
        Err(Error::DifferentTables { .. }) => engine.migrate(application).await,
        ran => ran,
    }
}

pub(crate) async fn force_release_all(engine: &mut dyn Engine, name: &str) -> Result<usize, Error> {
    NameKind::Semaphore.check(name)?;
    assert_open_if_in_transaction(engine).await?;
    let released = engine.release_all(name).await?;
    if released == 0 && engine.first_slot_nowait(name).await? == FirstSlot::Missing {
        let semaphore = name.to_owned();
        return Err(Error::UnknownSemaphore { semaphore });
    }
    slot_queue::notify_released(name, released, None);
    tracing::warn!(semaphore = name, released, "all slots released by force");
    Ok(released)
}

pub(crate) async fn register(
    engine: &mut dyn Engine,
    semaphores: &[impl Borrow<Semaphore>],
) -> Result<(), Error> {
    for semaphore in semaphores {
        semaphore.borrow().validate()?;
    }
    outside(engine, "register_semaphores", OTHERS_WAIT)?;
    for semaphore in semaphores {
        let semaphore = semaphore.borrow();
        // Otherwise `set_permits` has created them.
        if semaphore.permits().is_some() {
            // First: a purge deletes slots that are not registered.
            engine.register(semaphore).await?;
            create_slots(engine, semaphore, true).await?;
        }
    }
    Ok(())
}

pub(crate) async fn set_permits(
    engine: &mut dyn Engine,
    name: &str,
    permits: u32,
) -> Result<(), Error> {
    // What is granted has a row. A semaphore that is paused has one too, so that it is listed.
    let slots = Semaphore::new(name, permits.max(1));
    slots.validate()?;
    outside(engine, "set_permits", OTHERS_WAIT)?;
    engine.register(&Semaphore::new(name, permits)).await?;
    create_slots(engine, &slots, true).await?;
    tracing::info!(semaphore = name, permits, "number of permits set");
    slot_queue::notify_released(name, usize::try_from(permits).unwrap_or(usize::MAX), None);
    Ok(())
}

pub(crate) async fn purge(engine: &mut dyn Engine, unused_for: Duration) -> Result<usize, Error> {
    outside(engine, "purge_slots", OTHERS_WAIT)?;
    if unused_for > LONGEST_LEASE {
        return Err(Error::InvalidLease {
            requested: unused_for,
            reason: "no slot can be unused for longer than the longest lease",
        });
    }
    engine
        .purge_unused_slots(lease::up_to_micros(unused_for))
        .await
}

pub(crate) async fn raise_fences(engine: &mut dyn Engine, by: Duration) -> Result<i64, Error> {
    outside(engine, "raise_fences", OTHERS_WAIT)?;
    loop {
        match engine.raise_fence_floor(by).await? {
            RaiseOutcome::RaisedTo(fence) => {
                tracing::warn!(fence, "fences raised");
                return Ok(fence);
            }
            RaiseOutcome::TooLarge => return Err(Error::FencesTooLarge { requested: by }),
            RaiseOutcome::NoFenceFloor => engine.create_fence_floor().await?,
        }
    }
}

const OTHERS_WAIT: &str = "others would have to wait for its end";

pub(crate) async fn list_semaphores(
    engine: &mut dyn Engine,
    options: &ListOptions,
) -> Result<Vec<SemaphoreInfo>, Error> {
    let request = options.request(NameKind::Semaphore)?;
    let rows = engine.list_semaphores(&request).await?;
    let info = |row: SemaphoreRow| SemaphoreInfo {
        name: row.name,
        permits: row.permits.map(i32::unsigned_abs),
        slots: row.slots.map_or(0, i32::unsigned_abs),
        held: u32::try_from(row.held).unwrap_or(u32::MAX),
    };
    Ok(rows.into_iter().map(info).collect())
}

pub(crate) async fn list_held(
    engine: &mut dyn Engine,
    options: &ListOptions,
) -> Result<Vec<SlotInfo>, Error> {
    let rows = engine.list_held(&options.held_request()?).await?;
    let info = |(semaphore, row): (String, HeldRow)| SlotInfo {
        semaphore,
        number: row.number.unsigned_abs(),
        holder: row.holder,
        token: row
            .token
            .as_deref()
            .and_then(|token| Uuid::from_slice(token).ok()),
        fence: row.fence,
        acquired_at: time(row.acquired_us),
        expires_at: time(row.expires_us),
        remaining: Duration::from_micros(u64::try_from(row.remaining_us).unwrap_or(0)),
        // Without a token it was to a former holder.
        release_requested_at: (row.token.is_some() && row.release_requested_us > 0)
            .then(|| time(row.release_requested_us)),
        data: row.data.filter(|_| row.token.is_some()),
    };
    Ok(rows.into_iter().map(info).collect())
}

/// The limits of leases keep the time within chrono's range.
fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

pub(crate) async fn list_sequences(
    engine: &mut dyn Engine,
    options: &ListOptions,
) -> Result<Vec<SequenceInfo>, Error> {
    let request = options.request(NameKind::Sequence)?;
    let rows = engine.list_sequences(&request).await?;
    let info = |(name, key, last_number): (String, String, i64)| SequenceInfo {
        name,
        key: (!key.is_empty()).then_some(key),
        last_number,
    };
    Ok(rows.into_iter().map(info).collect())
}
