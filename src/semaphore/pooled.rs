//! Acquires slots with connections of a pool, and holds none between attempts.

use diesel::r2d2::R2D2Connection;

use crate::engine::HasBlockingEngine;
use crate::pooled::{Borrowed, Connections};
use crate::semaphore::acquisition::{Acquire, Hold, Lease};
use crate::semaphore::attempts::{NO_WAIT, RetryBudget};
use crate::semaphore::events::SlotRequest;
use crate::semaphore::pace::{Holders, Pace};
use crate::semaphore::polling::{Target, begin_wait, join, leave_out, max_concurrent, turn, wake};
use crate::stop::StopToken;
use crate::waiting::{Answer, AtTheEnd, Attempt, RepeatedAttempt, Waiting, repeat};
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait};

/// What was granted, and the connection of the attempt.
type Granted<C, A> = (<A as Acquire<C>>::Granted, Borrowed<C>);

/// Leases a slot without waiting; `None` when none is free.
pub(super) fn try_lease<C: HasBlockingEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, Lease(lease));
    match &outcome {
        Ok(Some((slot, _))) => request.record_granted(Some(slot.number)),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.map(|(slot, _)| slot))
}

/// Leases a slot within a time limit, or until `stop` is stopped.
pub(super) fn lease<C: HasBlockingEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
    pace: Pace,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let pace = Some(pace);
    let outcome = poll(connections, stop, semaphore, wait, pace, Lease(lease));
    request.record_outcome(outcome.map(|(slot, _)| slot))
}

/// Begins a transaction that holds a slot, without waiting. Returns its connection, or `None` when no slot is free.
pub(crate) fn try_begin<C: HasBlockingEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
) -> Result<Option<Borrowed<C>>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, Hold);
    match &outcome {
        Ok(Some(_)) => request.record_granted(None),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.map(|((), conn)| conn))
}

/// Begins a transaction that holds a slot within a time limit, or until `stop` is stopped, and returns its connection.
pub(crate) fn begin<C: HasBlockingEngine + R2D2Connection + 'static>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
) -> Result<Borrowed<C>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = poll(connections, stop, semaphore, wait, None, Hold);
    match &outcome {
        Ok(_) => request.record_granted(None),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.1)
}

/// Makes one attempt when its turn has come, and returns its result with the connection.
fn once<C: HasBlockingEngine + R2D2Connection + 'static, A: Acquire<C>>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    mut acquire: A,
) -> Result<Option<Granted<C, A>>, Error> {
    let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(stop);
    waiting.check_stop()?;
    let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
    let _turn = C::block_on(turn::<C>(semaphore, max_concurrent));
    let mut conn = connections.borrow(&waiting)?;
    let granted = C::block_on(acquire.attempt(&mut conn, semaphore, &waiting, NO_WAIT))?;
    Ok(granted.map(|granted| (granted, conn)))
}

/// Attempts to acquire a slot until it is granted, the time is up or the wait is stopped, in turn with other waiters of this
/// process. Returns what was granted with the connection of the attempt.
fn poll<C: HasBlockingEngine + R2D2Connection + 'static, A: Acquire<C>>(
    connections: &Connections<C>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
    pace: Option<Pace>,
    acquire: A,
) -> Result<Granted<C, A>, Error> {
    let waiting = &begin_wait(semaphore, wait)?.stopped_by(stop);
    let ticket = if wait == Wait::No {
        leave_out(semaphore)
    } else {
        let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
        join(semaphore, max_concurrent, pace).serial()
    };
    let number = waiting.stop().zip(ticket.number());
    let _registration = number.map(|(stop, number)| {
        let name = semaphore.name().to_owned();
        stop.on_stop(move || wake(&name, number))
    });
    let attempt = PooledAttempt {
        connections,
        semaphore,
        waiting,
        holders: Holders::new(pace),
        acquire,
    };
    C::block_on(repeat(waiting, ticket, AtTheEnd::GiveUp, attempt))
}

/// An attempt with a connection that is borrowed for it.
struct PooledAttempt<'a, C: R2D2Connection + 'static, A> {
    connections: &'a Connections<C>,
    semaphore: &'a Semaphore,
    waiting: &'a Waiting,
    holders: Holders,
    acquire: A,
}

impl<C, A> RepeatedAttempt for PooledAttempt<'_, C, A>
where
    C: HasBlockingEngine + R2D2Connection + 'static,
    A: Acquire<C>,
{
    type Timer = C::LockTimer;
    type Target = Target;
    type Value = Granted<C, A>;

    async fn target(&mut self) -> Result<Option<Target>, Error> {
        let database = self.connections.database_id(self.waiting)?;
        Ok(Target::of(database, self.semaphore))
    }

    async fn run(&mut self, attempt: Attempt) -> Result<Answer<Self::Value>, Error> {
        let Self {
            connections,
            semaphore,
            waiting,
            holders,
            acquire,
        } = self;
        let mut conn = connections.borrow(waiting)?;
        let look = holders.hold_all(&mut *conn, semaphore, waiting, attempt);
        let pause = look.await?;
        if pause.is_none() {
            let budget = RetryBudget::of(waiting, attempt);
            let granted = acquire.attempt(&mut conn, semaphore, waiting, budget);
            if let Some(granted) = granted.await? {
                return Ok(Answer::Granted((granted, conn)));
            }
        }
        connections.refresh_identity(&mut conn)?;
        Ok(Answer::Refused { pause })
    }
}
