//! What an application calls. `lib.rs` says where the other public types are.

pub(crate) mod inspect;
#[cfg(feature = "_pool")]
pub(crate) mod lock_pool;
#[cfg(all(
    test,
    feature = "sqlite",
    feature = "async-sqlite",
    feature = "deadpool"
))]
mod lock_pool_tests;
pub mod migrations;
pub(crate) mod object_lock;
pub mod operation;
mod pair;
#[cfg(feature = "_pool")]
pub(crate) mod recurring;
pub(crate) mod semaphore;
pub(crate) mod sequence;
pub(crate) mod setup;
#[cfg(feature = "_pool")]
pub(crate) mod shutdown;
#[cfg(feature = "_pool")]
pub(crate) mod slot_guard;
#[cfg(feature = "_pool")]
pub(crate) mod slot_renewer;
#[cfg(feature = "testing")]
pub mod testing;
pub(crate) mod transaction;
