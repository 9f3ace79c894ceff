//! The result for people.

use std::fmt::{Display, Formatter, Result};

use crate::{Outcomes, Phase, Phases, Times, Verdict};

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{} operations", self.operations)?;
        write_outcomes(f, &self.outcomes)?;
        writeln!(f, "by client:")?;
        write_outcomes(f, &self.clients)?;
        for (client, count) in &self.queued {
            writeln!(
                f,
                "  {client}: {count} began while requests waited without a connection"
            )?;
        }
        let shared = self.shared;
        writeln!(
            f,
            "{shared} locks were acquired while another operation shared them"
        )?;
        write_phases(f, &self.phases)?;
        let judged = self.judged.iter();
        let judged = judged.map(|(check, count)| format!("{} {count}", check.name()));
        let judged: Vec<_> = judged.collect();
        writeln!(f, "judged without any excuse: {}", judged.join(", "))?;
        writeln!(f, "{} violations", self.total())?;
        for (violation, found) in &self.violations {
            writeln!(f, "  {}: {}", violation.name(), found.count)?;
            for example in &found.examples {
                writeln!(f, "    {example}")?;
            }
        }
        Ok(())
    }
}

fn write_outcomes(f: &mut Formatter<'_>, outcomes: &Outcomes) -> Result {
    for (kind, outcomes) in outcomes {
        let outcomes = outcomes.iter();
        let outcomes = outcomes.map(|(outcome, count)| format!("{count} {outcome}"));
        let outcomes: Vec<_> = outcomes.collect();
        writeln!(f, "  {kind}: {}", outcomes.join(", "))?;
    }
    Ok(())
}

fn write_phases(f: &mut Formatter<'_>, phases: &Phases) -> Result {
    writeln!(f, "{:44}other workers, median and longest, ms", "")?;
    writeln!(
        f,
        "phase        faults   seconds      done  done/s        one operation    nothing completed"
    )?;
    writeln!(
        f,
        "{:<12} {:>6} {} {:>20.1}",
        "calm",
        "",
        rate(&phases.calm),
        phases.calm_max_ms
    )?;
    for (kind, waits) in &phases.faults {
        writeln!(
            f,
            "{:<12} {:>6} {} {} {}",
            kind.name(),
            waits.faults,
            rate(&waits.phase),
            times(waits.operations),
            times(waits.idle)
        )?;
    }
    let servers = phases.faults.iter();
    for (kind, waits) in servers.filter(|(_, waits)| !waits.idle_clients.is_empty()) {
        let clients = waits.idle_clients.iter();
        let clients = clients.map(|(client, idle)| format!("{client}{}", times(*idle)));
        let clients: Vec<_> = clients.collect();
        writeln!(
            f,
            "nothing completed, {}: {}",
            kind.name(),
            clients.join("; ")
        )?;
    }
    let (longest_ms, longest) = (phases.longest_ms, &phases.longest);
    writeln!(f, "longest operation: {longest_ms:.1} ms, {longest}")
}

fn times(Times { median_ms, max_ms }: Times) -> String {
    format!("{median_ms:>9.1}, {max_ms:>9.1}")
}

fn rate(phase: &Phase) -> String {
    let Phase {
        seconds,
        done,
        per_second,
    } = phase;
    format!("{seconds:>9.1} {done:>9} {per_second:>7.0}  ")
}
