//! Creates the tables, creates and removes slots, releases them by force, and raises fences.

use std::borrow::Borrow;
use std::time::Duration;

use crate::acts::slot_attempts::create_slots;
use crate::acts::slot_queue;
use crate::acts::transaction::{assert_open_if_in_transaction, outside};
use crate::engine::Engine;
use crate::engine::slots::RaiseOutcome;
use crate::error::NameKind;
use crate::error::limits::LONGEST_LEASE;
use crate::values::lease;
use crate::{Error, Semaphore};

pub(crate) async fn migrate(engine: &mut dyn Engine) -> Result<Vec<String>, Error> {
    outside(engine, "migrate", "MySQL and MariaDB would commit it")?;
    engine.migrate().await
}

pub(crate) async fn force_release_all(engine: &mut dyn Engine, name: &str) -> Result<usize, Error> {
    NameKind::Semaphore.check(name)?;
    assert_open_if_in_transaction(engine).await?;
    let released = engine.release_all(name).await?;
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
        create_slots(engine, semaphore.borrow(), true).await?;
        engine.register(semaphore.borrow()).await?;
    }
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
