//! What is written about the metrics: the table of the guide, the dashboard and the alerts.

use std::collections::{BTreeMap, BTreeSet};

/// The table of the guide has what is recorded: names, types, labels and the texts of their descriptions. The dashboard and the alerts
/// name nothing else.
pub(crate) fn check(text: &str) {
    // Of each metric its description, its type, and its labels.
    let mut recorded: BTreeMap<&str, (&str, &str, BTreeSet<&str>)> = BTreeMap::new();
    let lines = text.lines().filter(|line| line.contains("diesel_locks_"));
    for line in lines {
        let (mark, line) = match line.split_at_checked(7) {
            Some((mark @ ("# HELP " | "# TYPE "), rest)) => (mark, rest),
            _ => ("", line),
        };
        let (name, rest) = line.split_once(['{', ' ']).expect("a value");
        let ends = ["_bucket", "_sum", "_count"];
        let base = ends.iter().find_map(|end| name.strip_suffix(end));
        let (help, of_type, labels) = recorded.entry(base.unwrap_or(name)).or_default();
        match (mark, rest.split_once('}')) {
            ("# HELP ", _) => *help = rest,
            ("# TYPE ", _) => *of_type = rest,
            (_, Some((list, _))) => {
                let names = list.split(',').filter_map(|it| Some(it.split_once('=')?.0));
                labels.extend(names.filter(|name| *name != "le"));
            }
            (_, None) => {}
        }
    }
    let guide = include_str!("../../docs/guide.md");
    let rows = guide
        .lines()
        .filter(|line| line.starts_with("| `diesel_locks_"));
    let mut documented = BTreeSet::new();
    for row in rows {
        let row = row.replace('`', "");
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let (name, of_type, labels, meaning) = (cells[1], cells[2], cells[3], cells[4]);
        let (help, recorded_type, recorded_labels) = &recorded[name];
        assert!(
            !help.is_empty() && meaning.starts_with(help),
            "{row}: {help}"
        );
        assert_eq!(of_type, *recorded_type, "{row}");
        assert_eq!(
            labels.split(", ").collect::<BTreeSet<_>>(),
            *recorded_labels,
            "{row}"
        );
        documented.insert(name.to_owned());
    }
    let names = recorded.keys().map(|name| (*name).to_owned());
    assert_eq!(documented, names.collect::<BTreeSet<_>>());

    let mut expressions = expressions_of_the_dashboard();
    expressions.extend(expressions_of_the_alerts());
    for expression in expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let metrics: Vec<_> = words
            .filter(|word| word.starts_with("diesel_locks_"))
            .collect();
        assert!(!metrics.is_empty(), "{expression}");
        for name in metrics {
            let is_it = |line: &str| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            assert!(text.lines().any(is_it), "{name} in {expression}");
        }
    }
}

fn expressions_of_the_dashboard() -> Vec<String> {
    let dashboard = include_str!("../../docs/metrics/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let targets = list(&dashboard["panels"]).into_iter();
    let targets = targets.flat_map(|panel| list(&panel["targets"]));
    let expressions = targets.map(|it| it["expr"].as_str().expect("a text").to_owned());
    expressions.collect()
}

/// Each is one line, and each rule is complete.
fn expressions_of_the_alerts() -> Vec<String> {
    let alerts = include_str!("../../docs/metrics/alerts.yml");
    let rules = alerts.split("- alert: ").skip(1).map(|rule| {
        let value = |key: &str| {
            let mut lines = rule.lines();
            let value = lines.find_map(|line| line.trim().strip_prefix(key));
            value
                .unwrap_or_else(|| panic!("{key} in {rule}"))
                .to_owned()
        };
        value("severity: ");
        let (expression, summary) = (value("expr: "), value("summary: "));
        assert!(
            summary.starts_with('"') && summary.ends_with('"'),
            "{summary}"
        );
        expression
    });
    rules.collect()
}
