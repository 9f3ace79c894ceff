//! `doctor`: what an application would meet in this database, as this user.

mod connections;
mod settings;
mod tables;

use std::fmt;
use std::time::{Duration, SystemTime};

use diesel::dsl::sql;
use diesel::sql_types::Text;
use diesel::{QueryResult, RunQueryDsl};
use diesel_locks::chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::clock;
use crate::database::{AnyConnection, Database, Engine};
use crate::failure::Failure;
use crate::output::Report;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warning,
    Problem,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

use Verdict::{Ok as Good, Problem, Warning};

/// What was found, and what to do about it.
struct Finding {
    verdict: Verdict,
    subject: &'static str,
    text: String,
}

fn found(verdict: Verdict, subject: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        verdict,
        subject,
        text: text.into(),
    }
}

pub(crate) fn doctor(database: &Database) -> Result<Report, Failure> {
    let mut conn = database.open()?;
    let mut findings = vec![settings::version(&mut conn)?];
    // First, as the session has them: some would make the rest fail, by another name.
    findings.extend(settings::findings(&mut conn));
    findings.extend(tables::findings(&mut conn));
    findings.extend(connections::findings(&mut conn));
    findings.extend(clock_difference(&mut conn));
    let lines = findings
        .iter()
        .map(|it| format!("{:<8} {}: {}", it.verdict, it.subject, it.text));
    let json: Vec<Value> = findings
        .iter()
        .map(|it| json!({ "verdict": it.verdict.to_string(), "subject": it.subject, "text": it.text }))
        .collect();
    let mut report = Report::new(
        lines.collect::<Vec<_>>().join("\n"),
        json!({ "findings": json }),
    );
    report.code = u8::from(findings.iter().any(|it| it.verdict == Problem));
    Ok(report)
}

/// The value of an expression, as the database writes it.
fn value(conn: &mut AnyConnection, expression: &str) -> QueryResult<String> {
    diesel::select(sql::<Text>(expression)).get_result(conn)
}

/// The difference that is not worth a word.
const CLOCKS: Duration = Duration::from_secs(1);

/// Leases are measured by the database's clock alone: a difference confuses people who compare times.
fn clock_difference(conn: &mut AnyConnection) -> Option<Finding> {
    if conn.engine() == Engine::Sqlite {
        // It is in this process.
        return None;
    }
    let local = || DateTime::<Utc>::from(SystemTime::now());
    let before = local();
    let theirs = match clock::now(conn) {
        Ok(theirs) => theirs,
        Err(error) => return Some(found(Warning, "clock", format!("can't be read: {error}"))),
    };
    let ahead = theirs - (before + (local() - before) / 2);
    let direction = if ahead < TimeDelta::zero() {
        "behind"
    } else {
        "ahead of"
    };
    let difference = ahead.abs().to_std().unwrap_or_default();
    let text = format!(
        "that of the database is {:.3} s {direction} that of this machine",
        difference.as_secs_f64()
    );
    Some(if difference < CLOCKS {
        found(Good, "clock", text)
    } else {
        let text = format!(
            "{text}; leases follow the database's: do not compare its times with those of this machine"
        );
        found(Warning, "clock", text)
    })
}
