//! Acquires slots with connections of a pool, and holds none between attempts.

use diesel::r2d2::R2D2Connection;

use crate::engine::HasEngine;
use crate::poll::poll_once;
use crate::pooled::{Borrowed, Connections};
use crate::semaphore::attempts::{NO_WAIT, RetryBudget, acquire, begin_with_slot};
use crate::semaphore::events::SlotRequest;
use crate::semaphore::holding;
use crate::semaphore::pace::{Holders, Pace};
use crate::semaphore::polling::{
    Target, begin_wait, join, leave_out, max_concurrent, notify_released, turn, wake,
};
use crate::stop::StopToken;
use crate::transaction::depth::depth;
use crate::transaction::run::roll_back;
use crate::waiting::{AtTheEnd, Waiting, repeat};
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait};

/// Leases a slot without waiting; `None` when none is free.
pub(super) fn try_lease<C: HasEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, |conn, waiting| {
        poll_once(lease_unless_stopped(
            conn, waiting, semaphore, lease, NO_WAIT,
        ))
    });
    match &outcome {
        Ok(Some((slot, _))) => request.record_granted(Some(slot.number)),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.map(|(slot, _)| slot))
}

/// Leases a slot within a time limit, or until `stop` is stopped.
pub(super) fn lease<C: HasEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
    pace: Pace,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = poll(
        connections,
        stop,
        semaphore,
        wait,
        Some(pace),
        |conn, waiting, budget| {
            poll_once(lease_unless_stopped(
                conn, waiting, semaphore, lease, budget,
            ))
        },
    );
    request.record_outcome(outcome.map(|(slot, _)| slot))
}

/// Begins a transaction that holds a slot, without waiting. Returns its connection, or `None` when no slot is free.
pub(crate) fn try_begin<C: HasEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
) -> Result<Option<Borrowed<C>>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, |conn, waiting| {
        poll_once(begin_unless_stopped(conn, waiting, semaphore, NO_WAIT))
    });
    match &outcome {
        Ok(Some(_)) => request.record_granted(None),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.map(|((), conn)| conn))
}

/// Begins a transaction that holds a slot within a time limit, or until `stop` is stopped, and returns its connection.
pub(crate) fn begin<C: HasEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
) -> Result<Borrowed<C>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = poll(
        connections,
        stop,
        semaphore,
        wait,
        None,
        |conn, waiting, budget| poll_once(begin_unless_stopped(conn, waiting, semaphore, budget)),
    );
    match &outcome {
        Ok(_) => request.record_granted(None),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.1)
}

/// Leases a slot, and releases it if the wait was stopped meanwhile.
async fn lease_unless_stopped<C: HasEngine>(
    conn: &mut C,
    waiting: &Waiting,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    let slot = acquire(conn, semaphore, lease, budget).await?;
    if let (Some(slot), Err(stopped)) = (&slot, waiting.check_stop()) {
        if let Err(error) = holding::release_unused(conn, slot).await {
            tracing::warn!(semaphore = semaphore.name(), %error, "slot not released: its lease ends");
        }
        return Err(stopped);
    }
    Ok(slot)
}

/// Begins a transaction that holds a slot, and rolls it back if the wait was stopped meanwhile. `None` when no slot is
/// free.
async fn begin_unless_stopped<C: HasEngine>(
    conn: &mut C,
    waiting: &Waiting,
    semaphore: &Semaphore,
    budget: RetryBudget,
) -> Result<Option<()>, Error> {
    if !begin_with_slot(conn, semaphore, budget).await? {
        return Ok(None);
    }
    if let Err(stopped) = waiting.check_stop() {
        roll_back(conn).await;
        if depth(conn)? == 0 {
            notify_released(semaphore.name(), 1, None);
        }
        return Err(stopped);
    }
    Ok(Some(()))
}

/// Makes one attempt when its turn has come, and returns its result with the connection.
fn once<C: R2D2Connection + 'static, T>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    attempt: impl FnOnce(&mut C, &Waiting) -> Result<Option<T>, Error>,
) -> Result<Option<(T, Borrowed<C>)>, Error> {
    let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(stop);
    waiting.check_stop()?;
    let _turn = turn(
        semaphore,
        connections.max_concurrent(max_concurrent(semaphore)),
    );
    let mut conn = connections.borrow(&waiting)?;
    let result = attempt(&mut conn, &waiting)?;
    Ok(result.map(|result| (result, conn)))
}

/// Repeats `attempt` until it returns a value, the time is up or the wait is stopped, in turn with other waiters of this
/// process. Returns the value with the connection of the attempt.
fn poll<C: HasEngine + R2D2Connection + 'static, T>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
    pace: Option<Pace>,
    mut attempt: impl FnMut(&mut C, &Waiting, RetryBudget) -> Result<Option<T>, Error>,
) -> Result<(T, Borrowed<C>), Error> {
    let waiting = &begin_wait(semaphore, wait)?.stopped_by(stop);
    let ticket = if wait == Wait::No {
        leave_out(semaphore)
    } else {
        let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
        join(semaphore, max_concurrent, pace).serial()
    };
    let mut holders = Holders::new(pace);
    let number = waiting.stop().zip(ticket.number());
    let _registration = number.map(|(stop, number)| {
        let name = semaphore.name().to_owned();
        stop.on_stop(move || wake(&name, number))
    });
    repeat(
        waiting,
        ticket,
        AtTheEnd::GiveUp,
        connections,
        |connections| Ok(Target::of(connections.database_id(waiting)?, semaphore)),
        |connections, turn| {
            let mut conn = connections.borrow(waiting)?;
            if poll_once(holders.hold_all(&mut *conn, semaphore, waiting, turn))? {
                connections.refresh_identity(&mut conn)?;
                return Ok(None);
            }
            if let Some(value) = attempt(&mut conn, waiting, RetryBudget::of(waiting, turn))? {
                return Ok(Some((value, conn)));
            }
            connections.refresh_identity(&mut conn)?;
            Ok(None)
        },
    )
}
