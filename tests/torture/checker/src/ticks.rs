//! Ticks of a timer: each is run at most once, in the order of their times, also after the clock was set and after a worker has died.

use torture_history::workload_spec;

use crate::Violation;
use crate::findings::Findings;
use crate::run::Run;

/// Compares ticks in the order in which the slot was granted for them.
pub(crate) fn check(run: &Run<'_>, findings: &mut Findings) {
    let ticks = run.operations.iter().filter_map(|operation| {
        let slot = operation.slot()?;
        Some((slot.fence, slot.due_us?, operation))
    });
    let mut ticks: Vec<_> = ticks.collect();
    ticks.sort_unstable_by_key(|(fence, due_us, operation)| (*fence, *due_us, operation.op));
    let mut last = None;
    for (_, due_us, operation) in ticks {
        if !is_due(due_us) {
            findings.add(Violation::RepeatedTicks, || {
                let told = run.describe_operation(operation);
                format!("{told} ran a tick at {due_us} µs, when none is due")
            });
        }
        match last {
            Some((last_us, before)) if due_us <= last_us => {
                findings.add(Violation::RepeatedTicks, || {
                    let (told, before) = (
                        run.describe_operation(operation),
                        run.describe_operation(before),
                    );
                    format!(
                        "{told} ran the tick of {due_us} µs after {before} ran that of {last_us} µs"
                    )
                });
            }
            _ => last = Some((due_us, operation)),
        }
    }
}

/// Whether the job has a tick then.
fn is_due(due_us: i64) -> bool {
    let micros = |milliseconds: u64| i64::try_from(milliseconds * 1000).unwrap_or(i64::MAX);
    let since = due_us - micros(workload_spec::TICK_OFFSET_MS);
    since.rem_euclid(micros(workload_spec::TICK_PERIOD_MS)) == 0
}
