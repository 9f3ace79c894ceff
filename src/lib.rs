//! Object locks as methods on Diesel connections.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, reason = "without an engine there is nobody to use it")
)]

mod engine;
mod error;
mod events;
pub mod migrations;
pub mod models;
mod object_id;
mod object_lock;
mod object_locks;
pub mod prelude;
mod request;
pub mod schema;
mod transaction;

pub use error::Error;
pub use migrations::migrate;
pub use object_id::{InvalidObjectId, MAX_ID_CHARS, ObjectId};
pub use object_lock::{IntoObjectLock, IntoObjectLocks, ObjectLock, Retention, Wait};
pub use object_locks::ObjectLocks;
