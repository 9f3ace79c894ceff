//! `doctor`: what an application would meet in this database, as this user.

mod settings;
mod tables;

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use diesel::dsl::sql;
use diesel::sql_types::Text;
use diesel::{QueryResult, RunQueryDsl};
use serde_json::{Value, json};

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
    findings.extend(tables::findings(&mut conn));
    findings.extend(settings::findings(&mut conn));
    findings.extend(clock(&mut conn));
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
const CLOCKS: f64 = 1.0;

/// Leases are measured by the database's clock alone: a difference confuses people who compare times.
fn clock(conn: &mut AnyConnection) -> Option<Finding> {
    let expression = match conn.engine() {
        Engine::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS TEXT)",
        Engine::Mysql => "CAST(UNIX_TIMESTAMP(SYSDATE(6)) AS CHAR)",
        // It is in this process.
        Engine::Sqlite => return None,
    };
    let local = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
    };
    let before = local();
    let text = value(conn, expression).ok()?;
    let ahead = text.parse::<f64>().ok()? - f64::midpoint(before, local());
    let direction = if ahead < 0.0 { "behind" } else { "ahead of" };
    let text = format!(
        "that of the database is {:.3} s {direction} that of this machine",
        ahead.abs()
    );
    Some(if ahead.abs() < CLOCKS {
        found(Good, "clock", text)
    } else {
        let text = format!(
            "{text}; leases follow the database's: do not compare its times with those of this machine"
        );
        found(Warning, "clock", text)
    })
}
