//! Waits for object locks without a connection, and runs the transactions that hold them, also those of `run_transaction` without
//! locks. Their end wakes the next waiter.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::closures::{RepeatedWork, Work};
use crate::acts::events::{self, Period};
use crate::acts::object_lock;
use crate::acts::retries::{self, after_attempt};
use crate::acts::transaction::{self, commit_or_rollback, roll_back_stopped, run_begun};
use crate::acts::waiting::{Answer, Attempts, Waiting};
use crate::engine::{Engine, HasEngine};
use crate::error::limits::LONGEST_WAIT;
use crate::link::activity::{Active, Activity};
use crate::link::depth::depth;
use crate::pools::connections::{Borrowed, Connections};
use crate::queue::{MAX_POLL_INTERVAL, Options, Queues};
use crate::rt::caught;
use crate::rt::stop_token::{StopToken, stop_or_end};
use crate::values::lock_request::{LockOutcome, Request};
use crate::values::retry_policy::{Retries, RetryReason};
use crate::{
    Error, LockRequest, ObjectId, Pool, RequestSubject, TransactionError, TransactionOptions,
    TransactionRequest, Wait,
};

pub(crate) struct Shared<P> {
    pub(crate) connections: Connections<P>,
    /// The requests that wait for object locks, by the objects.
    queues: Arc<Queues>,
    /// The calls, and what dropped futures have left.
    pub(crate) activity: Activity,
}

impl<P> Shared<P> {
    pub(crate) fn new(pool: P) -> Self {
        Self {
            connections: Connections::new(pool),
            queues: Queues::new(true),
            activity: Activity::default(),
        }
    }
}

pub(crate) struct ObjectWait {
    request: Request,
    waiting: Waiting,
    /// For which it queues: nothing where one lock is for all objects.
    ids: Arc<[ObjectId]>,
    /// Whether an open transaction, as of a test, is refused, and not continued in a savepoint.
    outermost: bool,
}

impl ObjectWait {
    /// The wait begins now. Without a limit of its own it lasts as long as the pool waits for a connection.
    pub(crate) fn new<P: Pool>(
        shared: &Shared<P>,
        stop: Option<&StopToken>,
        request: LockRequest,
    ) -> Result<Self, Error> {
        let limit = shared.connections.pool().timeout().min(LONGEST_WAIT);
        let request = request.or_wait(Wait::AtMost(limit));
        Self::of::<P>(stop, Request::new(request)?)
    }

    pub(crate) fn of<P: Pool>(stop: Option<&StopToken>, request: Request) -> Result<Self, Error> {
        Ok(Self {
            waiting: Waiting::new(request.wait, request.resource())?.stopped_by(stop),
            ids: if P::Connection::IN_PROCESS {
                Arc::default()
            } else {
                Arc::clone(&request.ids)
            },
            request,
            outermost: false,
        })
    }

    pub(crate) fn subject(&self) -> RequestSubject {
        RequestSubject::Objects {
            ids: Arc::clone(&self.request.ids),
            shared: Arc::clone(&self.request.shared),
        }
    }
}

pub(crate) struct HeldObjects<'a, P: Pool> {
    conn: Borrowed<P>,
    wait: &'a ObjectWait,
    /// Dropped after the connection, so that the next request finds it in the pool.
    _notify: NotifyOnDrop<'a>,
}

/// Waits for the locks, and begins a transaction that holds them. The caller runs the work, without an await in between.
pub(crate) async fn begin<'a, P: Pool>(
    shared: &'a Shared<P>,
    wait: &'a ObjectWait,
    active: &Active,
) -> Result<HeldObjects<'a, P>, Error> {
    let acquired = acquire(shared, wait).await;
    let outcome = acquired.as_ref().map(|_| LockOutcome::Acquired);
    events::record_locks(&wait.request, outcome);
    let conn = acquired?;
    active.set_inside(true);
    Ok(HeldObjects {
        conn,
        wait,
        _notify: NotifyOnDrop {
            queues: &shared.queues,
            ids: &wait.ids,
        },
    })
}

async fn acquire<P: Pool>(shared: &Shared<P>, wait: &ObjectWait) -> Result<Borrowed<P>, Error> {
    let _waiting = Period::wait_for_locks(&wait.request);
    let ObjectWait {
        request,
        waiting,
        ids,
        outermost,
    } = wait;
    let mut attempts = Attempts::borrowing(waiting, shared.queues.place(queue_of(ids)), None);
    attempts.shares = request.exclusive().next().is_none();
    if request.wait != Wait::No {
        let options = Options {
            connected: false,
            longest_pause: MAX_POLL_INTERVAL,
        };
        attempts.place.join("", 1, options);
    }
    let request = request.attempt();
    loop {
        attempts.next().await?;
        let answer = attempt(&shared.connections, waiting, &request, *outermost).await;
        if let Some(conn) = attempts.after(answer)? {
            return Ok(conn);
        }
    }
}

/// Attempts to begin a transaction that holds the locks, with a connection that is borrowed for it.
async fn attempt<P: Pool>(
    connections: &Connections<P>,
    waiting: &Waiting,
    request: &Request,
    outermost: bool,
) -> Result<Answer<Borrowed<P>>, Error> {
    let mut conn = connections.borrow(waiting).await?;
    let mut engine = conn.engine()?;
    if outermost {
        transaction::outermost(&mut *engine)?;
    }
    // Readers that overlap would keep it waiting forever.
    let wants = waiting.wait != Wait::No && waiting.elapsed() >= MAX_POLL_INTERVAL;
    let begun = Box::pin(async move {
        unless_dropped!(borrowed &mut *engine, |engine| begin_or_want(engine, request, wants))
    });
    match waiting.answer(P::Connection::IN_PROCESS, begun).await {
        Some(Ok(LockOutcome::Acquired)) => Ok(Answer::Break(conn)),
        Some(Ok(LockOutcome::Unavailable)) => Ok(Answer::Continue(None)),
        // A limit of the session, or a deadlock with another attempt, has ended the attempt and not the wait.
        Some(Err(error)) if waiting.outlasts(&error) => Ok(Answer::Continue(None)),
        Some(Err(error)) => Err(error),
        // Not a refusal, which would count for the others of the queue too.
        None => Err(waiting.timed_out(None)),
    }
}

/// Begins a transaction with the locks. If they are held, and the request has waited, has new readers make room.
async fn begin_or_want(
    engine: &mut dyn Engine,
    request: &Request,
    wants: bool,
) -> Result<LockOutcome, Error> {
    let outcome = object_lock::begin(engine, request).await?;
    let is_writer = request.exclusive().next().is_some();
    if !outcome.is_acquired() && wants && is_writer && depth(engine.status())? == 0 {
        engine.want_exclusive(request).await?;
    }
    Ok(outcome)
}

impl<P: Pool> HeldObjects<'_, P> {
    pub(crate) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>>,
        E: From<Error>,
    {
        self.check_stop().await?;
        let request = &self.wait.request;
        let ended = events::locks_held(request);
        commit_or_rollback(&mut *self.conn, Some(request), work, ended).await
    }

    /// [`run`](Self::run) as one of the attempts of a transaction.
    pub(crate) async fn attempt<T, E, F, Via>(
        &mut self,
        options: &TransactionOptions,
        retries: &mut Retries,
        work: F,
    ) -> Result<ControlFlow<T, Duration>, E>
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>>,
        E: TransactionError<Via>,
    {
        self.check_stop().await?;
        let request = &self.wait.request;
        let ended = events::locks_held(request);
        let mut guard = CancelGuard::after_begin(&mut *self.conn)?;
        let conn = &mut *guard;
        let attempt = async move {
            let ran = run_begun(conn, Some(request), work, ended).await;
            after_attempt(conn, options, retries, ran).await
        };
        let outcome = caught(attempt).await;
        guard.finish_with(outcome)
    }

    /// Ends the transaction after a stop.
    async fn check_stop(&mut self) -> Result<(), Error> {
        let stopped = self.wait.waiting.check_stop();
        if stopped.is_err() {
            let ended = events::locks_held(&self.wait.request);
            roll_back_stopped(&mut *self.conn.engine()?).await;
            ended();
        }
        stopped
    }
}

/// Runs the closure in a transaction, and again after an error that a retry may cure: with another connection after that was
/// lost. Borrows no connection between attempts.
pub(crate) async fn run_attempts<P, T, E, F, Via>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    transaction: TransactionRequest,
    mut work: F,
) -> Result<T, E>
where
    P: Pool,
    for<'r> F: RepeatedWork<&'r mut P::Connection, Result<T, E>>,
    E: TransactionError<Via>,
{
    let mut retries = Retries::new(transaction.options.retry, true)?;
    let limit = retries.max_elapsed().min(LONGEST_WAIT);
    let waiting = Waiting::new(Wait::AtMost(limit), "a connection".to_owned())?.stopped_by(stop);
    let mut is_lost = false;
    let mut active = None;
    loop {
        let wait = match transaction.lock.clone() {
            None => None,
            Some(lock) => Some(ObjectWait {
                outermost: true,
                ..ObjectWait::new(shared, stop, lock)?
            }),
        };
        let active: &Active = active.get_or_insert_with(|| {
            let locks = wait.as_ref().map(ObjectWait::subject);
            let subject = locks.unwrap_or(RequestSubject::Transaction);
            shared.activity.begin(Some(subject))
        });
        let attempted = match &wait {
            None => match shared.connections.borrow(&waiting).await {
                Ok(mut conn) => {
                    let attempt = unless_dropped!(&mut *conn, |conn| retries::attempt(
                        conn,
                        &transaction,
                        &mut retries,
                        &mut work,
                        || active.set_inside(true)
                    ));
                    attempt.map(|attempt| Ok((attempt, conn.is_lost())))?
                }
                Err(error) => Err(error),
            },
            Some(wait) => match begin(shared, wait, active).await {
                Ok(mut held) => {
                    let attempt = held.attempt(&transaction.options, &mut retries, &mut work);
                    attempt
                        .await
                        .map(|attempt| Ok((attempt, held.conn.is_lost())))?
                }
                Err(error) => Err(error),
            },
        };
        let pause = match attempted {
            Ok((ControlFlow::Break(value), _)) => return Ok(value),
            Ok((ControlFlow::Continue(pause), lost)) => {
                is_lost = lost;
                pause
            }
            Err(error) => {
                // A fail-over may take longer than the pool, or a wait behind others for a lock, waits for a connection.
                let reason = if is_lost && error.waited_for_connection() {
                    Some(RetryReason::ConnectionLost)
                } else {
                    let reason = RetryReason::from_crate_error(&error);
                    reason.filter(|reason| retries.applies_to(*reason))
                };
                is_lost |= matches!(
                    reason,
                    Some(RetryReason::ConnectionLost | RetryReason::ReadOnly)
                );
                reason
                    .and_then(|reason| retries::next_pause(&mut retries, reason))
                    .ok_or(error)?
            }
        };
        active.set_inside(false);
        stop_or_end(stop, Instant::now().checked_add(pause)).await;
    }
}

/// The name of the queue for these objects together. Their texts are quoted, so that others have another name.
fn queue_of(ids: &[ObjectId]) -> String {
    format!("{ids:?}")
}

struct NotifyOnDrop<'a> {
    queues: &'a Arc<Queues>,
    ids: &'a [ObjectId],
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        // Without a waiter the names of the queues, thousands at most, are not needed. A new request queries the database first.
        if self.queues.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.queues.notify_released(&queue_of(self.ids), 1, None);
        // Requests for one of these objects wait in a queue of their own.
        if self.ids.len() > 1 {
            for id in self.ids.chunks(1) {
                self.queues.notify_released(&queue_of(id), 1, None);
            }
        }
    }
}

#[cfg(all(test, feature = "r2d2", feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::r2d2::{ConnectionManager, Pool};

    use super::*;
    use crate::StopToken;
    use crate::acts::closures::blocking;
    use crate::link::depth::mark_broken;
    use crate::rt::block_on;

    #[test]
    fn stop_takes_precedence_over_the_loss_of_the_connection() {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        crate::migrate(&mut pool.get().expect("a connection")).expect("no tables yet");
        let shared = Shared::new(pool);
        let stop = StopToken::new();
        let request = LockRequest::new(ObjectId::new("Document", "1"));
        let wait = ObjectWait::new(&shared, Some(&stop), request).expect("a valid request");
        let mut held = block_on(begin(
            &shared,
            &wait,
            &shared.activity.begin(Some(wait.subject())),
        ))
        .expect("it is free");
        mark_broken(held.conn.engine().expect("an engine").status());
        stop.stop();
        let mut work = Some(|_: &mut SqliteConnection| -> Result<(), Error> { panic!("it runs") });
        let outcome = block_on(held.run(blocking(&mut work)));
        assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
    }
}
