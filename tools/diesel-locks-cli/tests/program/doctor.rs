//! `doctor`.

use program_support::connection::AnyConnection;
use program_support::database::Database;
use serde_json::Value;

use crate::cli::{Cli, on_engines};

on_engines!(
    database_that_is_set_up_has_no_problem,
    missing_tables_are_a_problem
);

/// The verdict, the subject and the text of each finding.
pub(crate) fn findings(cli: &Cli, code: i32) -> Vec<(String, String, String)> {
    let output = cli.output(&["--json", "doctor"]);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |finding: &Value, field: &str| finding[field].as_str().expect("a text").to_owned();
    let findings = printed["findings"].as_array().expect("a list");
    findings
        .iter()
        .map(|it| (text(it, "verdict"), text(it, "subject"), text(it, "text")))
        .collect()
}

fn database_that_is_set_up_has_no_problem(url: &str) {
    let cli = Cli::new(url);
    let findings = findings(&cli, 0);
    let has =
        |verdict: &str, subject: &str| findings.iter().any(|it| it.0 == verdict && it.1 == subject);
    for subject in ["database", "migrations", "privileges", "object locks"] {
        assert!(has("ok", subject), "{subject}: {findings:?}");
    }
    assert!(
        !findings.iter().any(|it| it.2.contains("can't be read")),
        "{findings:?}"
    );
    let text = cli.text(&["doctor"]);
    assert!(
        text.contains("ok       migrations: all of this version have run\n"),
        "{text}"
    );
}

fn missing_tables_are_a_problem(url: &str) {
    use diesel::connection::SimpleConnection;

    let cli = Cli {
        url: url.to_owned(),
    };
    // SQLite's file is there.
    let mut conn =
        AnyConnection::open(&Database::from_url(url).expect("a URL")).expect("a connection");
    conn.batch_execute("CREATE TABLE other (id INTEGER)")
        .expect("a table");
    let findings = findings(&cli, 1);
    let is_it = |it: &&(String, String, String)| it.0 == "problem" && it.1 == "tables";
    let problem = findings
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("{findings:?}"));
    assert!(problem.2.contains("`diesel-locks migrate`"), "{problem:?}");
}
