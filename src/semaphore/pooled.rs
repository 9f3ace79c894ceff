//! Acquires slots with connections of a pool, and holds none between attempts.

use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::pooled::{Borrowed, Connections, discard_if_unusable};
use crate::semaphore::acquisition::{Acquire, Hold, Lease};
use crate::semaphore::attempts::{NO_WAIT, RetryBudget};
use crate::semaphore::events::SlotRequest;
use crate::semaphore::pace::{Holders, Pace};
use crate::semaphore::polling::{
    Target, begin_wait, join, join_target, leave_out, max_concurrent, turn, wake,
};
use crate::stop::StopToken;
use crate::waiting::{Answer, AtTheEnd, Attempt, RepeatedAttempt, Waiting, repeat};
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait};

/// What was granted, and the connection of the attempt.
type Granted<L, A> = (
    <A as Acquire<<L as Lender>::Connection>>::Granted,
    Borrowed<L>,
);

/// Leases a slot without waiting; `None` when none is free. The slot is released if the future is dropped.
#[cfg_attr(not(feature = "r2d2"), allow(dead_code, reason = "for renewers"))]
pub(super) async fn try_lease<L: Lender>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, Lease(lease)).await;
    match &outcome {
        Ok(Some((slot, _))) => request.record_granted(Some(slot.number)),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.map(|(slot, _)| slot))
}

/// Leases a slot within a time limit, or until `stop` is stopped. The slot is released if the future is dropped.
#[cfg_attr(not(feature = "r2d2"), allow(dead_code, reason = "for renewers"))]
pub(super) async fn lease<L: Lender>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
    pace: Pace,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let pace = Some(pace);
    let outcome = poll(connections, stop, semaphore, wait, pace, Lease(lease)).await;
    request.record_outcome(outcome.map(|(slot, _)| slot))
}

/// Begins a transaction that holds a slot, without waiting. Returns its connection, or `None` when no slot is free. The
/// caller guards the open transaction, without an await in between.
pub(crate) async fn try_begin<L: Lender>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
) -> Result<Option<Borrowed<L>>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, Hold).await;
    match &outcome {
        Ok(Some(_)) => request.record_granted(None),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.map(|((), conn)| conn))
}

/// Begins a transaction that holds a slot within a time limit, or until `stop` is stopped, and returns its connection. The
/// caller guards the open transaction, without an await in between.
pub(crate) async fn begin<L: Lender>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
) -> Result<Borrowed<L>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = poll(connections, stop, semaphore, wait, None, Hold).await;
    match &outcome {
        Ok(_) => request.record_granted(None),
        Err(error) => request.record_error(error),
    }
    Ok(outcome?.1)
}

/// Makes one attempt when its turn has come, and returns its result with the connection.
async fn once<L: Lender, A: Acquire<L::Connection>>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    mut acquire: A,
) -> Result<Option<Granted<L, A>>, Error> {
    let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(stop);
    waiting.check_stop()?;
    let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
    let _turn = turn::<L::Connection>(semaphore, max_concurrent).await;
    let mut conn = connections.borrow(&waiting).await?;
    if A::LEASES {
        conn.begin_to_lease();
    }
    let granted = acquire.attempt(&mut *conn, semaphore, &waiting, NO_WAIT);
    let granted = granted.await;
    let granted = discard_if_unusable(&mut *conn, granted)?;
    Ok(granted.map(|granted| (granted, conn)))
}

/// Attempts to acquire a slot until it is granted, the time is up or the wait is stopped, in turn with other waiters of this
/// process. Returns what was granted with the connection of the attempt.
async fn poll<L: Lender, A: Acquire<L::Connection>>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
    pace: Option<Pace>,
    acquire: A,
) -> Result<Granted<L, A>, Error> {
    let waiting = &begin_wait(semaphore, wait)?.stopped_by(stop);
    let ticket = if wait == Wait::No {
        leave_out(semaphore)
    } else {
        let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
        let ticket = match Target::of(connections.known_database(), semaphore) {
            Some(target) => join_target(semaphore, target, max_concurrent, pace),
            None => join(semaphore, max_concurrent, pace),
        };
        ticket.serial()
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
    repeat(waiting, ticket, AtTheEnd::GiveUp, attempt).await
}

/// An attempt with a connection that is borrowed for it.
struct PooledAttempt<'a, L, A> {
    connections: &'a Connections<L>,
    semaphore: &'a Semaphore,
    waiting: &'a Waiting,
    holders: Holders,
    acquire: A,
}

impl<L: Lender, A: Acquire<L::Connection>> RepeatedAttempt for PooledAttempt<'_, L, A> {
    type Timer = <L::Connection as HasEngine>::LockTimer;
    type Target = Target;
    type Value = Granted<L, A>;

    async fn target(&mut self) -> Result<Option<Target>, Error> {
        let reading = Box::pin(self.connections.database_id(self.waiting));
        match self.waiting.answer::<L::Connection, _>(reading).await {
            Some(database) => Ok(Target::of(database?, self.semaphore)),
            // The time is up. It asks once, on its own.
            None => Ok(None),
        }
    }

    fn target_comes(&self) -> bool {
        self.connections.is_being_identified()
    }

    async fn run(&mut self, attempt: Attempt) -> Result<Answer<Self::Value>, Error> {
        let waiting = self.waiting;
        let conn = self.connections.borrow(waiting).await?;
        let attempt = Box::pin(self.attempt(conn, attempt));
        let answer = waiting.answer::<L::Connection, _>(attempt).await;
        answer.unwrap_or(Ok(Answer::Refused { pause: None }))
    }
}

impl<L: Lender, A: Acquire<L::Connection>> PooledAttempt<'_, L, A> {
    async fn attempt(
        &mut self,
        mut conn: Borrowed<L>,
        attempt: Attempt,
    ) -> Result<Answer<Granted<L, A>>, Error> {
        let Self {
            connections,
            semaphore,
            waiting,
            holders,
            acquire,
        } = self;
        let look = holders.look(&mut *conn, semaphore, waiting, attempt);
        let pause = look.await;
        let pause = discard_if_unusable(&mut *conn, pause)?;
        if pause.is_none() {
            let budget = RetryBudget::of(waiting, attempt);
            if A::LEASES {
                conn.begin_to_lease();
            }
            let granted = acquire.attempt(&mut *conn, semaphore, waiting, budget);
            let granted = granted.await;
            match discard_if_unusable(&mut *conn, granted) {
                Ok(Some(granted)) => return Ok(Answer::Granted((granted, conn))),
                Ok(None) => {}
                Err(error) => {
                    if waiting.outlasts(&error) {
                        connections.refresh_identity(&mut *conn).await?;
                    }
                    return Err(error);
                }
            }
        }
        connections.refresh_identity(&mut *conn).await?;
        Ok(Answer::Refused { pause })
    }
}
