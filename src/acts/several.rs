//! Acquires several permits, all or none. A request leases one slot after the other and keeps them between its attempts, by short
//! leases: so it gets its permits although others never leave as many free at once. Only one request of a semaphore keeps slots at a
//! time, which has the turn, or two might wait for each other. The turn is the slot of a semaphore of its own.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::slot::{release_batch, release_unused};
use crate::acts::slot_attempts::{MAX_ATTEMPTS, RetryBudget, acquire};
use crate::acts::slot_queue::notify_released;
use crate::acts::transaction::outside;
use crate::acts::waiting::{Answer, Waiting};
use crate::engine::Engine;
use crate::engine::ending::roll_back;
use crate::engine::slots::{RegisteredPermits, ReleaseKind};
use crate::error::limits::{MAX_PERMITS, MAX_PERMITS_AT_ONCE};
use crate::link::depth;
use crate::rt::{self, backoff, caught};
use crate::values::lease::{self, RenewalRequest};
use crate::{Error, IsolationLevel, LeaseOptions, ObjectId, Semaphore, Slot, Wait};

/// The leases of what a request keeps. Others wait so long when its process dies.
const KEPT: Duration = Duration::from_secs(5);

/// The leases of slots that a transaction holds, from its COMMIT on: longer than those that it may find.
const HELD: Duration = Duration::from_secs(10);

/// What is kept is renewed when so much of a lease has passed.
const RENEWED_AFTER: Duration = Duration::from_secs(1);

/// The part of the time without another permit that a pause takes; the shortest pause; and the longest one of a request that keeps
/// something, which is one on all servers, and of others.
const PAUSE_DIVISOR: u32 = 10;
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE_KEEPING: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How long an attempt continues after the end of the wait.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);

/// How often a request that does not wait asks for the turn. Another such request has it for a moment.
const TURN_ATTEMPTS: u32 = 5;
const TURN_PAUSE: Duration = Duration::from_millis(5);

/// A request for several permits.
pub(crate) struct Several<'a> {
    method: &'static str,
    semaphore: &'a Semaphore,
    permits: usize,
    /// The lease that is requested. `None`: a transaction is to hold the slots.
    pub(crate) lease: Option<Duration>,
    kept_by: LeaseOptions,
    turn: Semaphore,
    kept: Kept,
}

struct Kept {
    turn: Option<Slot>,
    slots: Vec<Slot>,
    /// When a permit was acquired last.
    gained: Instant,
}

impl Kept {
    fn rows(&self) -> impl Iterator<Item = &Slot> {
        self.turn.iter().chain(&self.slots)
    }
}

impl<'a> Several<'a> {
    /// The request for a lease; `None` if it is for one permit.
    pub(crate) fn leased(
        semaphore: &'a Semaphore,
        lease: &LeaseOptions,
    ) -> Result<Option<Self>, Error> {
        if lease.permits_at_once() == 1 {
            return Ok(None);
        }
        lease.check()?;
        let kept_by = lease.of_one_permit(KEPT);
        let several = Self::new("permits", semaphore, lease.permits_at_once(), kept_by)?;
        Ok(Some(Self {
            lease: Some(lease.duration()),
            ..several
        }))
    }

    /// The request for a transaction that holds the slots.
    pub(crate) fn of_transaction(semaphore: &'a Semaphore, permits: u32) -> Result<Self, Error> {
        Self::new("with_slots", semaphore, permits, LeaseOptions::new(KEPT))
    }

    fn new(
        method: &'static str,
        semaphore: &'a Semaphore,
        permits: u32,
        kept_by: LeaseOptions,
    ) -> Result<Self, Error> {
        semaphore.validate()?;
        let most = semaphore.permits().unwrap_or(MAX_PERMITS);
        let most = most.min(MAX_PERMITS_AT_ONCE);
        if !(1..=most).contains(&permits) {
            return Err(Error::InvalidPermitsAtOnce {
                semaphore: semaphore.name().to_owned(),
                requested: permits,
                most,
            });
        }
        let turn = ObjectId::hashed("diesel-locks turn", semaphore.name());
        Ok(Self {
            method,
            semaphore,
            permits: usize::try_from(permits).unwrap_or(usize::MAX),
            lease: None,
            kept_by,
            turn: Semaphore::new(turn.as_str(), 1),
            kept: Kept {
                turn: None,
                slots: Vec::new(),
                gained: Instant::now(),
            },
        })
    }

    /// Acquires what is free, and returns the slot when that is all. A request that waits keeps it until then, and another one
    /// releases it.
    pub(crate) async fn attempt(
        &mut self,
        engine: &mut dyn Engine,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Answer<Slot>, Error> {
        let reason =
            "a request that is refused would leave slots locked until the end of the transaction";
        outside(engine, self.method, reason)?;
        if self.collect(engine, waiting, budget).await?
            && let Some(slot) = self.complete(engine).await?
        {
            return Ok(Answer::Break(slot));
        }
        if waiting.wait == Wait::No {
            self.give_up(engine).await;
            return Ok(Answer::Continue(None));
        }
        Ok(Answer::Continue(Some(backoff::jittered(self.pause()))))
    }

    fn pause(&self) -> Duration {
        let longest = if self.keeps_any() {
            MAX_PAUSE_KEEPING
        } else {
            MAX_PAUSE
        };
        (self.kept.gained.elapsed() / PAUSE_DIVISOR).clamp(MIN_PAUSE, longest)
    }

    fn has_all(&self) -> bool {
        self.kept.slots.len() >= self.permits
    }

    /// Acquires the turn and then what is free. Returns whether that is all. It is kept also if the future is dropped.
    async fn collect(
        &mut self,
        engine: &mut dyn Engine,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<bool, Error> {
        if !self.are_registered(engine).await? {
            self.give_up(engine).await;
            return Ok(false);
        }
        if !self.renew_kept(engine).await? {
            return Ok(false);
        }
        if !self.has_all() && !self.take_turn(engine, waiting, budget).await? {
            return Ok(false);
        }
        let began = Instant::now();
        while !self.has_all() {
            waiting.check_stop()?;
            // A request that does not wait has no time limit: all may be free, and the connection slow.
            let is_late = waiting.wait != Wait::No && waiting.is_over();
            if is_late && began.elapsed() >= LONGEST_ATTEMPT {
                return Ok(false);
            }
            let token = Uuid::new_v4();
            let slot = acquire(engine, self.semaphore, &self.kept_by, token, budget).await?;
            let Some(slot) = slot else {
                return Ok(false);
            };
            self.kept.slots.push(slot);
            self.kept.gained = Instant::now();
            if !self.renew_kept(engine).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the database has registered so many permits. Otherwise nobody is to wait for those that this request would keep.
    async fn are_registered(&self, engine: &mut dyn Engine) -> Result<bool, Error> {
        if self.semaphore.permits().is_some() {
            return Ok(true);
        }
        let name = self.semaphore.name();
        let registered = unless_dropped!(&mut *engine, |engine| engine.registered_permits(name))?;
        Ok(match registered {
            RegisteredPermits::Number(permits) => {
                usize::try_from(permits).is_ok_and(|permits| permits >= self.permits)
            }
            RegisteredPermits::TableLocked => false,
            // The attempt finds that out.
            RegisteredPermits::Missing => true,
        })
    }

    async fn take_turn(
        &mut self,
        engine: &mut dyn Engine,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<bool, Error> {
        let budget = RetryBudget {
            preferred: None,
            ..budget
        };
        let mut attempts = 0;
        while self.kept.turn.is_none() {
            let token = Uuid::new_v4();
            self.kept.turn = acquire(engine, &self.turn, &self.kept_by, token, budget).await?;
            if self.kept.turn.is_some() {
                break;
            }
            attempts += 1;
            if waiting.wait != Wait::No || attempts >= TURN_ATTEMPTS {
                return Ok(false);
            }
            rt::pause(backoff::jittered(TURN_PAUSE)).await;
        }
        Ok(true)
    }

    /// Renews what is kept, if that is due, and forgets what is lost. If the turn is, and not all is kept, releases all, for which
    /// another request may wait that has the turn, and returns false.
    async fn renew_kept(&mut self, engine: &mut dyn Engine) -> Result<bool, Error> {
        let rows: Vec<Slot> = self.kept.rows().cloned().collect();
        let left = KEPT.saturating_sub(RENEWED_AFTER);
        if rows.iter().any(|row| row.remaining() <= left) {
            let (renewed, _) = unless_dropped!(&mut *engine, |engine| renew(engine, &rows, KEPT))?;
            let of = |row: Slot| renewed.iter().find(|it| it.token == row.token).cloned();
            let kept = &mut self.kept;
            kept.turn = kept.turn.take().and_then(of);
            kept.slots = kept.slots.drain(..).filter_map(of).collect();
        }
        let may_continue = self.kept.turn.is_some() || self.kept.slots.is_empty() || self.has_all();
        if !may_continue {
            self.give_up(engine).await;
        }
        Ok(may_continue)
    }

    /// Makes one slot of those that are kept, which are all: with the lease that is requested, or in a transaction that it begins.
    /// `None` if another attempt is to follow.
    async fn complete(&mut self, engine: &mut dyn Engine) -> Result<Option<Slot>, Error> {
        if let Some(turn) = &self.kept.turn {
            unless_dropped!(&mut *engine, |engine| release_unused(engine, turn))?;
            self.kept.turn = None;
            // Those that wait for the turn are in the queue of the semaphore.
            notify_released(self.semaphore.name(), 1, None);
        }
        let rows = self.kept.slots.clone();
        let completed = match self.lease {
            Some(duration) => self.lease_all(engine, &rows, duration).await?,
            None => self.hold_soon(engine, &rows).await?.then_some(rows),
        };
        let Some(rows) = completed else {
            return Ok(None);
        };
        self.kept.slots.clear();
        let mut rows = rows.into_iter();
        Ok(rows.next().map(|first| first.and(rows)))
    }

    /// Renews all for the lease that is requested. When one could not be renewed, shortens the leases of the others again.
    async fn lease_all(
        &mut self,
        engine: &mut dyn Engine,
        rows: &[Slot],
        duration: Duration,
    ) -> Result<Option<Vec<Slot>>, Error> {
        let mut guard = CancelGuard::new(engine)?;
        let tokens = rows.iter().map(|row| row.token).collect();
        guard.release_slots_of(self.semaphore.name(), tokens);
        let began = Instant::now();
        let renewed = caught(async {
            let engine = &mut *guard;
            let (renewed, in_full) = renew(engine, rows, duration).await?;
            // On SQLite the statement may have waited for longer than the lease.
            if in_full && began.elapsed() < duration.max(MAX_PAUSE_KEEPING) {
                return Ok(Some(renewed));
            }
            let (renewed, _) = renew(engine, rows, KEPT).await?;
            self.kept.slots = renewed;
            Ok::<_, Error>(None)
        });
        let renewed = renewed.await;
        guard.finish_with(renewed)
    }

    /// [`hold_all`](Self::hold_all), some times: on SQLite another connection may write for a moment.
    async fn hold_soon(&self, engine: &mut dyn Engine, rows: &[Slot]) -> Result<bool, Error> {
        for _ in 0..MAX_ATTEMPTS {
            if unless_dropped!(&mut *engine, |engine| self.hold_all(engine, rows))? {
                return Ok(true);
            }
            rt::pause(backoff::jittered(TURN_PAUSE)).await;
        }
        Ok(false)
    }

    /// Begins a transaction and locks all in it. Leaves none open if one is lost or locked, and on SQLite while another connection
    /// writes.
    async fn hold_all(&self, engine: &mut dyn Engine, rows: &[Slot]) -> Result<bool, Error> {
        if !engine.begin_hold().await? {
            return Ok(false);
        }
        // As in the transaction's closure later: Galera pins in no other.
        let mark = depth::mark_started(engine.status(), Some(IsolationLevel::ReadCommitted));
        let held = hold(engine, rows).await;
        drop(mark);
        if !matches!(held, Ok(true)) {
            roll_back(engine).await;
        }
        match held {
            Err(error) if error.is_retryable() => Ok(false),
            held => held,
        }
    }

    /// Releases what is kept. What can't be released expires.
    pub(crate) async fn give_up(&mut self, engine: &mut dyn Engine) {
        let slots = std::mem::take(&mut self.kept.slots);
        let mut rows = self.kept.turn.take().into_iter().chain(slots);
        let Some(first) = rows.next() else {
            return;
        };
        let slot = first.and(rows);
        let semaphore = self.semaphore.name();
        let released = async {
            let mut guard = CancelGuard::new(engine)?;
            // The last renewal may have failed after it was committed.
            guard.release_slots_of(semaphore, slot.rows().map(|row| row.token).collect());
            let kind = ReleaseKind::Unused;
            let released = caught(release_batch(&mut *guard, &[&slot], kind)).await;
            guard.finish_with(released)
        };
        if let Err(error) = released.await {
            tracing::debug!(semaphore, %error, "permits not released: their leases end");
        }
        notify_released(semaphore, 1, None);
    }

    /// Whether there is something to release. Such a request polls on its own: the first of a queue may wait for what it keeps.
    pub(crate) fn keeps_any(&self) -> bool {
        self.kept.rows().next().is_some()
    }
}

/// Locks the slots in the open transaction. The renewal waits for no other session, and locks the rows against those that count
/// holders too. Its lease shows whether it has renewed them. Only `pin` reaches the other nodes of Galera.
async fn hold(engine: &mut dyn Engine, rows: &[Slot]) -> Result<bool, Error> {
    if !renew(engine, rows, HELD).await?.1 {
        return Ok(false);
    }
    for row in rows {
        if !engine.pin(row).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Renews the leases. Returns those that are not lost, each with the end that the database has set, and whether these are all, with
/// the whole lease: not one whose row another session has locked.
async fn renew(
    engine: &mut dyn Engine,
    rows: &[Slot],
    duration: Duration,
) -> Result<(Vec<Slot>, bool), Error> {
    let lease_us = lease::micros(duration)?;
    let requests: Vec<_> = rows
        .iter()
        .map(|row| RenewalRequest {
            // It is renewed all the same.
            release_seen: true,
            ..RenewalRequest::new(row, lease_us)
        })
        .collect();
    let started = Instant::now();
    let answers = engine.renew_batch(&requests).await?;
    let resolution = engine.clock_resolution();
    let mut renewed = Vec::new();
    let mut in_full = true;
    for row in rows {
        let answer = answers.iter().find(|it| it.token == row.token.as_bytes());
        let remaining_us = answer.map_or(-1, |answer| answer.remaining_us.min(lease_us));
        in_full &= remaining_us >= lease_us / 4 * 3;
        if let Ok(remaining_us) = u64::try_from(remaining_us) {
            let remaining = Duration::from_micros(remaining_us).saturating_sub(resolution);
            renewed.push(Slot {
                deadline: started + remaining,
                ..row.clone()
            });
        }
    }
    Ok((renewed, in_full))
}
