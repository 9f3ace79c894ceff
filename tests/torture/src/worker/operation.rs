//! An operation that is under way, and what it writes to the history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diesel_locks::LeaseState;
use torture_history::{
    ErrorKind, GuardEvent, Moment, Op, Outcome, Record, Release, Row, SlotHeld, Writer,
};

use super::errors::{Failure, FailureExt};

/// An operation that is under way. Futures share it with the thread that may drop them.
pub(crate) struct Operation {
    pub(crate) op: Op,
    history: Arc<Writer>,
    /// A [`Moment`]; 0 is none.
    held_until: AtomicU64,
}

impl Operation {
    pub(crate) fn new(op: Op, history: Arc<Writer>) -> Self {
        Self {
            op,
            history,
            held_until: AtomicU64::new(0),
        }
    }

    /// It holds what it requested. The deadline of a leased slot is that of the slot itself: the worker may have been
    /// paused since the request.
    pub(crate) fn entered(&self, slot: Option<SlotHeld>) -> Result<(), Failure> {
        let at = Moment::now();
        self.held_until
            .store(if slot.is_none() { at.0 } else { 0 }, Ordering::SeqCst);
        let op = self.op;
        self.history.write(&Record::Entered { op, slot, at })
    }

    /// Requests of its lock pool wait without a connection.
    pub(crate) fn queued(&self) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::Queued { op, at })
    }

    /// It has the connection on which it waits.
    pub(crate) fn connected(&self) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::Connected { op, at })
    }

    /// It has drawn this number.
    pub(crate) fn drew(&self, number: i64) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::Drew { op, number, at })
    }

    /// It held what it had asked for at this moment.
    pub(crate) fn still_held(&self, at: Moment) {
        self.held_until.store(at.0, Ordering::SeqCst);
    }

    /// Notes that it holds what it asked for now, if that is so, and says so.
    pub(crate) fn look(&self, is_held: impl FnOnce() -> bool) -> bool {
        let now = Moment::now();
        let is_held = is_held();
        if is_held {
            self.still_held(now);
        }
        is_held
    }

    /// It still holds what it asked for, because its transaction is open or the database will say otherwise.
    pub(crate) fn leaves(&self) {
        self.still_held(Moment::now());
    }

    /// Its lease was renewed, as it had asked for at this moment.
    pub(crate) fn renewed(&self, requested: Moment, state: LeaseState) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        let expired = state.is_expired();
        self.history.write(&Record::Renewed {
            op,
            expired,
            requested,
            at,
        })
    }

    /// It gave its slot back; `is_held` is what it knew after its work. An error that no fault brings about is its own.
    pub(crate) fn released(
        &self,
        is_held: bool,
        released: Result<LeaseState, Failure>,
    ) -> Result<(), Failure> {
        let release = match released {
            Ok(LeaseState::Unexpired) => Release::InTime,
            Ok(LeaseState::Expired) => Release::Expired,
            Err(failure) if !failure.is_expected() => return Err(failure),
            Err(failure) => match failure.outcome() {
                Outcome::Failed {
                    kind: ErrorKind::SlotLost,
                    ..
                } => Release::Lost,
                Outcome::Failed { kind, text } => Release::Failed { kind, text },
                // Others hold what a release asks for.
                outcome => Release::Failed {
                    kind: ErrorKind::Held,
                    text: format!("{outcome:?}"),
                },
            },
        };
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::Released {
            op,
            is_held,
            release,
            at,
        })
    }

    /// This happened to the slot of its guard.
    pub(crate) fn guard(&self, event: GuardEvent) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::Guard { op, event, at })
    }

    /// The database took this row.
    pub(crate) fn wrote(&self, row: Row) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::Wrote { op, row, at })
    }

    /// Something goes wrong in its transaction.
    pub(crate) fn fault_ignored(
        &self,
        kind: Option<ErrorKind>,
        is_lost: bool,
    ) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        self.history.write(&Record::FaultIgnored {
            op,
            kind,
            is_lost,
            at,
        })
    }

    /// It asked for something after that.
    pub(crate) fn requested(&self, refused: Option<&Failure>) -> Result<(), Failure> {
        let (op, at) = (self.op, Moment::now());
        let kind = refused.map(FailureExt::error_kind);
        // The history has no text for it.
        if let (Some(failure), Some(ErrorKind::Other)) = (refused, kind) {
            let (process, count) = (op.process(), op.0 & i64::from(u32::MAX));
            eprintln!("torture: operation {process}-{count} was refused something: {failure:#}");
        }
        let refused = kind;
        self.history.write(&Record::Requested { op, refused, at })
    }

    pub(crate) fn held_until(&self) -> Option<Moment> {
        let held_until = self.held_until.load(Ordering::SeqCst);
        (held_until > 0).then_some(Moment(held_until))
    }
}
