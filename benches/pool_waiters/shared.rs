//! Two processes that compete for one lock or slot, and wait in the same way or in different ways.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use serde_json::json;

use crate::application::{Kind, Way, pool, run};
use crate::harness::{Backend, Connections, Engine, Plan, Report, name};

/// The threads of a process.
const THREADS: usize = 8;

const PAIRS: [[Way; 2]; 3] = [
    [Way::Connection, Way::Connection],
    [Way::LockPool, Way::LockPool],
    [Way::LockPool, Way::Connection],
];

pub(crate) fn measure<C: Backend>(
    conns: &Connections<C>,
    plan: Plan,
    report: &mut Report,
) -> Result<()> {
    let title = format!("Two processes of {THREADS} threads, transactions per second of each");
    let columns = "kind | first waits on | second waits on | first | second";
    report.table(&title, columns);
    let url = &conns.database.url;
    for &kind in Kind::value_variants() {
        for ways in PAIRS {
            let mut grants = [0; 2];
            for _ in 0..plan.rounds {
                let start = |way| Started::new(C::ENGINE, url, kind, way, plan.round * 2);
                let mut processes = [start(ways[0])?, start(ways[1])?];
                for process in &mut processes {
                    ensure!(process.line()? == "ready", "a process did not start");
                }
                for process in &mut processes {
                    let input = process.child.stdin.as_mut();
                    writeln!(input.context("the input is a pipe")?, "go")?;
                }
                for (mut process, grants) in processes.into_iter().zip(&mut grants) {
                    *grants += process.line()?.parse::<u32>()?;
                    process.child.wait()?;
                }
            }
            let time = plan.round.as_secs_f64() * 2.0;
            let time = time * u32::try_from(plan.rounds).map_or(1.0, f64::from);
            let [first, second] = grants.map(|grants| f64::from(grants) / time);
            let [one, other] = ways.map(|way| name(&way));
            report.row(&json!([name(&kind), one, other, first, second]));
        }
    }
    Ok(())
}

/// What a process of the benchmark's own is to do.
#[derive(Args)]
pub(crate) struct Process {
    /// The database; only such a process has it.
    #[arg(long, hide = true)]
    pub(crate) url: Option<String>,
    #[arg(long, hide = true, default_value = "sqlite")]
    engine: Engine,
    #[arg(long, hide = true, default_value = "slot")]
    kind: Kind,
    #[arg(long, hide = true, default_value = "connection")]
    way: Way,
    #[arg(long, hide = true, default_value_t = 0)]
    millis: u64,
}

impl Process {
    pub(crate) fn run(&self, url: &str) -> Result<()> {
        match self.engine {
            Engine::Postgres => self.run_on::<PgConnection>(url),
            Engine::Mysql => self.run_on::<MysqlConnection>(url),
            Engine::Sqlite => self.run_on::<SqliteConnection>(url),
        }
    }

    fn run_on<C: Backend>(&self, url: &str) -> Result<()> {
        let pool = pool::<C>(url, u32::try_from(THREADS)? * 2)?;
        println!("ready");
        stdin().read_line(&mut String::new())?;
        let time = Duration::from_millis(self.millis);
        let seen = run(&pool, self.kind, self.way, THREADS, time)?;
        println!("{}", seen.hand_overs.len());
        Ok(())
    }
}

/// Another process with threads that wait.
struct Started {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Started {
    fn new(engine: Engine, url: &str, kind: Kind, way: Way, time: Duration) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--engine", &name(&engine), "--url", url]);
        command.args(["--kind", &name(&kind), "--way", &name(&way)]);
        command.args(["--millis", &time.as_millis().to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("the output is a pipe")?;
        let output = BufReader::new(output);
        Ok(Self { child, output })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}
