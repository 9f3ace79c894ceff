//! Criterion benchmarks: `with_object_lock` beside the bare transaction, the 2010 insert-delete baseline written by hand,
//! and the engine's advisory lock; no connection waits for another's lock.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite --bench object_locks
//! ```
//!
//! `DIESEL_LOCKS_BENCH_BACKENDS=postgres,sqlite` chooses engines; Criterion's own options follow `--`, such
//! as `--quick`. The time shown is that of one cycle on one connection. For ratios see the bench `ratios`,
//! which interleaves what it compares.

mod support;

use std::time::Duration;

use criterion::{Criterion, SamplingMode};
use diesel::{MysqlConnection, PgConnection, SqliteConnection};

use support::backend::Backend;
use support::connections::Connections;
use support::cycle::{Work, cycle};
use support::engine_filter::{Engine, selected_engines};

fn main() -> anyhow::Result<()> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20)
        .configure_from_args();
    for engine in selected_engines(None)? {
        match engine {
            Engine::Postgres => compare::<PgConnection>(&mut criterion)?,
            Engine::Mysql => compare::<MysqlConnection>(&mut criterion)?,
            Engine::Sqlite => compare::<SqliteConnection>(&mut criterion)?,
        }
    }
    criterion.final_summary();
    Ok(())
}

fn compare<C: Backend>(criterion: &mut Criterion) -> anyhow::Result<()> {
    for count in [1, 8] {
        let mut connections = Connections::<C>::new(count)?;
        let version = connections.version()?;
        eprintln!("{version}, connections: {count}");
        for work in Work::ALL {
            let name = format!("{}/{count}/{}", C::NAME, work.name());
            let mut group = criterion.benchmark_group(name);
            // Cycles of milliseconds: samples of a rising number of them would take too long.
            group.sampling_mode(SamplingMode::Flat);
            for &variant in C::VARIANTS {
                let ids = variant.ids(count);
                let mut deadlocks = 0;
                group.bench_function(variant.name(), |bencher| {
                    bencher.iter_custom(|iterations| {
                        let iterations = u32::try_from(iterations).expect("iterations");
                        let measured = connections
                            .measure(
                                |done, _| done >= iterations,
                                |conn, number| {
                                    cycle(conn, variant, &ids[number], |conn| {
                                        work.run(conn, number)
                                    })
                                },
                            )
                            .expect("the cycles run");
                        deadlocks += measured.deadlocks;
                        measured.per_cycle() * iterations
                    });
                });
                if deadlocks > 0 {
                    eprintln!("deadlocks, retried: {deadlocks}");
                }
            }
            group.finish();
        }
    }
    Ok(())
}
