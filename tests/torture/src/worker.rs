//! A worker process: threads that do one task after the other until standard input ends.

mod contending_session;
mod context;
mod errors;
mod failed_statement;
mod guards;
mod ignored_faults;
mod leases;
mod locks;
mod nonblocking;
mod operation;
mod panics;
mod pool;
mod purges;
mod requests;
mod retry;
mod sequences;
mod slots;
mod ticks;
mod transfers;
mod workload;

use std::io::{BufRead, Read, stdin};
use std::panic;
use std::process::id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result};
use diesel_locks::{LockPool, SlotRenewer};
use signal_hook::low_level::exit;
use torture_history::{Client, Moment, Op, Outcome, Record, Task, Writer};

use crate::engine::with_connection;
use crate::job::Job;
use crate::store::Store;

use context::WorkerContext;
pub(crate) use errors::Failure;
pub(crate) use nonblocking::ticks::Ticking;
use operation::Operation;
use pool::pool;
pub(crate) use ticks::timer_job;
use workload::Workload;

/// The process. However it ends, it ends without the exit handlers of C libraries: those of OpenSSL and Kerberos
/// destroy what another thread of the pool may be using to open a connection to PostgreSQL, and the process would
/// crash.
pub(crate) fn main() -> ! {
    // Whatever panics is a finding, and is not to be taken for something that hangs.
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        tell(panic);
        exit(101);
    }));
    if let Err(error) = run() {
        eprintln!("torture: {error:#}");
        exit(2);
    }
    exit(0)
}

fn run() -> Result<()> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    let job: Job = serde_json::from_str(&line).context("the job")?;
    with_connection!(job.engine, C => work::<C>(job))
}

fn work<C: Store>(job: Job) -> Result<()> {
    let history = Arc::new(Writer::for_process(&job.directory, job.process)?);
    history.write(&Record::Process {
        process: job.process,
        worker: job.worker,
        pid: id(),
        at: Moment::now(),
    })?;
    let pool = pool::<C>(&job);
    let context = Arc::new(WorkerContext {
        locks: LockPool::new(pool.clone()),
        renewer: SlotRenewer::new(pool.clone()),
        pool,
        history,
        operations: AtomicU32::new(0),
        is_over: AtomicBool::new(false),
        job,
    });
    let mut threads: Vec<_> = (0..context.job.threads)
        .map(|thread| {
            let context = Arc::clone(&context);
            thread::spawn(move || {
                exit_on_error(&context, context.serve(thread));
            })
        })
        .collect();
    threads.extend((0..context.job.async_threads).map(|number| {
        let context = Arc::clone(&context);
        thread::spawn(move || {
            exit_on_error(&context, nonblocking::serve(&context, number));
        })
    }));
    // The coordinator closes it, on purpose or when it ends.
    let _ = stdin().lock().read_to_end(&mut Vec::new());
    context.is_over.store(true, Ordering::SeqCst);
    for thread in threads {
        // One that panicked has ended the process.
        let _ = thread.join();
    }
    context
        .history
        .write(&Record::Stopped { at: Moment::now() })
}

/// Ends the process after an error.
fn exit_on_error<C: Store>(context: &WorkerContext<C>, result: Result<()>) {
    if let Err(error) = result {
        eprintln!("torture: process {}: {error:#}", context.job.process);
        exit(1);
    }
}

impl<C: Store> WorkerContext<C> {
    fn serve(&self, thread: u32) -> Result<()> {
        let mut workload = Workload::new(&self.job, thread);
        while !self.is_over() {
            let (client, task) = workload.blocking_task();
            let operation = self.begin(thread, client, &task)?;
            let result = self.attempt(client, &task, &operation, &mut workload);
            workload.pause(self.end(&operation, result)?);
        }
        Ok(())
    }

    /// Notes that an operation begins.
    fn begin(&self, thread: u32, client: Client, task: &Task) -> Result<Operation> {
        // Those of the operation before.
        let _ = failed_statement::failed_statements();
        let count = self.operations.fetch_add(1, Ordering::SeqCst);
        let history = Arc::clone(&self.history);
        let operation = Operation::new(Op::of(self.job.process, count), history);
        self.history.write(&Record::Began {
            op: operation.op,
            thread,
            client,
            task: task.clone(),
            at: Moment::now(),
        })?;
        Ok(operation)
    }

    /// Notes that it has ended. Returns the longest pause before the next one, in milliseconds.
    fn end(&self, operation: &Operation, result: Result<Outcome, Failure>) -> Result<u64> {
        let outcome = result.unwrap_or_else(errors::FailureExt::outcome);
        let failed = matches!(outcome, Outcome::Failed { .. });
        self.history.write(&Record::Ended {
            op: operation.op,
            outcome,
            held_until: operation.held_until(),
            at: Moment::now(),
        })?;
        // Not to be busy with nothing while the database is away.
        Ok(if failed { 20 } else { 2 })
    }

    fn attempt(
        &self,
        client: Client,
        task: &Task,
        operation: &Operation,
        workload: &mut Workload,
    ) -> Result<Outcome, Failure> {
        match task {
            Task::Lock(locking) => locks::count_up(self, client, operation, workload, locking),
            Task::Lease {
                semaphore,
                permits,
                renewed: true,
                lease_ms,
                wait,
            } => {
                let lease = (*lease_ms, *permits);
                leases::with_guard(self, operation, workload, semaphore, lease, *wait)
            }
            Task::Lease {
                semaphore,
                permits,
                renewed: false,
                lease_ms,
                wait,
            } => {
                let lease = (*lease_ms, *permits);
                leases::without_guard(self, operation, workload, semaphore, lease, *wait)
            }
            Task::Pinned { lease_ms } => leases::pinned(self, operation, workload, *lease_ms),
            Task::Revoked { lease_ms } => guards::revoked(self, operation, *lease_ms),
            Task::Asked { lease_ms } => guards::asked(self, operation, *lease_ms),
            Task::Stuck { lease_ms } => guards::stuck(self, operation, *lease_ms),
            Task::HandOver => guards::hand_over(self, operation, workload),
            Task::Tick { lease_ms } => ticks::run_one(self, operation, workload, *lease_ms),
            Task::Slot { permits, wait } => {
                slots::use_slot(self, operation, workload, *permits, *wait)
            }
            Task::Pass { sequence } => sequences::issue(self, operation, workload, *sequence),
            Task::Transfer { from, to } => {
                transfers::transfer(self, operation, workload, *from, *to)
            }
            Task::SetPermits { permits } => slots::set_permits(self, *permits),
            Task::Purge => purges::purge(self),
            Task::IgnoreFault {
                method,
                injected,
                nested,
                request,
                counters,
            } => {
                let plan = ignored_faults::Plan {
                    method: *method,
                    injected: *injected,
                    nested: *nested,
                    request: *request,
                    counters: *counters,
                };
                ignored_faults::ignore_fault(self, operation, workload, &plan)
            }
            Task::Panic {
                method,
                counter,
                depth,
            } => panics::panic(self, operation, workload, *method, *counter, *depth),
        }
    }
}
