//! Long texts of errors.

pub(crate) const PREPARED_STATEMENT_MISMATCH: &str = "the session does not have the prepared statements of this connection \
    (transaction pooler, or DISCARD ALL): call conn.set_prepared_statement_cache_size(CacheSize::Disabled) on each \
    connection, or set max_prepared_statements in PgBouncer 1.21 or newer, which connections of diesel-async need; see \"Through a transaction pooler\" in the \
    documentation of diesel-locks";

pub(crate) const BROKEN_CLIENT_LIBRARY: &str = "the client library of MySQL or MariaDB returns empty strings: libmariadb \
    (MariaDB Connector/C) 3.3.19 and 3.4.9 do so with Diesel up to 2.3.14, because of their defect CONC-821; install \
    libmariadb 3.3.20, 3.4.10 or newer (Debian 12: with its security updates), or MySQL's libmysqlclient";

/// What is needed in place of an old SQLite.
pub(crate) const NEWER_SQLITE: &str = "SQLite 3.38 or newer: add libsqlite3-sys = { version = \"..\", features = [\"bundled\"] } \
     to the application's dependencies, with the version that Diesel has in Cargo.lock";
