//! How many of the connections are used that the server, the database and the user may have.

use super::{Finding, Good, Warning, found, value};
use crate::database::{AnyConnection, Engine};

/// Whose connections: the number of those that are used, the limit (none if it is not positive), and how to raise it.
type Limit = (&'static str, &'static str, &'static str, &'static str);

const POSTGRES: [Limit; 3] = [
    (
        "the server",
        "(SELECT CAST(SUM(numbackends) AS TEXT) FROM pg_stat_database)",
        "CAST(CAST(current_setting('max_connections') AS INT) \
         - CAST(current_setting('superuser_reserved_connections') AS INT) \
         - CAST(COALESCE(current_setting('reserved_connections', true), '0') AS INT) AS TEXT)",
        "raise max_connections",
    ),
    (
        "this database",
        "(SELECT CAST(numbackends AS TEXT) FROM pg_stat_database WHERE datname = current_database())",
        "(SELECT CAST(datconnlimit AS TEXT) FROM pg_database WHERE datname = current_database())",
        "ALTER DATABASE .. CONNECTION LIMIT",
    ),
    (
        "this user",
        "(SELECT CAST(COUNT(*) AS TEXT) FROM pg_stat_activity WHERE usename = session_user)",
        "(SELECT CAST(rolconnlimit AS TEXT) FROM pg_roles WHERE rolname = session_user)",
        "ALTER ROLE .. CONNECTION LIMIT",
    ),
];

const MYSQL: [Limit; 2] = [
    (
        "the server",
        "(SELECT CAST(variable_value AS CHAR) FROM \
         /*!80000 performance_schema.global_status *//*M!100100 information_schema.global_status */ \
         WHERE variable_name = 'Threads_connected')",
        "CAST(@@max_connections AS CHAR)",
        "raise max_connections",
    ),
    (
        "this user",
        "(SELECT CAST(COUNT(*) AS CHAR) FROM information_schema.processlist \
         WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1))",
        "CAST(@@max_user_connections AS CHAR)",
        "ALTER USER .. WITH MAX_USER_CONNECTIONS",
    ),
];

/// Four of five used are worth a word: the next start of a pool takes the rest.
pub(super) fn findings(conn: &mut AnyConnection) -> Vec<Finding> {
    let limits: &[Limit] = match conn.engine() {
        Engine::Postgres => &POSTGRES,
        Engine::Mysql => &MYSQL,
        Engine::Sqlite => return Vec::new(),
    };
    let mut findings = Vec::new();
    for &(whose, used, most, raise) in limits {
        let mut number = |expression| -> Result<i64, String> {
            let text = value(conn, expression).map_err(|error| error.to_string())?;
            text.parse().map_err(|_| format!("{text:?} is no number"))
        };
        let (used, most) = match (number(used), number(most)) {
            (Ok(used), Ok(most)) => (used, most),
            (Err(error), _) | (_, Err(error)) => {
                let text = format!("those of {whose} can't be read: {error}");
                findings.push(found(Warning, "connections", text));
                continue;
            }
        };
        if most <= 0 {
            continue;
        }
        let text = format!("{used} of the {most} that {whose} may have are used");
        findings.push(if used * 5 < most * 4 {
            found(Good, "connections", text)
        } else {
            let text = format!("{text}: make the pools smaller, or {raise}");
            found(Warning, "connections", text)
        });
    }
    findings
}
