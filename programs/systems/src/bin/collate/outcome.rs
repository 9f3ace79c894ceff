//! The outcome of a run: its figures, the verdict and the exit code.

use std::process::ExitCode;
use std::time::Duration;

use program_support::database::Engine;
use program_support::outcome::{INTERRUPTED, Verdict, per_second, tenths, thousandths};
use serde::Serialize;

use crate::Options;
use crate::check::CheckResult;
use crate::coordinator::Counts;
use crate::faults::FaultInjection;
use crate::hold_log::HoldLog;
use crate::job::Gate;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: Engine,
    files: usize,
    /// The number of lines in the log files, and in the files of the hours.
    lines: usize,
    #[serde(flatten)]
    checked: CheckResult,
    hours: usize,
    lists: usize,
    processes: usize,
    threads: usize,
    permits: usize,
    /// The most holders at the same time: by their reports, and by `held_slots`.
    max_holders: usize,
    max_holders_sampled: usize,
    max_schedulers: usize,
    /// The number of slots that two holders held at the same time.
    shared_slots: usize,
    grants: usize,
    kills: usize,
    pauses: usize,
    /// The number of workers that were stopped because they had lost their slots, and of those stopped when they
    /// committed.
    stale_stopped: usize,
    stale_at_commit: usize,
    /// The number of slots of killed processes that were granted again, and the time from the kill to the grant.
    takeovers: usize,
    takeover_ms_median: f64,
    takeover_ms_max: f64,
    lease_ms: f64,
    /// The number of files left by killed and stale workers.
    leftovers: usize,
    errors: usize,
    seconds: f64,
    lines_per_second: f64,
    fenced: bool,
    finished: bool,
    interrupted: bool,
}

impl Outcome {
    pub(crate) fn new(
        backend: Engine,
        options: &Options,
        counts: &Counts,
        result: &CheckResult,
        hold_log: &HoldLog,
        faults: &FaultInjection,
        (hours, leftovers): (usize, usize),
    ) -> Self {
        let generator = options.generator();
        let take_overs = hold_log.take_overs(&faults.kills);
        let middle = take_overs.get(take_overs.len() / 2);
        let seconds = counts.took.as_secs_f64();
        Self {
            backend,
            files: generator.files(),
            lines: generator.lines(),
            checked: *result,
            hours,
            lists: counts.lists,
            processes: options.processes.get(),
            threads: options.threads.get(),
            permits: options.permits.get() as usize,
            max_holders: hold_log
                .most_at_once(Gate::Collate)
                .max(counts.most_sampled),
            max_holders_sampled: counts.most_sampled,
            max_schedulers: hold_log.most_at_once(Gate::Queue),
            shared_slots: hold_log.shared_slots(Gate::Collate) + hold_log.shared_slots(Gate::Queue),
            grants: hold_log.grants(Gate::Collate),
            kills: faults.kills.len(),
            pauses: faults.pauses,
            stale_stopped: counts.stale_renewing + counts.stale_committing,
            stale_at_commit: counts.stale_committing,
            takeovers: take_overs.len(),
            takeover_ms_median: ms(middle.copied()),
            takeover_ms_max: ms(take_overs.last().copied()),
            lease_ms: ms(Some(options.lease)),
            leftovers,
            errors: counts.errors,
            seconds: thousandths(seconds),
            lines_per_second: per_second(result.found, seconds),
            fenced: !options.unfenced,
            finished: counts.finished,
            interrupted: counts.interrupted,
        }
    }

    /// Without fences wrong results are expected, and no failure.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.interrupted {
            ExitCode::from(INTERRUPTED)
        } else if self.finished
            && self.is_gated()
            && (!self.fenced || (self.is_right() && self.errors == 0))
        {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Whether every line is there once, in order.
    fn is_right(&self) -> bool {
        self.checked.missing
            + self.checked.repeated
            + self.checked.disordered
            + self.checked.foreign
            == 0
    }

    /// Whether there were never more holders than permits.
    fn is_gated(&self) -> bool {
        self.max_holders <= self.permits && self.max_schedulers <= 1 && self.shared_slots == 0
    }

    pub(crate) fn verdict(&self) -> Verdict {
        if self.interrupted {
            Verdict::Doubtful("interrupted")
        } else if !self.finished {
            Verdict::Wrong("NOT FINISHED")
        } else if !self.is_gated() {
            Verdict::Wrong("WRONG: more holders than permits")
        } else if self.is_right() && self.errors == 0 {
            Verdict::Right("right: every line once, in order of time")
        } else if self.is_right() {
            Verdict::Doubtful("right, but with errors")
        } else if self.fenced {
            Verdict::Wrong("WRONG")
        } else {
            Verdict::Doubtful("WRONG, as expected without fences")
        }
    }
}

fn ms(duration: Option<Duration>) -> f64 {
    tenths(duration.unwrap_or_default().as_secs_f64() * 1000.0)
}
