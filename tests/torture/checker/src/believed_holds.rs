//! From when until when the holder of a leased slot believed that it holds it.
//!
//! A lease is counted by the database's clock, from the grant. Its holder counts by the monotonic clock, from before it
//! asked; so it stops believing before the lease ends, as long as the two clocks go at the same pace. When the
//! database's clock jumps ahead (also when it is corrected after a jump backwards), leases end early by as much, and
//! the database may give the slot to another at once: that is what fences are for, and no violation. So a belief is cut
//! at the first jump after the operation began.

use torture_history::{Moment, SlotHeld, Task};

use std::time::Duration;

use crate::operation::Operation;
use crate::run::Run;

/// When the clock may have jumped ahead.
pub(crate) struct ClockJumps(Vec<(Moment, Moment)>);

impl ClockJumps {
    /// The jumps in the log, extended by the tolerance.
    pub(crate) fn of(run: &Run<'_>, tolerance: Duration) -> Self {
        let jumps = run.faults.iter().filter_map(|fault| fault.ahead);
        let tolerance = u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX);
        let mut jumps: Vec<_> = jumps
            .map(|(earliest, latest)| {
                let earliest = Moment(earliest.0.saturating_sub(tolerance));
                (earliest, Moment(latest.0.saturating_add(tolerance)))
            })
            .collect();
        jumps.sort_unstable();
        Self(jumps)
    }

    /// Whether the clock may have jumped ahead in a stretch of time.
    pub(crate) fn overlaps(&self, from: Moment, until: Moment) -> bool {
        let first = self.0.partition_point(|jump| jump.1 < from);
        self.0.get(first).is_some_and(|jump| jump.0 <= until)
    }

    /// The belief of an operation that leases a slot, as far as it was entitled to it.
    pub(crate) fn believed_hold(
        &self,
        operation: &Operation<'_>,
    ) -> Option<(Moment, Moment, SlotHeld)> {
        let entered = operation.entered()?;
        let until = match operation.end {
            Some(end) => end.held_until?,
            None => last_known(operation, entered.at)?,
        };
        // The first jump that may have come after the grant: there is one after the other.
        let next = self.0.partition_point(|jump| jump.1 < operation.began);
        let until = match self.0.get(next) {
            Some(jump) => until.min(jump.0),
            None => until,
        };
        (entered.at <= until).then_some((entered.at, until, entered.slot?))
    }
}

/// The moment at which an operation entered whose process was killed, if the lease can't have ended before.
fn last_known(operation: &Operation<'_>, entered: Moment) -> Option<Moment> {
    let Task::Lease { lease_ms, .. } = operation.task else {
        return None;
    };
    let lease = operation.began.plus(Duration::from_millis(*lease_ms));
    (entered < lease).then_some(entered)
}
