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
use torture_history::{FaultKind, Histories, workload_spec};

use crate::arguments::{Fault, Run};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::database::{Database, primary};
use crate::directory::Directory;
use crate::engine::{Engine, with_connection};
use crate::job::Job;
use crate::nemesis;
use crate::proxy::Proxy;
use crate::routing;
use crate::run_context::{RunContext, Targets};
use crate::sessions::Sessions;
use crate::store::Store;
use crate::verdict;
use crate::worker_pool::{FakeClock, WorkerPool};

/// How often is looked whether all workers are there.
const PAUSE: Duration = Duration::from_millis(200);

/// How long workers may take to stop: an operation, and the end of the runtime in which it was.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: &Run) -> Result<ExitCode> {
    // A stopped worker would outlive this process.
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst))?;
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let directory = Directory::create(arguments.keep.as_deref())?;
    let database = Database::create(&arguments.url, arguments.cluster)?;
    if let Some(sabotage) = arguments.sabotage {
        sabotage.check(arguments.cluster)?;
    }
    prepare(&database)?;
    let clocks = match database.name() {
        Some(name) if database.engine == Engine::Postgres => Clock::for_postgres(&database, name)?,
        name => {
            let files = arguments.clock.iter().cloned();
            let clocks = files.map(|file| Clock::for_file(file, name.is_none()));
            clocks.collect()
        }
    };
    for (node, clock) in clocks.iter().enumerate() {
        ensure_clock_is_followed(&database, node, clock)?;
    }
    let kinds = kinds(arguments, &database, !clocks.is_empty())?;
    eprintln!(
        "torture: seed {seed}, {} s, {} processes of {} threads and {} asynchronous ones, faults: {}",
        arguments.seconds,
        arguments.workers,
        arguments.threads,
        arguments.async_threads,
        names(&kinds)
    );

    let addresses = database.addresses()?;
    let proxies = (0..arguments.workers)
        .filter(|_| !addresses.is_empty())
        .map(|_| Proxy::to(addresses.clone()))
        .collect::<std::io::Result<Vec<_>>>()?;
    if let Some(cluster) = database.cluster.filter(|cluster| cluster.has_primary()) {
        let routes = proxies.iter().map(Proxy::route).collect();
        routing::follow_primary(cluster, &arguments.url, addresses, routes);
    }
    let jobs = (0..arguments.workers)
        .map(|worker| {
            let proxy = proxies.get(usize::try_from(worker)?);
            Ok(Job {
                engine: database.engine,
                cluster: database.cluster,
                url: match proxy {
                    Some(proxy) => database.url_by_way_of(proxy.port())?,
                    None => database.urls[0].clone(),
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
    let file = arguments.clock.first().cloned();
    let fake = arguments.faketime.clone().zip(file);
    let worker_pool = WorkerPool::start(
        jobs,
        fake.map(|(library, file)| FakeClock { library, file }),
    )?;
    let targets = Targets {
        engine: database.engine,
        cluster: database.cluster,
        urls: database.urls.clone(),
        worker_pool,
        proxies,
        kill_server: arguments.kill_server.clone(),
        kill_network: arguments.kill_network.clone(),
        switch_over: arguments.switch_over.clone(),
        clocks,
    };
    let context = RunContext::new(targets, Duration::from_secs(arguments.seconds));
    let watched = watch(&context, &kinds, seed, &interrupted);
    let faults = std::mem::take(&mut *context.faults());
    let written = directory.write("faults.json", &faults);
    let reported = watched.and(written).and_then(|()| {
        let killed = context.into_worker_pool().stop(STOP_TIMEOUT)?;
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
fn ensure_clock_is_followed(database: &Database, node: usize, clock: &Clock) -> Result<()> {
    const FAR: i64 = 3600;
    clock.set(0)?;
    let is_standby =
        database.engine == Engine::Postgres && node != primary(database.cluster, &database.urls)?;
    // The clock of SQLite's databases is that of the workers. A standby gets the row after a delay, so only the primary's clock is
    // tested.
    if database.engine == Engine::Sqlite || is_standby {
        return Ok(());
    }
    let now = || -> Result<i64> {
        with_connection!(database.engine, C => Ok(database.connect_to::<C>(node)?.clock()?))
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

    if let Some(cluster) = database.cluster {
        cluster.await_whole(&database.urls, |_| ())?;
    }
    let has_primary = database.cluster.is_some_and(Cluster::has_primary);
    with_connection!(database.engine, C => {
        let migrate = |node: Option<usize>| -> Result<C> {
            let mut conn: C = match node {
                Some(node) => database.connect_to(node)?,
                None => database.connect()?,
            };
            conn.batch_execute(&C::settings())?;
            diesel_locks::migrate(&mut conn)?;
            Ok(conn)
        };
        // As applications do that start everywhere at once.
        thread::scope(|scope| {
            let others = (1..database.urls.len()).filter(|_| !has_primary).map(|node| scope.spawn(move || migrate(Some(node)).map(drop)));
            let others: Vec<_> = others.collect();
            let own = migrate(None).map(drop);
            let mut all = others.into_iter().map(|other| other.join().expect("no panic"));
            all.try_fold((), |(), migrated| migrated).and(own)
        })?;
        if let Some(cluster) = database.cluster {
            cluster.await_whole(&database.urls, |_| ())?;
        }
        let mut conn: C = database.connect()?;
        conn.batch_execute(&C::settings())?;
        conn.create_tables()?;
        // The ticks that were run are in the timer's slot, which no purge is to remove.
        let registered = [workload_spec::PINNED, workload_spec::LEASED[0], workload_spec::LIMITED, workload_spec::TIMER]
            .map(|semaphore| Semaphore::new(semaphore.name, semaphore.permits));
        conn.register_semaphores(&registered)?;
        Ok(())
    })
}

fn kinds(arguments: &Run, database: &Database, has_clock: bool) -> Result<Vec<FaultKind>> {
    let possible = nemesis::possible(database.engine, database.cluster, arguments, has_clock);
    if arguments.faults.is_empty() {
        let without = |kind: &FaultKind| !arguments.without.contains(&Fault::Of(*kind));
        return Ok(possible.into_iter().filter(without).collect());
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
