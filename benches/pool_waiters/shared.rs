//! Two processes that compete for one lock or slot, and wait in the same way or in different ways.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use serde_json::{Value, json};

use crate::application::{Database, Kind, Way, pool, run};
use crate::engine::PooledEngine;
use crate::options::Options;

/// The threads of a process.
const THREADS: usize = 8;

/// How a benchmark starts a process of its own.
const FLAG: &str = "--process";

const PAIRS: [[Way; 2]; 3] = [
    [Way::Connection, Way::Connection],
    [Way::LockPool, Way::LockPool],
    [Way::LockPool, Way::Connection],
];

pub(crate) fn measure<C: PooledEngine>(
    database: &mut Database<C>,
    options: &Options,
) -> Result<Vec<Value>> {
    let time = options.round * 2;
    println!("Two processes of {THREADS} threads, transactions per second of each:\n");
    println!("| | first waits on | second waits on | first | second |");
    println!("|---|---|---|---|---|");
    let url = database.url()?;
    let mut figures = Vec::new();
    for kind in Kind::ALL {
        for ways in PAIRS {
            let mut grants = [0; 2];
            for _ in 0..options.rounds {
                let processes = ways.map(|way| Process::start::<C>(&url, kind, way, time));
                let [first, second] = processes;
                let mut processes = [first?, second?];
                for process in &mut processes {
                    process.expect_ready()?;
                }
                for process in &mut processes {
                    process.go()?;
                }
                for (process, grants) in processes.into_iter().zip(&mut grants) {
                    *grants += process.grants()?;
                }
            }
            let time = time.as_secs_f64() * u32::try_from(options.rounds).map_or(1.0, f64::from);
            let per_second = grants.map(|grants| f64::from(grants) / time);
            println!(
                "| {} | {} | {} | {:.0} | {:.0} |",
                kind.text(),
                ways[0].text(),
                ways[1].text(),
                per_second[0],
                per_second[1]
            );
            figures.push(json!({
                "backend": C::NAME,
                "part": "shared",
                "kind": kind.text(),
                "ways": ways.map(Way::text),
                "per_second": per_second,
            }));
        }
    }
    println!();
    Ok(figures)
}

/// Another process with threads that wait.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start<C: PooledEngine>(url: &str, kind: Kind, way: Way, time: Duration) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args([FLAG, C::NAME, url, kind.text(), way.text()])
            .arg(time.as_millis().to_string())
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

    fn expect_ready(&mut self) -> Result<()> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            other => bail!("a process did not start: {other:?}"),
        }
    }

    fn go(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("the input is a pipe")?;
        Ok(writeln!(input, "go")?)
    }

    fn grants(mut self) -> Result<u32> {
        let grants = self.line()?.parse()?;
        self.child.wait()?;
        Ok(grants)
    }
}

/// What the process of the benchmark asks this one to do.
pub(crate) struct Request {
    backend: String,
    url: String,
    kind: Kind,
    way: Way,
    time: Duration,
}

impl Request {
    /// `None` in the process of the benchmark.
    pub(crate) fn from_arguments() -> Result<Option<Self>> {
        let arguments: Vec<_> = env::args().skip(1).collect();
        let [flag, backend, url, kind, way, millis] = arguments.as_slice() else {
            return Ok(None);
        };
        if flag != FLAG {
            return Ok(None);
        }
        let kind = Kind::ALL.into_iter().find(|known| known.text() == kind);
        let way = Way::ALL.into_iter().find(|known| known.text() == way);
        Ok(Some(Self {
            backend: backend.clone(),
            url: url.clone(),
            kind: kind.context("no such kind")?,
            way: way.context("no such way")?,
            time: Duration::from_millis(millis.parse()?),
        }))
    }

    pub(crate) fn run(&self) -> Result<()> {
        match self.backend.as_str() {
            "postgres" => self.run_on::<PgConnection>(),
            "mysql" => self.run_on::<MysqlConnection>(),
            _ => self.run_on::<SqliteConnection>(),
        }
    }

    fn run_on<C: PooledEngine>(&self) -> Result<()> {
        let pool = pool::<C>(&self.url, u32::try_from(THREADS)? * 2)?;
        println!("ready");
        std::io::stdin().read_line(&mut String::new())?;
        let seen = run(&pool, self.kind, self.way, THREADS, self.time)?;
        println!("{}", seen.hand_overs.len());
        Ok(())
    }
}
