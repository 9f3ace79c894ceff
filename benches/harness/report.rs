//! The options that the benchmarks have in common, and the report: tables in Markdown, targets and whether they are met.

use anyhow::Result;
use clap::{Args, ValueEnum};
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use serde_json::{Value, json};

use super::{Backend, Connections, Engine, Figure, Plan, Rows, Samples, Variant};

/// Servers: `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, set by `cargo xtask with-servers --durable -- ..`.
#[derive(Args)]
pub(crate) struct Common<P: ValueEnum + Copy + Send + Sync + 'static> {
    /// The engines to measure; without it all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    backends: Vec<Engine>,
    /// The parts to measure; without it all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<P>,
    /// The number of rounds of each variant.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Takes a few seconds, to see that it runs; too short to judge by.
    #[arg(long)]
    quick: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl<P: ValueEnum + Copy + PartialEq + Send + Sync> Common<P> {
    pub(crate) fn has(&self, part: P) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    pub(crate) fn quick_or<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Runs a benchmark on each engine, by the first plan with `--quick`, or else by the second one, and reports it. `judged`
    /// says what is special about some of the targets.
    pub(crate) fn run(
        &self,
        benchmark: &impl Benchmark,
        quick: Plan,
        full: Plan,
        judged: &str,
    ) -> Result<()> {
        let remark = self.quick_or(" `--quick`: too short to judge by.", "");
        let plan = self.quick_or(quick, full);
        let rounds = self.rounds.unwrap_or(plan.rounds);
        let plan = Plan { rounds, ..plan };
        println!(
            "Rounds of each variant, interleaved: {rounds} of {:?}.{remark}",
            plan.round
        );
        let mut report = Report {
            quick: self.quick,
            version: String::new(),
            targets: Vec::new(),
        };
        for &engine in Engine::selected(&self.backends)? {
            match engine {
                Engine::Postgres => report.add::<PgConnection>(benchmark, plan)?,
                Engine::Mysql => report.add::<MysqlConnection>(benchmark, plan)?,
                Engine::Sqlite => report.add::<SqliteConnection>(benchmark, plan)?,
            }
        }
        report.end(judged);
        Ok(())
    }
}

/// A benchmark with rounds.
pub(crate) trait Benchmark {
    /// Measures its parts on one engine.
    fn measure<C: Backend>(&self, plan: Plan, report: &mut Report) -> Result<()>;
}

/// The name of a value on the command line.
pub(crate) fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// `1 connection`, `8 connections`.
pub(crate) fn connections(count: usize) -> String {
    let several = if count == 1 { "" } else { "s" };
    format!("{count} connection{several}")
}

fn header(columns: &str) {
    println!(
        "| {columns} |\n{}|",
        "|---".repeat(columns.split('|').count())
    );
}

/// A cell of a table.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => match value.as_f64() {
            Some(number) if !value.is_f64() || number.abs() >= 10.0 => format!("{number:.0}"),
            Some(number) => format!("{number:.2}"),
            None => value.to_string(),
        },
    }
}

/// Prints what was measured as it comes, and keeps targets for the end.
pub(crate) struct Report {
    quick: bool,
    version: String,
    targets: Vec<Target>,
}

#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

struct Target {
    text: String,
    ratio: Figure,
    limit: Limit,
}

#[allow(clippy::unused_self, reason = "what is added to a report")]
impl Report {
    fn add<C: Backend>(&mut self, benchmark: &impl Benchmark, plan: Plan) -> Result<()> {
        self.version = Connections::<C>::new(1)?.first().version()?;
        println!("\n## {}", self.version);
        benchmark.measure::<C>(plan, self)
    }

    /// Begins a table, with ` | ` between the names of its columns.
    pub(crate) fn table(&mut self, title: &str, columns: &str) {
        println!("\n{title}:\n");
        header(columns);
    }

    /// A row of the table, which is an array.
    pub(crate) fn row(&mut self, cells: &Value) {
        let cells = cells.as_array().expect("an array");
        let texts: Vec<_> = cells.iter().map(cell).collect();
        println!("| {} |", texts.join(" | "));
    }

    pub(crate) fn target(&mut self, text: &str, ratio: Figure, limit: Limit) {
        let text = format!("{}, {text}", self.version);
        self.targets.push(Target { text, ratio, limit });
    }

    /// The speeds of all variants, and how many times as fast as each `ours` is. `limits` are targets for that.
    pub(crate) fn speeds<V: Variant>(
        &mut self,
        scenario: &str,
        rows: &Rows<V>,
        ours: V,
        limits: &[(V, f64)],
    ) {
        let what = format!("{scenario}, {}", connections(rows.connections as usize));
        let our_name = ours.name();
        let title = format!("{what}, per second");
        let columns = format!("variant | per second | {our_name} / it | refusals | deadlocks");
        self.table(&title, &columns);
        for &(variant, _) in &rows.rows {
            self.row(&json!([
                variant.name(),
                rows.speeds(variant).median(),
                rows.ratio(ours, variant).value,
                rows.count(variant, |it| it.refusals),
                rows.count(variant, |it| it.deadlocks),
            ]));
        }
        for &(variant, limit) in limits {
            let text = format!("{what}: per second, {our_name} / {}", variant.name());
            self.target(&text, rows.ratio(ours, variant), Limit::AtLeast(limit));
        }
    }

    /// Begins a table of µs per cycle under an old snapshot.
    pub(crate) fn growth_table(&mut self, what: &str) {
        let title = format!(
            "{what} while another session holds an old snapshot, µs per cycle of each fifth"
        );
        let columns =
            "variant | cycles | without the snapshot | 1st | 2nd | 3rd | 4th | 5th | last / first";
        self.table(&title, columns);
    }

    /// A row of that table. Returns the last fifth divided by the first.
    pub(crate) fn growth(
        &mut self,
        name: &str,
        cycles: u32,
        (times, without): &(Samples, Samples),
    ) -> f64 {
        let fifths: Vec<f64> = times.fifths().iter().map(Samples::median).collect();
        let growth = fifths[fifths.len() - 1] / fifths[0];
        let mut cells = vec![json!(name), json!(cycles), json!(without.median())];
        cells.extend(fifths.into_iter().map(Value::from));
        cells.push(json!(growth));
        self.row(&Value::Array(cells));
        growth
    }

    /// Prints the targets and whether they are met.
    fn end(&self, judged: &str) {
        if !self.targets.is_empty() {
            println!("\n## Targets\n");
            println!("The range is that of the same ratio in each fifth of the rounds. {judged}\n");
            header("target | ratio | range | limit | ");
        }
        for Target { text, ratio, limit } in &self.targets {
            let Figure {
                value,
                least,
                greatest,
            } = *ratio;
            let (met, limit) = match *limit {
                Limit::AtMost(limit) => (value <= limit, format!("≤ {limit:.2}")),
                Limit::AtLeast(limit) => (value >= limit, format!("≥ {limit:.2}")),
            };
            let verdict = match (self.quick, met) {
                (true, _) => "not judged",
                (false, true) => "PASS",
                (false, false) => "MISS",
            };
            println!("| {text} | {value:.2} | {least:.2} to {greatest:.2} | {limit} | {verdict} |");
        }
    }
}
