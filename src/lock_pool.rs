//! Waits for object locks and slots without a connection, over a pool.

#[cfg(feature = "_async_pool")]
pub(crate) mod asynchronous;
#[cfg(feature = "r2d2")]
pub(crate) mod blocking;
mod objects;
mod shared;
mod slots;

#[cfg(all(
    test,
    feature = "sqlite",
    feature = "async-sqlite",
    feature = "deadpool"
))]
mod tests;
