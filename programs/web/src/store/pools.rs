//! The pools of a process, and the tables that it needs.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use diesel::r2d2::{
    ConnectionManager, CustomizeConnection, Error as R2d2Error, Pool, PooledConnection,
};
use diesel_locks::LockRequest;
use program_support::database::{Database, Engine};

use super::{Asker, Store};
use crate::args::Arguments;

/// How long a request waits for a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the renewer and a release by an operator wait for a connection.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(1);

/// The balance of a new account.
const FIRST_BALANCE: i64 = 1000;

/// The permits of each semaphore without `--permits`.
const DEFAULT_PERMITS: u32 = 3;

/// The client's time-outs on PostgreSQL, unless the URL sets them: a silent network ends a call after about 5 s.
const TIME_OUTS: [(&str, &str); 5] = [
    ("connect_timeout", "5"),
    ("keepalives_idle", "2"),
    ("keepalives_interval", "1"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "5000"),
];

/// Each on connections of its own, so that requests can't delay a renewal of a slot or a health check.
pub(crate) struct Pools<C: Store> {
    /// For requests.
    pub(crate) requests: Pool<ConnectionManager<C>>,
    /// For the renewer of leased slots.
    pub(crate) renewer: Pool<ConnectionManager<C>>,
    /// For releases by an operator.
    pub(crate) operator: Pool<ConnectionManager<C>>,
    /// For the page.
    pub(crate) page: Asker<C>,
    /// For health checks.
    pub(crate) health: Asker<C>,
    /// The permits of each semaphore, which all instances share.
    pub(crate) permits: u32,
}

impl<C: Store> Pools<C> {
    /// Opens the pools, and creates the tables and accounts that are missing.
    pub(crate) fn open(database: &Database, arguments: &Arguments) -> Result<Self> {
        let url = with_time_outs(database);
        let pool = |size, timeout, session: Session| {
            Pool::builder()
                .max_size(size)
                .min_idle(Some(0))
                .connection_timeout(timeout)
                .connection_customizer(Box::new(session))
                .build(ConnectionManager::new(&url))
                .context("can't create a pool")
        };
        let requests = pool(arguments.connections, REQUEST_TIMEOUT, Session::Work)?;
        let mut conn = requests.get().context("the database does not answer")?;
        diesel_locks::migrate(&mut *conn)?;
        let permits = set_up(&mut conn, arguments)?;
        drop(conn);
        Ok(Self {
            requests,
            renewer: pool(2, OPERATOR_TIMEOUT, Session::Work)?,
            operator: pool(2, OPERATOR_TIMEOUT, Session::Look)?,
            page: Asker::new(&url),
            health: Asker::new(&url),
            permits,
        })
    }
}

/// The URL, with the time-outs that it does not set. Diesel has none for MySQL.
fn with_time_outs(database: &Database) -> String {
    let mut url = database.url.clone();
    if database.engine != Engine::Postgres {
        return url;
    }
    for (name, value) in TIME_OUTS {
        let is_set = |option: &str| option.split('=').next() == Some(name);
        if !url.split(['?', '&']).skip(1).any(is_set) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.extend([name, "=", value]);
        }
    }
    url
}

/// Creates what is missing, and returns the permits. Several instances may start at the same time.
fn set_up<C: Store>(
    conn: &mut PooledConnection<ConnectionManager<C>>,
    arguments: &Arguments,
) -> Result<u32> {
    let create_tables = |conn: &mut C| conn.create_tables().context("can't create the tables");
    let conn: &mut C = conn;
    if !C::TRANSACTIONAL_DDL {
        create_tables(conn)?;
    }
    conn.with_object_lock(LockRequest::new("web:set-up"), |conn| {
        if C::TRANSACTIONAL_DDL {
            create_tables(conn)?;
        }
        for account in 1..=i64::from(arguments.accounts) {
            if conn.balance(account)?.is_none() {
                conn.insert_account(account, FIRST_BALANCE)?;
            }
        }
        share_permits(conn, arguments)
    })
}

/// Stores the permits if none are stored, and compares them if they are.
fn share_permits<C: Store>(conn: &mut C, arguments: &Arguments) -> Result<u32> {
    let Some(stored) = conn.permits()? else {
        let permits = arguments.permits.unwrap_or(DEFAULT_PERMITS);
        conn.insert_permits(permits.into())?;
        return Ok(permits);
    };
    let stored = u32::try_from(stored).context("the number of permits in web_settings")?;
    match arguments.permits {
        Some(permits) if permits != stored && arguments.change_permits => {
            conn.update_permits(permits.into())?;
            Ok(permits)
        }
        Some(permits) if permits != stored => bail!(
            "the instances on this database have --permits {stored}, not {permits}: leave --permits out, or end all \
             of them and add --change-permits"
        ),
        _ => Ok(stored),
    }
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

#[cfg(test)]
mod tests {
    use program_support::database::Database;

    use super::with_time_outs;

    #[test]
    fn time_outs_of_the_url_stay() {
        let of = |url| with_time_outs(&Database::from_url(url).expect(url));
        let ours =
            "keepalives_idle=2&keepalives_interval=1&keepalives_count=3&tcp_user_timeout=5000";
        let plain = "postgres://h/d";
        assert_eq!(of(plain), format!("{plain}?connect_timeout=5&{ours}"));
        let set = "postgres://h/d?sslmode=require&connect_timeout=9";
        assert_eq!(of(set), format!("{set}&{ours}"));
        assert_eq!(of("mysql://h/d"), "mysql://h/d");
    }
}
