//! The outcome of a run: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

use crate::arguments::Options;
use crate::check::Verdict;
use crate::coordinator::Counts;
use crate::ledger::Ledger;
use crate::report::Gate;
use crate::trouble::Trouble;

/// The exit code that shells report for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

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
    max_queuers: usize,
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
        verdict: &Verdict,
        ledger: &Ledger,
        trouble: &Trouble,
        (hours, leftovers): (usize, usize),
    ) -> Self {
        let generator = options.generator();
        let take_overs = ledger.take_overs(&trouble.kills);
        let middle = take_overs.get(take_overs.len() / 2);
        let seconds = counts.took.as_secs_f64();
        Self {
            backend,
            files: generator.files(),
            lines: generator.lines(),
            found: verdict.found,
            missing: verdict.missing,
            repeated: verdict.repeated,
            disordered: verdict.disordered,
            foreign: verdict.foreign,
            hours,
            lists: counts.lists,
            processes: options.processes.get(),
            threads: options.threads.get(),
            permits: options.permits.get() as usize,
            max_holders: ledger.most_at_once(Gate::Collate).max(counts.most_sampled),
            max_holders_sampled: counts.most_sampled,
            max_queuers: ledger.most_at_once(Gate::Queue),
            shared_slots: ledger.shared_slots(Gate::Collate) + ledger.shared_slots(Gate::Queue),
            grants: ledger.grants(Gate::Collate),
            kills: trouble.kills.len(),
            pauses: trouble.pauses,
            stale_stopped: counts.stale_refreshing + counts.stale_committing,
            stale_at_commit: counts.stale_committing,
            takeovers: take_overs.len(),
            takeover_ms_median: ms(middle.copied()),
            takeover_ms_max: ms(take_overs.last().copied()),
            lease_ms: ms(Some(options.lease)),
            leftovers,
            errors: counts.errors,
            seconds: (seconds * 1000.0).round() / 1000.0,
            lines_per_second: if seconds > 0.0 {
                rounded(f64::from(u32::try_from(verdict.found).unwrap_or(u32::MAX)) / seconds)
            } else {
                0.0
            },
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
        self.missing + self.repeated + self.disordered + self.foreign == 0
    }

    /// Whether there were never more holders than permits.
    fn is_gated(&self) -> bool {
        self.max_holders <= self.permits && self.max_queuers <= 1 && self.shared_slots == 0
    }

    fn verdict(&self) -> &'static str {
        if self.interrupted {
            "interrupted"
        } else if !self.finished {
            "NOT FINISHED"
        } else if !self.is_gated() {
            "WRONG: more holders than permits"
        } else if self.is_right() && self.errors == 0 {
            "right: every line once, in order of time"
        } else if self.is_right() {
            "right, with errors on the way"
        } else if self.fenced {
            "WRONG"
        } else {
            "WRONG, as can happen without fences"
        }
    }
}

fn ms(duration: Option<Duration>) -> f64 {
    rounded(duration.unwrap_or_default().as_secs_f64() * 1000.0)
}

/// Rounds to tenths.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let fences = if self.fenced { "" } else { ", WITHOUT fences" };
        table.add_row([
            "workers".to_owned(),
            format!(
                "{} processes x {} threads on {}{fences}",
                self.processes, self.threads, self.backend
            ),
        ]);
        table.add_row([
            "holders".to_owned(),
            format!(
                "{} at most at the same time, {} permits, {} grants",
                self.max_holders, self.permits, self.grants
            ),
        ]);
        table.add_row([
            "work".to_owned(),
            format!(
                "{} log files with {} lines, in {} lists",
                self.files, self.lines, self.lists
            ),
        ]);
        if self.kills > 0 {
            table.add_row([
                "kills".to_owned(),
                format!(
                    "{} processes; {} of their slots taken over, after {:.0} ms (median), {:.0} ms at most; a lease is {:.0} ms",
                    self.kills,
                    self.takeovers,
                    self.takeover_ms_median,
                    self.takeover_ms_max,
                    self.lease_ms
                ),
            ]);
        }
        if self.pauses > 0 {
            table.add_row(["pauses".to_owned(), format!("{} processes", self.pauses)]);
        }
        if self.kills + self.pauses + self.stale_stopped > 0 {
            table.add_row([
                "stale".to_owned(),
                format!(
                    "{} workers stopped, {} of them when they wanted to commit; {} files left over",
                    self.stale_stopped, self.stale_at_commit, self.leftovers
                ),
            ]);
        }
        table.add_row([
            "speed".to_owned(),
            format!(
                "{:.0} lines per second, for {:.1} s",
                self.lines_per_second, self.seconds
            ),
        ]);
        table.add_row([
            "check".to_owned(),
            format!(
                "{} lines in {} files, {} missing, {} repeated, {} not in order, {} in the wrong place, {} errors",
                self.found,
                self.hours,
                self.missing,
                self.repeated,
                self.disordered,
                self.foreign,
                self.errors
            ),
        ]);
        table.add_row(["verdict", self.verdict()]);
        write!(f, "{table}")
    }
}
