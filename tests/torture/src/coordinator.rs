//! A run, from its beginning to its end.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use diesel::connection::SimpleConnection;
use diesel_locks::Semaphore;
use torture_checker::Evidence;
use torture_history::{FaultKind, Histories, workload_spec};

use crate::arguments::{Fault, Run};
use crate::clock::Clock;
use crate::database::Database;
use crate::directory::Directory;
use crate::engine::{Engine, with_connection};
use crate::job::Job;
use crate::nemesis;
use crate::proxy::Proxy;
use crate::run_context::{RunContext, Targets};
use crate::store::Store;
use crate::verdict::{self, OPERATION_LIMIT};
use crate::worker_pool::{FakeClock, WorkerPool};

/// How often is looked whether all workers are there.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(arguments: &Run) -> Result<ExitCode> {
    // A stopped worker would outlive this process.
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst))?;
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let directory = Directory::create(arguments.keep.as_deref())?;
    let database = Database::create(arguments.url.as_deref())?;
    prepare(&database)?;
    let clock = match (database.name(), &arguments.clock) {
        (Some(name), _) if database.engine == Engine::Postgres => {
            Some(Clock::for_postgres(&database.url, name)?)
        }
        (name, file) => {
            let file = file.clone();
            file.map(|file| Clock::for_file(file, name.is_none()))
        }
    };
    if let Some(clock) = &clock {
        ensure_clock_is_followed(&database, clock)?;
    }
    let kinds = kinds(arguments, &database, clock.is_some())?;
    eprintln!(
        "torture: seed {seed}, {} s, {} processes of {} threads and {} asynchronous ones, faults: {}",
        arguments.seconds,
        arguments.workers,
        arguments.threads,
        arguments.async_threads,
        names(&kinds)
    );

    let proxies = match database.address()? {
        Some(address) => (0..arguments.workers)
            .map(|_| Proxy::to(address))
            .collect::<std::io::Result<Vec<_>>>()?,
        None => Vec::new(),
    };
    let jobs = (0..arguments.workers)
        .map(|worker| {
            let proxy = proxies.get(usize::try_from(worker)?);
            Ok(Job {
                engine: database.engine,
                url: match proxy {
                    Some(proxy) => database.url_by_way_of(proxy.port())?,
                    None => database.url.clone(),
                },
                process: 0,
                worker,
                threads: arguments.threads,
                async_threads: arguments.async_threads,
                drops: kinds.contains(&FaultKind::Drop),
                seed,
                sabotage: arguments.sabotage,
                directory: directory.path().to_owned(),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let fake = arguments.faketime.clone().zip(arguments.clock.clone());
    let worker_pool = WorkerPool::start(
        jobs,
        fake.map(|(library, file)| FakeClock { library, file }),
    )?;
    let targets = Targets {
        engine: database.engine,
        url: database.url.clone(),
        worker_pool,
        proxies,
        kill_server: arguments.kill_server.clone(),
        clock,
    };
    let context = RunContext::new(targets, Duration::from_secs(arguments.seconds));
    let watched = watch(&context, &kinds, seed, &interrupted);
    let faults = std::mem::take(&mut *context.faults());
    let written = directory.write("faults.json", &faults);
    let reported = watched.and(written).and_then(|()| {
        let killed = context.into_worker_pool().stop(OPERATION_LIMIT)?;
        let histories = Histories {
            processes: torture_history::read_all(directory.path())?,
            faults,
        };
        verdict::report(arguments, &database, &histories, killed, seed)
    });
    if matches!(reported, Ok(true)) {
        return Ok(ExitCode::SUCCESS);
    }
    // What happened will not happen again in the same way, whether it was a violation or the end of the run.
    eprintln!(
        "torture: the histories stay in {}",
        directory.keep().display()
    );
    reported.map(|_| ExitCode::FAILURE)
}

/// An error when the database does not follow the clock, so that nothing would come of setting it.
fn ensure_clock_is_followed(database: &Database, clock: &Clock) -> Result<()> {
    const FAR: i64 = 3600;
    clock.set(0)?;
    // The clock of SQLite's databases is that of the workers.
    if database.engine == Engine::Sqlite {
        return Ok(());
    }
    let now = || -> Result<i64> {
        with_connection!(database.engine, C => {
            Ok(Evidence::read(&mut database.connect::<C>()?)?.now_us / 1_000_000)
        })
    };
    let before = now()?;
    clock.set(i32::try_from(FAR)?)?;
    let ahead = now()? - before;
    clock.set(0)?;
    ensure!(
        (FAR..FAR + 60).contains(&ahead),
        "set {FAR} s ahead, the database's clock is {ahead} s ahead"
    );
    Ok(())
}

/// The tables, and the slots of some semaphores; those of the others are made when they are asked for, and again after
/// they were purged.
fn prepare(database: &Database) -> Result<()> {
    use diesel_locks::SemaphoreExt;

    with_connection!(database.engine, C => {
        let mut conn: C = database.connect()?;
        conn.batch_execute(&C::settings())?;
        diesel_locks::migrate(&mut conn)?;
        conn.create_tables()?;
        let registered = [workload_spec::PINNED, workload_spec::LEASED[0]]
            .map(|semaphore| Semaphore::new(semaphore.name, semaphore.permits));
        conn.register_semaphores(&registered)?;
        Ok(())
    })
}

fn kinds(arguments: &Run, database: &Database, has_clock: bool) -> Result<Vec<FaultKind>> {
    let possible = nemesis::possible(database.engine, arguments.kill_server.is_some(), has_clock);
    if arguments.faults.is_empty() {
        return Ok(possible);
    }
    let mut kinds = Vec::new();
    for fault in &arguments.faults {
        match fault {
            Fault::None => ensure!(arguments.faults.len() == 1, "none, or some faults"),
            Fault::Of(kind) => {
                ensure!(
                    possible.contains(kind),
                    "{} can't be done to this database; these can: {}",
                    kind.name(),
                    names(&possible)
                );
                kinds.push(*kind);
            }
        }
    }
    Ok(kinds)
}

fn names(kinds: &[FaultKind]) -> String {
    if kinds.is_empty() {
        return "none".into();
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

/// The time during which faults happen.
fn watch(
    context: &RunContext,
    kinds: &[FaultKind],
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<()> {
    thread::scope(|scope| {
        let (over, is_over) = channel();
        scope.spawn(move || {
            // The receiver is gone when a worker has failed.
            let _ = over.send(nemesis::inject_faults(context, kinds, seed));
        });
        let check = || {
            if interrupted.load(Ordering::SeqCst) {
                context.abort();
                bail!("interrupted");
            }
            context.worker_pool.check().inspect_err(|_| context.abort())
        };
        let injected = loop {
            check()?;
            if let Ok(result) = is_over.recv_timeout(PAUSE) {
                break result;
            }
        };
        while !context.is_over() {
            check()?;
            context.sleep(PAUSE);
        }
        injected
    })
}
