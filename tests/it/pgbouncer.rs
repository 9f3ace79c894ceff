//! PgBouncer in transaction mode.

mod postgres;
