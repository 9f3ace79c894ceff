//! `web measure`: two instances on one database, and many clients.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use program_support::arguments::DatabaseArguments;
use program_support::database::Database;
use program_support::terminal;

use client::Client;
use figures::Figures;
use holders::Watch;
use instance::Instance;

mod client;
mod figures;
mod holders;
mod instance;

/// The pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause between two health checks.
const CHECK_PAUSE: Duration = Duration::from_millis(20);

/// How many new holders are waited for.
const HOLDERS: u32 = 20;

/// Measure health checks, and the time until a new holder is shown, on two instances under load, and end
///
/// In the first part half of the clients wait for one document, and the others read the accounts, each ten times a
/// second. In the second part the first half store documents of their own. The document and the semaphore that this
/// uses are named "measure".
#[derive(Args)]
pub(crate) struct MeasureArguments {
    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = RangedU64ValueParser::<u32>::new().range(2..=1000))]
    clients: u32,

    /// Seconds of the first part
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = RangedU64ValueParser::<u64>::new().range(1..=40))]
    seconds: u64,
}

/// Measures, and prints the figures.
pub(crate) fn run(database: &Database, arguments: &MeasureArguments) -> Result<()> {
    let start = |name| Instance::start(database, name, arguments.clients);
    let instances = [start("measure-1")?, start("measure-2")?];
    let half = arguments.clients / 2;
    terminal::print(format!(
        "2 instances on {}, {} clients",
        instances[0].engine()?,
        arguments.clients
    ));
    let waiting = health_while_waiting(&instances, half, Duration::from_secs(arguments.seconds))?;
    waiting.print(&format!(
        "health checks while {half} clients wait for one document and {half} read"
    ));
    let (storing, shown) = while_storing(&instances, half)?;
    storing.print(&format!(
        "health checks while {half} clients store documents and {half} read"
    ));
    shown.print("from the grant of a slot to an event of the other instance that shows its holder");
    Ok(())
}

/// Half of the clients wait for one document, which one more client holds.
fn health_while_waiting(
    instances: &[Instance; 2],
    half: u32,
    duration: Duration,
) -> Result<Figures> {
    let ended = AtomicBool::new(false);
    // Longer than the waiters wait, so that the lock is not granted to any of them.
    let path = format!(
        "/documents/measure?hold_ms={}",
        (duration + Duration::from_secs(5)).as_millis()
    );
    thread::scope(|scope| {
        let _end = SetOnDrop(&ended);
        for number in 0..=half {
            let client = Client::new(of(instances, number), duration + Duration::from_secs(2));
            let path = path.as_str();
            // The one that holds the lock, and the others, hang up at the end.
            scope.spawn(move || client.put_document(path));
        }
        read(scope, instances, half, &ended);
        let deadline = Instant::now() + duration;
        let mut waiting = 0;
        while waiting < u64::from(half) {
            ensure!(
                Instant::now() < deadline,
                "only {waiting} of {half} clients wait for the document"
            );
            waiting = instances[0].waiting()? + instances[1].waiting()?;
        }
        let figures = check_until(instances, || Instant::now() >= deadline);
        waiting = instances[0].waiting()? + instances[1].waiting()?;
        ensure!(
            waiting >= u64::from(half),
            "only {waiting} of {half} clients waited to the end"
        );
        figures
    })
}

/// Half of the clients store documents. Returns the times of health checks, and those until a new holder is shown.
fn while_storing(instances: &[Instance; 2], half: u32) -> Result<(Figures, Figures)> {
    // The holder of the first part still holds its lock, and on SQLite nobody else can write.
    Client::new(instances[0].address, Duration::from_secs(60))
        .put_document("/documents/measure")?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&ended);
        for number in 0..half {
            let client = Client::new(of(instances, number), Duration::from_secs(60));
            let ended = &ended;
            let path = format!("/documents/measure-{number}");
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    // A request that is not answered in time has no figure.
                    let _ = client.put_document(&path);
                    thread::sleep(PAUSE);
                }
            });
        }
        read(scope, instances, half, &ended);
        let all_shown = AtomicBool::new(false);
        thread::scope(|scope| {
            let checks =
                scope.spawn(|| check_until(instances, || all_shown.load(Ordering::Relaxed)));
            let shown = {
                let _end = SetOnDrop(&all_shown);
                new_holders(instances)
            };
            let checks = checks.join().expect("health checks don't panic");
            Ok((checks?, shown?))
        })
    })
}

/// Starts jobs on the instances by turns, until the other one shows them.
fn new_holders(instances: &[Instance; 2]) -> Result<Figures> {
    let mut watches = [Watch::start(&instances[0])?, Watch::start(&instances[1])?];
    let mut figures = Figures::default();
    for turn in 0..HOLDERS as usize {
        let client = Client::new(instances[turn % 2].address, Duration::from_secs(60));
        let grant = client.start_job()?;
        let granted = Instant::now();
        let shown = watches[(turn + 1) % 2].wait_for(&grant)?;
        figures.add(shown.saturating_duration_since(granted));
        client.release(&grant)?;
    }
    Ok(figures)
}

/// Half of the clients read.
fn read<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    instances: &[Instance; 2],
    half: u32,
    ended: &'scope AtomicBool,
) {
    for number in 0..half {
        let client = Client::new(of(instances, number), Duration::from_secs(60));
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let _ = client.get("/accounts");
                thread::sleep(PAUSE);
            }
        });
    }
}

/// Checks both instances until the end.
fn check_until(instances: &[Instance; 2], is_end: impl Fn() -> bool + Sync) -> Result<Figures> {
    let figures = Mutex::new(Figures::default());
    thread::scope(|scope| {
        let checks = instances.each_ref().map(|instance| {
            scope.spawn(|| -> Result<()> {
                let client = Client::new(instance.address, Duration::from_secs(60));
                while !is_end() {
                    let asked = Instant::now();
                    client.get("/health").context("a health check failed")?;
                    let took = asked.elapsed();
                    figures.lock().expect("no check panics").add(took);
                    thread::sleep(CHECK_PAUSE);
                }
                Ok(())
            })
        });
        for check in checks {
            check.join().expect("no check panics")?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(figures.into_inner().expect("no check panics"))
}

fn of(instances: &[Instance; 2], number: u32) -> std::net::SocketAddr {
    instances[number as usize % 2].address
}

/// Ends the clients, also after an error.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
