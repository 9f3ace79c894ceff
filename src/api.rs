//! What an application calls.

#[cfg(feature = "_async")]
pub mod closures;
pub(crate) mod inspect;
#[cfg(feature = "_pool")]
mod leader;
#[cfg(feature = "_pool")]
pub(crate) mod lock_pool;
#[cfg(all(
    test,
    feature = "sqlite",
    feature = "async-sqlite",
    feature = "deadpool"
))]
mod lock_pool_tests;
pub(crate) mod migrate;
pub mod migrations;
pub(crate) mod object_lock;
pub mod operation;
mod pair;
pub(crate) mod semaphore;
pub(crate) mod sequence;
#[cfg(feature = "_pool")]
pub(crate) mod shutdown;
pub(crate) mod single_writer;
#[cfg(feature = "_pool")]
pub(crate) mod slot_guard;
#[cfg(feature = "_pool")]
pub(crate) mod slot_renewer;
#[cfg(feature = "_pool")]
pub(crate) mod timer;
pub(crate) mod transaction;
