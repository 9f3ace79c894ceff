//! The page on every kind of pool: the same lists, and the same acts.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use diesel::connection::SimpleConnection;
use diesel::r2d2::ConnectionManager;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_locks::Slot;
use diesel_locks::prelude::*;
use diesel_locks_page::{Page, router};
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::testing::http::{get, send_json};
use program_support::testing::{TempDir, path_in};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const TOKEN: (&str, &str) = ("Authorization", "Bearer let-me-in");

/// A holder is listed, its release is requested, and it is released, once.
fn lists_and_acts(url: &str, page: impl FnOnce() -> Page) {
    let database = Database::from_url(url).expect("a URL");
    let mut conn = AnyConnection::open(&database).expect("the database answers");
    if let AnyConnection::Sqlite(conn) = &mut conn {
        let mode = "PRAGMA journal_mode = WAL";
        conn.batch_execute(mode).expect("a mode");
    }
    diesel_locks::migrate(&mut conn).expect("the tables");
    let semaphore = Semaphore::new("collate", 2);
    let lease = LeaseOptions::new(Duration::from_secs(3600)).holder("node-1");
    let slot = conn.acquire_slot(&semaphore, lease, Wait::No);
    let slot = slot.expect("a free slot");

    let runtime = Runtime::new().expect("threads");
    let address = runtime.block_on(async {
        let app = Router::new().nest("/locks", router(page().token("let-me-in")));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async { axum::serve(listener, app).await });
        address
    });
    let shown = held(address, "co");
    assert_eq!(shown["holder"], "node-1");
    assert_eq!(shown["fence"], slot.fence().to_string());
    assert_eq!(held(address, "other"), Value::Null);
    let bad =
        |headers: &[(&str, &str)]| send_json(address, "/locks/release", headers, "{}").answer();
    bad(&[]).assert_problem(401, "token");
    bad(&[TOKEN]).assert_problem(422, "semaphore");
    act(address, "request-release", &slot).expect("held");
    assert!(held(address, "c")["requested_s"].is_number());
    act(address, "release", &slot).expect("held");
    assert_eq!(held(address, "col"), Value::Null);
    let gone = act(address, "release", &slot).expect_err("released");
    assert!(gone.contains("is not held"), "{gone}");
}

/// The first held slot of the semaphores with this prefix. Each prefix is read anew.
fn held(address: SocketAddr, prefix: &str) -> Value {
    let state = get(address, &format!("/locks/state?prefix={prefix}"));
    assert_eq!(state.status, 200, "{state:?}");
    let slot = "/lists/semaphores/rows/0/slots/0";
    state.json().pointer(slot).cloned().unwrap_or_default()
}

fn act(address: SocketAddr, act: &str, slot: &Slot) -> Result<(), String> {
    let grant =
        json!({ "semaphore": "collate", "slot": slot.number(), "fence": slot.fence().to_string() });
    let path = format!("/locks/{act}");
    let answer = send_json(address, &path, &[TOKEN], &grant.to_string());
    let answer = answer.answer();
    if answer.status == 200 {
        return Ok(());
    }
    answer.assert_problem(409, "nothing was done");
    Err(answer.body)
}

/// The tests of an engine with its connections of diesel-async.
macro_rules! on_pools {
    ($engine:ident, $nonblocking:ty, $with_url:expr) => {
        mod $engine {
            use super::*;

            #[test]
            fn r2d2() {
                $with_url(|url: &str| {
                    let manager = ConnectionManager::<AnyConnection>::new(url);
                    let pool = diesel::r2d2::Pool::builder().min_idle(Some(0));
                    lists_and_acts(url, || Page::new(pool.build_unchecked(manager)));
                });
            }

            #[test]
            fn bb8() {
                $with_url(|url: &str| {
                    let manager = AsyncDieselConnectionManager::<$nonblocking>::new(url);
                    let pool = bb8::Pool::builder().max_size(2);
                    lists_and_acts(url, || Page::new(pool.build_unchecked(manager)));
                });
            }

            #[test]
            fn deadpool() {
                $with_url(|url: &str| {
                    let manager = AsyncDieselConnectionManager::<$nonblocking>::new(url);
                    let pool = deadpool::Pool::builder(manager).max_size(2);
                    lists_and_acts(url, || Page::new(pool.build().expect("a pool")));
                });
            }
        }
    };
}

on_pools!(
    sqlite,
    SyncConnectionWrapper<diesel::SqliteConnection>,
    |test: fn(&str)| {
        let directory = TempDir::new().expect("a directory");
        test(&path_in(&directory, "locks.sqlite"));
    }
);

#[cfg(feature = "postgres")]
on_pools!(postgres, diesel_async::AsyncPgConnection, |test: fn(
    &str,
)| {
    type Own = program_support::testing::OwnDatabase<diesel::PgConnection>;
    test(&Own::create("PG_DATABASE_URL").url);
});

#[cfg(feature = "mysql")]
on_pools!(mysql, diesel_async::AsyncMysqlConnection, |test: fn(
    &str,
)| {
    type Own = program_support::testing::OwnDatabase<diesel::MysqlConnection>;
    test(&Own::create("MYSQL_DATABASE_URL").url);
});
