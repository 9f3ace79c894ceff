//! The outcome of a run: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use program_support::outcome::{
    INTERRUPTED, OutcomeTable, Verdict, per_second, tenths, thousandths,
};
use serde::Serialize;

use crate::arguments::Options;
use crate::check::CheckResult;
use crate::coordinator::Counts;
use crate::fault_injection::FaultInjection;
use crate::hold_log::HoldLog;
use crate::report::Gate;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: &'static str,
    files: usize,
    /// The number of lines in the log files, and in the files of the hours.
    lines: usize,
    found: usize,
    missing: usize,
    repeated: usize,
    disordered: usize,
    foreign: usize,
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
        backend: &'static str,
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
            found: result.found,
            missing: result.missing,
            repeated: result.repeated,
            disordered: result.disordered,
            foreign: result.foreign,
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

    /// Interval line is there once, in order.
    fn is_right(&self) -> bool {
        self.missing + self.repeated + self.disordered + self.foreign == 0
    }

    /// Whether there were never more holders than permits.
    fn is_gated(&self) -> bool {
        self.max_holders <= self.permits && self.max_schedulers <= 1 && self.shared_slots == 0
    }

    fn verdict(&self) -> Verdict {
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fences = if self.fenced { "" } else { ", WITHOUT fences" };
        let mut table = OutcomeTable::default();
        table
            .row(
                "workers",
                format!(
                    "{} processes x {} threads on {}{fences}",
                    self.processes, self.threads, self.backend
                ),
            )
            .row(
                "holders",
                format!(
                    "{} at most at the same time, {} permits, {} grants",
                    self.max_holders, self.permits, self.grants
                ),
            )
            .row(
                "work",
                format!(
                    "{} log files with {} lines, in {} lists",
                    self.files, self.lines, self.lists
                ),
            );
        if self.kills > 0 {
            table.row("kills", format!("{} processes", self.kills)).row(
                "taken over",
                format!(
                    "{} slots of killed processes, {:.0} ms (median) to {:.0} ms after the kill; a lease is {:.0} ms",
                    self.takeovers, self.takeover_ms_median, self.takeover_ms_max, self.lease_ms
                ),
            );
        }
        if self.pauses > 0 {
            table.row("pauses", format!("{} processes", self.pauses));
        }
        if self.kills + self.pauses + self.stale_stopped > 0 {
            table.row(
                "stale",
                format!(
                    "{} workers stopped, {} of them at COMMIT; {} files left over",
                    self.stale_stopped, self.stale_at_commit, self.leftovers
                ),
            );
        }
        table
            .row(
                "speed",
                format!(
                    "{:.0} lines per second, for {:.1} s",
                    self.lines_per_second, self.seconds
                ),
            )
            .row(
                "check",
                format!(
                    "{} lines in {} files, {} missing, {} repeated, {} not in order, {} in the wrong file, {} errors",
                    self.found,
                    self.hours,
                    self.missing,
                    self.repeated,
                    self.disordered,
                    self.foreign,
                    self.errors
                ),
            );
        table.write(f, self.verdict())
    }
}
