//! The pools of a process, and the tables that it needs.

use std::time::Duration;

use anyhow::{Context, Result};
use diesel::r2d2::{
    ConnectionManager, CustomizeConnection, Error as R2d2Error, Pool, PooledConnection,
};
use diesel_locks::LockRequest;
use program_support::database::Database;

use super::Store;

/// How long a request waits for a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the renewer, a health check and the page wait for a connection.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(1);

/// The balance of a new account.
const FIRST_BALANCE: i64 = 1000;

/// Three pools, so that requests can't delay a renewal of a slot or a health check.
pub(crate) struct Pools<C: Store> {
    /// For requests.
    pub(crate) requests: Pool<ConnectionManager<C>>,
    /// For the renewer of leased slots.
    pub(crate) renewer: Pool<ConnectionManager<C>>,
    /// For health checks, the page and the operator.
    pub(crate) operator: Pool<ConnectionManager<C>>,
}

impl<C: Store> Pools<C> {
    /// Opens the pools, and creates the tables and accounts that are missing.
    pub(crate) fn open(database: &Database, connections: u32, accounts: u32) -> Result<Self> {
        let pool = |size, timeout, session: Session| {
            Pool::builder()
                .max_size(size)
                .min_idle(Some(0))
                .connection_timeout(timeout)
                .connection_customizer(Box::new(session))
                .build(ConnectionManager::new(&database.url))
                .context("can't create a pool")
        };
        let pools = Self {
            requests: pool(connections, REQUEST_TIMEOUT, Session::Work)?,
            renewer: pool(2, OPERATOR_TIMEOUT, Session::Work)?,
            operator: pool(2, OPERATOR_TIMEOUT, Session::Look)?,
        };
        let mut conn = pools
            .requests
            .get()
            .context("the database does not answer")?;
        diesel_locks::migrate(&mut *conn)?;
        set_up(&mut conn, accounts).context("can't create the tables")?;
        drop(conn);
        Ok(pools)
    }
}

/// Several instances may start at the same time.
fn set_up<C: Store>(
    conn: &mut PooledConnection<ConnectionManager<C>>,
    accounts: u32,
) -> Result<(), diesel_locks::Error> {
    let conn: &mut C = conn;
    if !C::TRANSACTIONAL_DDL {
        conn.create_tables()?;
    }
    conn.with_object_lock(LockRequest::new("web:set-up"), |conn| {
        if C::TRANSACTIONAL_DDL {
            conn.create_tables()?;
        }
        for account in 1..=i64::from(accounts) {
            if conn.balance(account)?.is_none() {
                conn.insert_account(account, FIRST_BALANCE)?;
            }
        }
        Ok(())
    })
}

/// Sets up each connection of a pool.
#[derive(Debug)]
enum Session {
    Work,
    /// With a limit for each statement.
    Look,
}

impl<C: Store> CustomizeConnection<C, R2d2Error> for Session {
    fn on_acquire(&self, conn: &mut C) -> Result<(), R2d2Error> {
        let configured = conn.configure_session().and_then(|()| match self {
            Self::Work => Ok(()),
            Self::Look => conn.limit_look(),
        });
        configured.map_err(R2d2Error::QueryError)
    }
}
