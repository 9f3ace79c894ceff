//! The worker processes, seen from outside.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::job::Job;

/// How often is looked whether processes have ended.
const PAUSE: Duration = Duration::from_millis(20);

/// What SQLite's clock is, in the workers.
#[derive(Clone)]
pub(crate) struct FakeClock {
    pub(crate) library: PathBuf,
    pub(crate) file: PathBuf,
}

/// The worker processes.
pub(crate) struct WorkerPool {
    inner: Mutex<Inner>,
}

struct Inner {
    clock: Option<FakeClock>,
    next_process: u32,
    workers: Vec<Worker>,
    killed: BTreeSet<u32>,
}

struct Worker {
    job: Job,
    child: Child,
    /// Closed to stop it.
    input: Option<ChildStdin>,
}

impl WorkerPool {
    /// Starts a process for each job; their numbers of processes are given here.
    pub(crate) fn start(jobs: Vec<Job>, clock: Option<FakeClock>) -> Result<Self> {
        let mut inner = Inner {
            clock,
            next_process: 1,
            workers: Vec::new(),
            killed: BTreeSet::new(),
        };
        for job in jobs {
            let worker = inner.spawn(job)?;
            inner.workers.push(worker);
        }
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    /// How many workers there are.
    pub(crate) fn size(&self) -> usize {
        self.lock().workers.len()
    }

    /// Kills a worker's process.
    pub(crate) fn kill(&self, worker: usize) -> Result<()> {
        let inner = &mut *self.lock();
        let worker = &mut inner.workers[worker];
        if let Err(status) = kill(&mut worker.child)? {
            bail!("{worker} has ended by itself: {status}");
        }
        inner.killed.insert(worker.job.process);
        Ok(())
    }

    /// Starts a process for a worker that was killed.
    pub(crate) fn restart(&self, worker: usize) -> Result<()> {
        let mut inner = self.lock();
        let job = inner.workers[worker].job.clone();
        inner.workers[worker] = inner.spawn(job)?;
        Ok(())
    }

    pub(crate) fn pause(&self, worker: usize) {
        self.signal(worker, Signal::STOP);
    }

    pub(crate) fn wake(&self, worker: usize) {
        self.signal(worker, Signal::CONT);
    }

    /// Fails when a process has ended that the nemesis has not killed.
    pub(crate) fn check(&self) -> Result<()> {
        let inner = &mut *self.lock();
        for worker in &mut inner.workers {
            let ended = worker.child.try_wait()?;
            if let Some(status) = ended.filter(|_| !inner.killed.contains(&worker.job.process)) {
                bail!("{worker} has ended by itself: {status}");
            }
        }
        Ok(())
    }

    /// Requests all processes to stop, waits, and kills those that do not stop within this time. Returns those that the
    /// nemesis has killed: their last operations have no outcome.
    pub(crate) fn stop(self, timeout: Duration) -> Result<BTreeSet<u32>> {
        let mut inner = self
            .inner
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        for worker in &mut inner.workers {
            worker.input = None;
        }
        let started = Instant::now();
        for worker in &mut inner.workers {
            while worker.child.try_wait()?.is_none() {
                if started.elapsed() > timeout {
                    eprintln!("torture: {worker} does not stop");
                    worker.child.kill()?;
                    break;
                }
                sleep(PAUSE);
            }
            let status = worker.child.wait()?;
            let was_in_time = started.elapsed() <= timeout;
            let was_killed = inner.killed.contains(&worker.job.process);
            if was_in_time && !was_killed && !status.success() {
                bail!("{worker} has ended by itself: {status}");
            }
        }
        Ok(std::mem::take(&mut inner.killed))
    }

    fn signal(&self, worker: usize, signal: Signal) {
        let mut inner = self.lock();
        let child = &mut inner.workers[worker].child;
        // Not to a process that has been waited for: another may have its number.
        if let Ok(None) = child.try_wait() {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills a process; in vain when it has ended by itself before.
fn kill(child: &mut Child) -> Result<Result<(), ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Err(status));
    }
    child.kill()?;
    let status = child.wait()?;
    let was_killed = status.signal() == Some(Signal::KILL.as_raw());
    Ok(if was_killed { Ok(()) } else { Err(status) })
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, pid) = (&self.job, self.child.id());
        write!(
            f,
            "worker {} (process {}, pid {pid})",
            job.worker, job.process
        )
    }
}

impl Inner {
    fn spawn(&mut self, job: Job) -> Result<Worker> {
        let job = Job {
            process: self.next_process,
            ..job
        };
        self.next_process += 1;
        let mut command = Command::new(env::current_exe()?);
        if let Some(clock) = &self.clock {
            command
                .env("LD_PRELOAD", &clock.library)
                .env("FAKETIME_TIMESTAMP_FILE", &clock.file)
                // The processes of one machine have one clock, so none uses a value that was read before.
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let mut child = command
            .arg("worker")
            .stdin(Stdio::piped())
            .spawn()
            .context("can't start a worker")?;
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            writeln!(input, "{}", serde_json::to_string(&job)?)?;
        }
        Ok(Worker { job, child, input })
    }
}

impl Drop for Inner {
    /// None outlives the run, which may fail half-way.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.spawn().expect("a shell")
    }

    #[test]
    fn only_running_workers_are_killed() {
        let mut alive = shell("exec sleep 60");
        assert_eq!(kill(&mut alive).expect("it is killed"), Ok(()));

        let mut ended = shell("exit 3");
        // It has ended, and its status has not been collected.
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&ended)), exited).expect("its end");
        let killed = kill(&mut ended).expect("its status");
        assert_eq!(killed.map_err(|status| status.code()), Err(Some(3)));
    }
}
