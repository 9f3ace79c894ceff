//! The workload of a thread: its tasks and pauses.

use std::thread::sleep;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use torture_history::{
    Client, InjectedFault, Locking, Request, Task, TransactionMethod, WaitLimit, workload_spec,
};

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::job::Job;
use crate::sabotage::Sabotage;

/// Its lease is as long as that of others that are renewed.
const TICK: Task = Task::Tick {
    lease_ms: workload_spec::LONGEST_LEASE_MS,
};

/// Draws tasks from the run's seed.
pub(crate) struct Workload {
    rng: StdRng,
    engine: Engine,
    cluster: Option<Cluster>,
    sabotage: Option<Sabotage>,
}

impl Workload {
    pub(crate) fn new(job: &Job, thread: u32) -> Self {
        let own = (u64::from(job.process) << 32) | u64::from(thread);
        let seed = job.seed ^ own.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            rng: StdRng::seed_from_u64(seed),
            engine: job.engine,
            cluster: job.cluster,
            sabotage: job.sabotage,
        }
    }

    /// Another workload, which this one determines.
    pub(crate) fn split(&mut self) -> Self {
        Self {
            rng: StdRng::seed_from_u64(self.rng.random()),
            ..*self
        }
    }

    /// True with this probability.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    pub(crate) fn number(&mut self, numbers: std::ops::Range<u64>) -> u64 {
        self.rng.random_range(numbers)
    }

    /// Sleeps for up to this number of milliseconds.
    pub(crate) fn pause(&mut self, milliseconds: u64) {
        sleep(self.time(milliseconds));
    }

    /// A time of up to this number of milliseconds.
    pub(crate) fn time(&mut self, milliseconds: u64) -> Duration {
        let longest = Duration::from_millis(milliseconds).as_nanos();
        let nanoseconds = self
            .rng
            .random_range(0..u64::try_from(longest).unwrap_or(u64::MAX).max(1));
        Duration::from_nanos(nanoseconds)
    }

    /// A drawn task. Half of those of a sabotaged run are tasks that it breaks, so that a short run finds it, also on a busy
    /// machine.
    fn drawn(&mut self, draw: impl Fn(&mut Self) -> Task) -> Task {
        let mut task = draw(self);
        if let Some(sabotage) = self.sabotage
            && self.percent(50)
        {
            // Not all can be drawn for each kind of connection.
            for _ in 0..100 {
                if sabotage.breaks(&task) {
                    break;
                }
                task = draw(self);
            }
        }
        task
    }

    /// A task for an asynchronous connection.
    pub(crate) fn async_task(&mut self) -> Task {
        self.drawn(Self::any_async_task)
    }

    fn any_async_task(&mut self) -> Task {
        match self.rng.random_range(0..100) {
            0..50 => self.lock(),
            50..70 => self.slot(),
            70..88 => Task::Pass {
                sequence: self.rng.random_range(0..workload_spec::SEQUENCES),
            },
            88..95 => self.lease(),
            _ => TICK,
        }
    }

    /// A task for a lock pool.
    pub(crate) fn lock_pool_task(&mut self) -> Task {
        self.drawn(Self::any_lock_pool_task)
    }

    fn any_lock_pool_task(&mut self) -> Task {
        if self.percent(30) {
            return self.slot();
        }
        self.lock_of_pool()
    }

    /// A lock for a lock pool.
    fn lock_of_pool(&mut self) -> Task {
        let mut locking = self.locking();
        // A request for several objects waits until all of them are free at the same time, which may be never.
        if locking.counters.len() + locking.shared.len() > 1 && locking.wait == WaitLimit::Forever {
            locking.wait = self.limited_wait();
        }
        Task::Lock(locking)
    }

    /// A task for a blocking thread, and its client.
    pub(crate) fn blocking_task(&mut self) -> (Client, Task) {
        if self.percent(5) {
            (Client::R2d2LockPool, self.lock_of_pool())
        } else {
            (Client::R2d2, self.drawn(Self::task))
        }
    }

    fn task(&mut self) -> Task {
        match self.rng.random_range(0..100) {
            0..18 => self.lock(),
            18..22 => TICK,
            22..24 => Task::Purge,
            24..26 => Task::SetPermits {
                permits: self.rng.random_range(0..=workload_spec::LIMITED.permits),
            },
            26..34 => self.renewed_lease(),
            34..45 => self.lease(),
            45..46 => Task::Asked {
                lease_ms: workload_spec::LONGEST_LEASE_MS,
            },
            46..56 => Task::Pinned {
                lease_ms: self.one_of(&[300, workload_spec::LONGEST_LEASE_MS]),
            },
            56..58 => Task::Revoked {
                lease_ms: self.one_of(&[300, workload_spec::LONGEST_LEASE_MS]),
            },
            // It takes seconds. A shorter lease ends while a renewal waits for a busy machine.
            58..59 => Task::Stuck {
                lease_ms: workload_spec::LONGEST_LEASE_MS,
            },
            59..61 => Task::HandOver,
            61..70 => self.slot(),
            70..82 => Task::Pass {
                sequence: self.rng.random_range(0..workload_spec::SEQUENCES),
            },
            82..90 => self.transfer(),
            90..97 => self.ignore_fault(),
            _ => self.panic(),
        }
    }

    fn lock(&mut self) -> Task {
        Task::Lock(self.locking())
    }

    fn locking(&mut self) -> Locking {
        let wanted = if self.percent(70) {
            1
        } else {
            self.rng.random_range(2..=3)
        };
        let all: Vec<u32> = (0..workload_spec::LOCKED_COUNTERS).collect();
        let mut counters: Vec<u32> = all.sample(&mut self.rng, wanted).copied().collect();
        let exclusive = if self.percent(60) {
            wanted
        } else {
            usize::from(wanted > 1 && self.percent(60))
        };
        Locking {
            shared: counters.split_off(exclusive),
            counters,
            kept: self.percent(50),
            wait: self.wait(),
        }
    }

    fn semaphore(&mut self) -> String {
        let semaphore = workload_spec::LEASED.choose(&mut self.rng);
        semaphore.map_or("", |semaphore| semaphore.name).to_owned()
    }

    fn renewed_lease(&mut self) -> Task {
        self.lease_of(true, workload_spec::LONGEST_LEASE_MS)
    }

    fn lease(&mut self) -> Task {
        let lease_ms = self.rng.random_range(100..400);
        self.lease_of(false, lease_ms)
    }

    fn lease_of(&mut self, renewed: bool, lease_ms: u64) -> Task {
        let semaphore = self.semaphore();
        let mut wait = self.short_wait();
        // It may have no permits until the end of the run.
        if wait == WaitLimit::Forever && semaphore == workload_spec::LIMITED.name {
            wait = self.limited_wait();
        }
        // Not where there is one, and not where both wait for what a transaction may hold for ever.
        let may_be_several = [workload_spec::LEASED[1].name, workload_spec::LIMITED.name];
        let several = may_be_several.contains(&&*semaphore) && self.percent(20);
        Task::Lease {
            semaphore,
            permits: if several { 2 } else { 1 },
            renewed,
            lease_ms,
            wait,
        }
    }

    fn slot(&mut self) -> Task {
        let mut wait = self.wait();
        let several = self.percent(20);
        // Others hold one of the two for long at times.
        if several && wait == WaitLimit::Forever {
            wait = self.limited_wait();
        }
        let permits = if several { 2 } else { 1 };
        Task::Slot { permits, wait }
    }

    fn transfer(&mut self) -> Task {
        let all: Vec<u32> = workload_spec::ACCOUNTS.collect();
        let two: Vec<u32> = all.sample(&mut self.rng, 2).copied().collect();
        Task::Transfer {
            from: two[0],
            to: two[1],
        }
    }

    fn ignore_fault(&mut self) -> Task {
        const COMMON: [InjectedFault; 4] = [
            InjectedFault::Duplicate,
            InjectedFault::Commit,
            InjectedFault::Rollback,
            InjectedFault::LeftOpen,
        ];
        // One writer waits for no row.
        let engines = match self.engine {
            Engine::Sqlite => [InjectedFault::DuplicateOrRollback; 2],
            Engine::Postgres | Engine::Mysql => {
                [InjectedFault::Deadlock, InjectedFault::LockTimeout]
            }
        };
        let injected = if self.percent(40) {
            // InnoDB's shortest time-out is a second.
            engines[usize::from(self.percent(20))]
        } else {
            self.one_of(&COMMON)
        };
        let methods = [
            TransactionMethod::Locked,
            TransactionMethod::Transaction,
            TransactionMethod::Diesel,
        ];
        // What Diesel says of its own transaction is its own; what is asked for in it is not. Galera's are refused.
        let methods = &methods[..if injected == InjectedFault::LeftOpen
            || self.cluster == Some(Cluster::Galera)
        {
            2
        } else {
            3
        }];
        let method = self.one_of(methods);
        let requests = [
            Request::Number,
            Request::Lock,
            Request::LockAndNumber,
            Request::NumberBefore,
        ];
        let requests = &requests[..if method == TransactionMethod::Diesel {
            3
        } else {
            4
        }];
        let first = self.rng.random_range(
            workload_spec::FAULT_COUNTERS.start..workload_spec::FAULT_COUNTERS.end - 1,
        );
        Task::IgnoreFault {
            method,
            injected,
            // Diesel's does not come back from a nested one that is gone.
            nested: method != TransactionMethod::Diesel && self.percent(40),
            request: self.one_of(requests),
            // In one order.
            counters: [
                first,
                self.rng
                    .random_range(first + 1..workload_spec::FAULT_COUNTERS.end),
            ],
        }
    }

    fn panic(&mut self) -> Task {
        Task::Panic {
            method: self.one_of(&[TransactionMethod::Locked, TransactionMethod::Transaction]),
            counter: self.rng.random_range(workload_spec::FAULT_COUNTERS),
            depth: self.rng.random_range(0..3),
        }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.random_range(0..all.len())]
    }

    /// For what others hold for long at times: not everybody is to queue there.
    fn short_wait(&mut self) -> WaitLimit {
        match self.rng.random_range(0..20) {
            0 => WaitLimit::Forever,
            1..13 => WaitLimit::AtMost(self.rng.random_range(10..100)),
            _ => WaitLimit::No,
        }
    }

    fn limited_wait(&mut self) -> WaitLimit {
        WaitLimit::AtMost(self.rng.random_range(20..1500))
    }

    fn wait(&mut self) -> WaitLimit {
        match self.rng.random_range(0..10) {
            0..5 => WaitLimit::Forever,
            5..8 => self.limited_wait(),
            _ => WaitLimit::No,
        }
    }
}
