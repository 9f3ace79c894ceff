//! Another process that holds a lock: this test binary, started again for the one test below.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Retention, SlotRenewer, StopToken, TimerJob};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::behaviour::application_migrations::migrate_and_die;
use crate::support::pgbouncer::Pooled;
use crate::support::privileges::{ApplicationRole, ApplicationUser};
use crate::support::threads::{LONG, loss_of};
use crate::support::{Backend, mysql::Mysql, postgres::Postgres, sqlite::Sqlite};

const URL: &str = "DIESEL_LOCKS_SUBPROCESS_URL";
const COMMAND: &str = "DIESEL_LOCKS_SUBPROCESS_COMMAND";

/// Of a guard whose loss a test waits for.
pub(crate) const LEASE: Duration = Duration::from_millis(400);

/// Of a guard that has to stay held, also while the machine is busy. Renewals come after a third of it.
pub(crate) const RENEWED_LEASE: Duration = Duration::from_secs(9);

/// How many threads acquire guards, and how many guards each, in a subprocess that has many.
const ACQUIRERS: [u32; 2] = [8, 5];

/// How many guards a subprocess has that has many.
pub(crate) const SUBPROCESS_GUARDS: u32 = ACQUIRERS[0] * ACQUIRERS[1] + 1;

pub(crate) struct Subprocess(Child, BufReader<ChildStdout>);

impl Subprocess {
    /// Returns when the process holds the lock.
    pub(crate) fn holding_lock<B: Backend>(url: &str, id: &str, retention: Retention) -> Self {
        Self::spawn(url, &format!("{} {retention:?} {id}", B::NAME))
    }

    /// Returns when the process holds the slot, of one permit, by a transaction.
    pub(crate) fn holding_slot<B: Backend>(url: &str, semaphore: &str) -> Self {
        Self::spawn(url, &format!("{} Slot {semaphore}", B::NAME))
    }

    /// Returns when the process holds the slot, of one permit, by a guard with a lease so short.
    pub(crate) fn with_guard<B: Backend>(url: &str, semaphore: &str) -> Self {
        Self::spawn(url, &format!("{} Guard {semaphore}", B::NAME))
    }

    /// Returns when the process holds [`SUBPROCESS_GUARDS`] slots by guards of one renewer. Asked, it says
    /// how many of its threads renew; then it drops the renewer; then it drops the guards, and says how many
    /// threads are left when one has had time to end.
    pub(crate) fn with_many_guards<B: Backend>(url: &str, semaphore: &str) -> Self {
        Self::spawn(url, &format!("{} Guards {semaphore}", B::NAME))
    }

    /// Returns when none of its threads runs any more.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        // Told when its last thread has stopped.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.0)), stopped).expect("our child");
        assert!(
            status.is_some_and(|status| status.stopped()),
            "it has ended"
        );
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Lets the process continue, and returns the next line that it writes.
    pub(crate) fn next_line(&mut self) -> String {
        use std::io::Write;

        let input = self.0.stdin.as_mut().expect("piped");
        input.write_all(b"\n").expect("it reads");
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }

    /// Returns when the process is the leader, with a short lease.
    pub(crate) fn leading<B: Backend>(url: &str, semaphore: &str) -> Self {
        Self::spawn(url, &format!("{} Leader {semaphore}", B::NAME))
    }

    /// Returns when the process runs a tick of a job that is due every second, with a short lease.
    pub(crate) fn on_timer<B: Backend>(url: &str, job: &str) -> Self {
        Self::spawn(url, &format!("{} Timer {job}", B::NAME))
    }

    /// A process that runs the migrations of an application and kills itself at this event.
    pub(crate) fn migrating<B: Backend>(url: &str, at: u32) -> Self {
        Self::spawn(url, &format!("{} Migrations {at}", B::NAME))
    }

    /// Returns when the process has ended.
    pub(crate) fn was_killed(mut self) -> bool {
        let status = self.0.wait().expect("our child");
        assert!(status.success() || status.code().is_none(), "{status}");
        !status.success()
    }

    fn spawn(url: &str, command: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "subprocess::lock_is_held_until_the_process_is_killed",
                "--exact",
                "--nocapture",
            ])
            .env(URL, url)
            .env(COMMAND, command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut process = Self(child, output);
        let held = process
            .1
            .by_ref()
            .lines()
            .map(|line| line.expect("text"))
            .any(|line| line.ends_with("held"));
        assert!(held, "the process ended without the lock");
        process
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is gone");
    }
}

/// Also when the test has failed, and when it is stopped: a database is not dropped while a transaction in it
/// is open.
impl Drop for Subprocess {
    fn drop(&mut self) {
        // It may be gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_command<B: Backend>(url: &str, what: &str, id: &str) {
    match what {
        "Guard" => guard::<B>(url, id),
        "Guards" => guards::<B>(url, id),
        "Leader" => leader::<B>(url, id),
        "Timer" => timer::<B>(url, id),
        "Migrations" => migrate_and_die::<B>(url, id),
        _ => hold::<B>(url, what, id),
    }
}

fn hold<B: Backend>(url: &str, what: &str, id: &str) {
    let mut conn = B::connect_to(url);
    let work = |conn: &mut B::Conn| {
        B::count_up(conn, 9);
        println!("held");
        // Until the end of the test, should that not kill it.
        std::io::stdin()
            .read_to_end(&mut Vec::new())
            .expect("an end");
        Ok::<_, diesel_locks::Error>(())
    };
    let done = match what {
        "Slot" => conn.with_slot(&Semaphore::new(id, 1), Wait::No, work),
        "Kept" => conn.with_object_lock(LockRequest::new(id).retention(Retention::Kept), work),
        _ => conn.with_object_lock(id, work),
    };
    done.expect("it is free");
}

/// Until the end of the test, should that not kill the process.
fn hold_until_the_end() {
    println!("held");
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .expect("an end");
}

fn short_lease() -> LeaseOptions {
    LeaseOptions::new(RENEWED_LEASE / 2).holder("subprocess")
}

fn leader<B: Backend>(url: &str, semaphore: &str) {
    let (semaphore, stop) = (Semaphore::new(semaphore, 1), StopToken::new());
    let renewer = SlotRenewer::new(B::pool_to(url, 2)).stopped_by(&stop);
    let run = renewer.run_as_leader(&semaphore, short_lease(), |_| {
        hold_until_the_end();
        stop.stop();
        Ok::<_, diesel_locks::Error>(())
    });
    run.expect("no error");
}

fn timer<B: Backend>(url: &str, job: &str) {
    let (job, stop) = (TimerJob::new(job, Duration::from_secs(1)), StopToken::new());
    let renewer = SlotRenewer::new(B::pool_to(url, 2)).stopped_by(&stop);
    let run = renewer.run_on_timer(&job, short_lease(), |_| {
        hold_until_the_end();
        stop.stop();
        Ok::<_, diesel_locks::Error>(())
    });
    run.expect("no error");
}

/// A guard that says at every line it is sent whether it holds its slot; at the third it releases all.
fn guard<B: Backend>(url: &str, semaphore: &str) {
    let renewer = SlotRenewer::new(B::pool_to(url, 2));
    let acquire = |lease, wait| {
        let lease = LeaseOptions::new(lease).holder("peer");
        let guard = renewer.acquire(&Semaphore::new(semaphore, 1), &lease, wait);
        guard.expect("it comes free")
    };
    let guard = acquire(RENEWED_LEASE / 2, Wait::No);
    let lost = loss_of(&guard);
    println!("held");
    let mut lines = std::io::stdin().lines();
    lines.next();
    println!("{} {:?}", guard.is_held(), lost.recv_timeout(LONG).is_ok());
    lines.next();
    let second = acquire(RENEWED_LEASE, Wait::Forever);
    println!("{} {}", guard.is_held(), second.is_held());
    lines.next();
    let released = renewer.release_guards();
    println!(
        "{released} {} {}",
        second.is_held(),
        second.release().is_err()
    );
    lines.next();
}

/// Many guards, acquired with clones of one renewer by more threads than the pool has connections. The last one has
/// the short lease, by which all are renewed: that acquiring takes long costs no lease.
fn guards<B: Backend>(url: &str, semaphore: &str) {
    let renewer = SlotRenewer::new(B::pool_to(url, 4));
    let [threads, each] = ACQUIRERS;
    let lease = LeaseOptions::new(Duration::from_secs(3600));
    let together = Arc::new(Barrier::new(threads as usize));
    let semaphore = Semaphore::new(semaphore, SUBPROCESS_GUARDS);
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let (renewer, semaphore) = (renewer.clone(), semaphore.clone());
            let (together, lease) = (Arc::clone(&together), lease.clone());
            std::thread::spawn(move || {
                together.wait();
                let acquire = |_| renewer.acquire(&semaphore, &lease, Wait::No).expect("free");
                (0..each).map(acquire).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut guards: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("guards"))
        .collect();
    let short = LeaseOptions::new(RENEWED_LEASE);
    guards.push(renewer.acquire(&semaphore, &short, Wait::No).expect("free"));
    println!("held");
    let mut lines = std::io::stdin().lines();
    lines.next();
    println!("{}", renewing_threads());
    lines.next();
    drop(renewer);
    println!("renewer dropped");
    lines.next();
    drop(guards);
    let started = Instant::now();
    while renewing_threads() > 0 && started.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("{}", renewing_threads());
    lines.next();
}

/// Threads of this process with the name of a renewer's, which the system cuts.
fn renewing_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("a list of threads")
        .filter(|thread| {
            let thread = thread.as_ref().expect("a thread");
            // It may have ended.
            let name = std::fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.starts_with("diesel-locks re"))
        })
        .count()
}

/// In the subprocess it runs the command; in the test run it checks that the work of a subprocess is undone when it
/// is killed, with SQLite.
#[test]
fn lock_is_held_until_the_process_is_killed() {
    if let (Ok(url), Ok(command)) = (std::env::var(URL), std::env::var(COMMAND)) {
        let mut words = command.splitn(3, ' ');
        let mut next = || words.next().expect("backend, retention and id");
        let backend = next();
        let (what, id) = (next(), next());
        return match backend {
            Postgres::NAME => run_command::<Postgres>(&url, what, id),
            Mysql::NAME => run_command::<Mysql>(&url, what, id),
            ApplicationRole::NAME => run_command::<ApplicationRole>(&url, what, id),
            Pooled::NAME => run_command::<Pooled>(&url, what, id),
            ApplicationUser::NAME => run_command::<ApplicationUser>(&url, what, id),
            Sqlite::NAME => run_command::<Sqlite>(&url, what, id),
            other => panic!("a process of {other}?"),
        };
    }
    let database = Sqlite::new();
    let process = Subprocess::holding_lock::<Sqlite>(&database.url(), "a", Retention::Kept);
    let mut conn = database.connect();
    let tried = conn
        .try_with_object_lock("a", |_| Ok::<_, diesel_locks::Error>(()))
        .expect("an answer");
    assert_eq!(tried, None);
    process.kill();
    conn.with_object_lock("a", |_| Ok::<_, diesel_locks::Error>(()))
        .expect("free");
    assert_eq!(Sqlite::counter(&mut conn, 9), 0, "undone");
    assert_eq!(database.rows(), 0, "undone");
}
