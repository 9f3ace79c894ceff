//! Criterion benchmarks of every primitive on each engine: an object lock, a slot, also of a registered number of permits, the renewal of a lease and a number of a sequence, beside a bare
//! transaction that reads one row. No connection waits for another's lock.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite --bench primitives
//! ```
//!
//! The time shown is that of one cycle on one connection.

#[allow(dead_code, unused_imports, reason = "parts of other benchmarks")]
mod harness;

use std::sync::Mutex;
use std::time::Duration;

use criterion::{Criterion, SamplingMode};
use diesel::{MysqlConnection, PgConnection, QueryResult, SqliteConnection};
use diesel_locks::prelude::*;
use diesel_locks::{Retention, Slot};

use harness::{Backend, Connections, read_bond};

fn main() -> anyhow::Result<()> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20)
        .configure_from_args();
    measure::<PgConnection>(&mut criterion)?;
    measure::<MysqlConnection>(&mut criterion)?;
    measure::<SqliteConnection>(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

/// What a connection does again and again. It gets the connection's number.
type Cycle<'a, C> = &'a (dyn Fn(&mut C, usize) -> QueryResult<()> + Sync);

fn measure<C: Backend>(criterion: &mut Criterion) -> anyhow::Result<()> {
    for count in [1, 8] {
        let mut connections = Connections::<C>::new(count)?;
        connections.first().register_semaphores([&semaphore()])?;
        let renewed = leases(connections.first(), count)?;
        let primitives: [(&str, Cycle<'_, C>); 8] = [
            ("bare transaction", &|conn, number| {
                conn.transaction(|conn| read_bond(conn, number))
            }),
            ("transient object lock", &|conn, number| {
                let id = ObjectId::new("transient", number);
                conn.with_object_lock(id, |conn| read_bond(conn, number))
            }),
            ("kept object lock", &|conn, number| {
                let request = LockRequest::new(ObjectId::new("kept", number));
                let request = request.retention(Retention::Kept);
                conn.with_object_lock(request, |conn| read_bond(conn, number))
            }),
            ("slot in a transaction", &|conn, number| {
                conn.with_slot(&semaphore(), Wait::Forever, |conn| read_bond(conn, number))
            }),
            ("lease of a slot", &|conn, _| {
                let slot =
                    conn.acquire_slot(&semaphore(), LeaseOptions::new(LEASE), Wait::Forever)?;
                conn.release_slot(slot)?;
                Ok(())
            }),
            ("lease with registered permits", &|conn, _| {
                let semaphore = Semaphore::registered(semaphore().name());
                let slot =
                    conn.acquire_slot(&semaphore, LeaseOptions::new(LEASE), Wait::Forever)?;
                conn.release_slot(slot)?;
                Ok(())
            }),
            ("renewal of a lease", &|conn, number| {
                let mut slot = renewed[number].lock().expect("no panic");
                conn.renew_slot(&mut slot, LEASE)?;
                Ok(())
            }),
            ("number of a sequence", &|conn, number| {
                let sequence = Sequence::new("benchmark").for_key(number);
                conn.run_transaction(TransactionOptions::new(), |conn| -> QueryResult<()> {
                    conn.next_number(&sequence)?;
                    Ok(())
                })
            }),
        ];
        let version = connections.first().version()?;
        let mut group = criterion.benchmark_group(format!("{version}/{count}"));
        // Cycles of milliseconds: samples of a rising number of them would take too long.
        group.sampling_mode(SamplingMode::Flat);
        for (name, cycle) in primitives {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|iterations| {
                    let iterations = u32::try_from(iterations).expect("iterations");
                    let enough = |done, _| done >= iterations;
                    let measured =
                        connections.measure(enough, |conn, number, _| cycle(conn, number));
                    let measured = measured.expect("the cycles run");
                    measured.time / measured.cycles * iterations
                });
            });
        }
        group.finish();
    }
    Ok(())
}

const LEASE: Duration = Duration::from_secs(10);

/// A slot for each connection, which it renews. The lease lasts until its first renewal.
fn leases<C: Backend>(conn: &mut C, count: usize) -> anyhow::Result<Vec<Mutex<Slot>>> {
    let semaphore = Semaphore::new("renewals", u32::try_from(count)?);
    let lease = || LeaseOptions::new(Duration::from_secs(3600));
    let acquire = |_| {
        Ok(Mutex::new(conn.acquire_slot(
            &semaphore,
            lease(),
            Wait::No,
        )?))
    };
    (0..count).map(acquire).collect()
}

fn semaphore() -> Semaphore {
    Semaphore::from_static("benchmark", 8)
}
