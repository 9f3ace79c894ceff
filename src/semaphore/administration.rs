//! Creates and removes slots, releases them by force, and raises fences.

use std::borrow::Borrow;
use std::time::Duration;

use crate::engine::HasEngine;
use crate::name::{self, NameKind};
use crate::semaphore::backend::{RaiseOutcome, SemaphoreBackend};
use crate::semaphore::holding::assert_open_if_in_transaction;
use crate::semaphore::{lease, polling};
use crate::{Error, LeaseOptions, Semaphore, transaction::depth};

pub(super) async fn force_release_all<C: HasEngine>(
    conn: &mut C,
    name: &str,
) -> Result<usize, Error> {
    name::validate(NameKind::Semaphore, name)?;
    assert_open_if_in_transaction(conn).await?;
    let released = C::LockEngine::release_all(conn, name).await?;
    polling::notify_released(name, released, None);
    tracing::warn!(semaphore = name, released, "all slots released by force");
    Ok(released)
}

pub(super) async fn register<C: HasEngine>(
    conn: &mut C,
    semaphores: &[impl Borrow<Semaphore>],
) -> Result<(), Error> {
    for semaphore in semaphores {
        semaphore.borrow().validate()?;
    }
    outside(conn, "register_semaphores")?;
    for semaphore in semaphores {
        C::LockEngine::create_slots(conn, semaphore.borrow(), true).await?;
        C::LockEngine::register(conn, semaphore.borrow()).await?;
    }
    Ok(())
}

pub(super) async fn purge<C: HasEngine>(
    conn: &mut C,
    unused_for: Duration,
) -> Result<usize, Error> {
    outside(conn, "purge_slots")?;
    if unused_for > LeaseOptions::LONGEST {
        return Err(Error::InvalidLease {
            requested: unused_for,
            reason: "no slot can be unused for longer than the longest lease",
        });
    }
    C::LockEngine::purge_unused_slots(conn, lease::up_to_micros(unused_for)).await
}

pub(super) async fn raise_fences<C: HasEngine>(conn: &mut C, by: Duration) -> Result<i64, Error> {
    outside(conn, "raise_fences")?;
    loop {
        match C::LockEngine::raise_fence_floor(conn, by).await? {
            RaiseOutcome::RaisedTo(fence) => {
                tracing::warn!(fence, "fences raised");
                return Ok(fence);
            }
            RaiseOutcome::TooLarge => return Err(Error::FencesTooLarge { requested: by }),
            RaiseOutcome::NoFenceFloor => C::LockEngine::create_fence_floor(conn).await?,
        }
    }
}

fn outside<C: HasEngine>(conn: &mut C, method: &'static str) -> Result<(), Error> {
    if depth::depth(conn)? == 0 {
        Ok(())
    } else {
        Err(Error::AlreadyInTransaction {
            method,
            reason: "others would have to wait for its end",
        })
    }
}
