//! A worker process: threads that do one task after the other until standard input ends.

mod asked;
mod dice;
mod leases;
mod locks;
mod operation;
mod panics;
mod partner;
mod passes;
mod pool;
mod purges;
mod retried;
mod slots;
mod swallows;
mod transfers;
mod trouble;

use std::io::{BufRead, Read, stdin};
use std::panic;
use std::process::id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result};
use diesel_locks::SlotRenewer;
use signal_hook::low_level::exit;
use torture_history::{Moment, Op, Outcome, Record, Task, Writer};

use crate::engine::with_connection;
use crate::job::Job;
use crate::store::Store;

use dice::Dice;
use operation::Operation;
use pool::{Connections, pool};

/// What the threads of a worker share.
pub(crate) struct Shift<C: Store> {
    pub(crate) job: Job,
    pub(crate) pool: Connections<C>,
    pub(crate) renewer: SlotRenewer<C>,
    pub(crate) history: Writer,
    operations: AtomicU32,
    is_over: AtomicBool,
}

/// The process. However it ends, it ends without the exit handlers of C libraries: those of OpenSSL and Kerberos destroy
/// what another thread of the pool may be using to open a connection to PostgreSQL, and the process would crash.
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
    let history = Writer::of_process(&job.directory, job.process)?;
    history.write(&Record::Process {
        process: job.process,
        worker: job.worker,
        pid: id(),
        at: Moment::now(),
    })?;
    let pool = pool::<C>(&job);
    let shift = Arc::new(Shift {
        renewer: SlotRenewer::new(pool.clone()),
        pool,
        history,
        operations: AtomicU32::new(0),
        is_over: AtomicBool::new(false),
        job,
    });
    let threads: Vec<_> = (0..shift.job.threads)
        .map(|thread| {
            let shift = Arc::clone(&shift);
            thread::spawn(move || {
                if let Err(error) = shift.serve(thread) {
                    eprintln!("torture: process {}: {error:#}", shift.job.process);
                    exit(1);
                }
            })
        })
        .collect();
    // Whoever started it closes it, by intent or by its own end.
    let _ = stdin().lock().read_to_end(&mut Vec::new());
    shift.is_over.store(true, Ordering::SeqCst);
    for thread in threads {
        // One that panicked has ended the process.
        let _ = thread.join();
    }
    shift.history.write(&Record::Stopped { at: Moment::now() })
}

impl<C: Store> Shift<C> {
    fn serve(&self, thread: u32) -> Result<()> {
        let mut dice = Dice::new(&self.job, thread);
        while !self.is_over.load(Ordering::SeqCst) {
            let task = dice.task();
            let count = self.operations.fetch_add(1, Ordering::SeqCst);
            let operation = Operation::new(Op::of(self.job.process, count), &self.history);
            self.history.write(&Record::Began {
                op: operation.op,
                thread,
                task: task.clone(),
                at: Moment::now(),
            })?;
            let result = self.attempt(&task, &operation, &mut dice);
            let outcome = result.unwrap_or_else(trouble::Told::outcome);
            let failed = matches!(outcome, Outcome::Failed { .. });
            self.history.write(&Record::Ended {
                op: operation.op,
                outcome,
                held_until: operation.held_until(),
                at: Moment::now(),
            })?;
            // Not to be busy with nothing while the database is away.
            dice.pause(if failed { 20 } else { 2 });
        }
        Ok(())
    }

    fn attempt(
        &self,
        task: &Task,
        operation: &Operation,
        dice: &mut Dice,
    ) -> Result<Outcome, trouble::Failure> {
        match task {
            Task::Lock {
                counters,
                kept,
                wait,
            } => locks::count_up(self, operation, dice, counters, *kept, *wait),
            Task::Lease {
                semaphore,
                renewed: true,
                lease_ms,
                wait,
            } => leases::renewed(self, operation, dice, semaphore, *lease_ms, *wait),
            Task::Lease {
                semaphore,
                renewed: false,
                lease_ms,
                wait,
            } => leases::plain(self, operation, dice, semaphore, *lease_ms, *wait),
            Task::Ensured { lease_ms } => leases::ensured(self, operation, dice, *lease_ms),
            Task::Slot { wait } => slots::visit(self, operation, dice, *wait),
            Task::Pass { sequence } => passes::issue(self, operation, dice, *sequence),
            Task::Transfer { from, to } => transfers::transfer(self, operation, dice, *from, *to),
            Task::Purge => purges::purge(self),
            Task::Swallow {
                form,
                mishap,
                nested,
                ask,
                counters,
            } => {
                let plan = swallows::Plan {
                    form: *form,
                    mishap: *mishap,
                    nested: *nested,
                    ask: *ask,
                    counters: *counters,
                };
                swallows::swallow(self, operation, dice, &plan)
            }
            Task::Panic {
                form,
                counter,
                depth,
            } => panics::panic(self, operation, dice, *form, *counter, *depth),
        }
    }
}
