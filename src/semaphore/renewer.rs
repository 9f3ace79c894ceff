//! Slots that are renewed in the background, with connections of a pool.

mod background;
#[cfg(feature = "r2d2")]
pub(crate) mod blocking;
pub(super) mod generic;
mod handle;
#[cfg(feature = "_async_pool")]
pub(crate) mod nonblocking;
mod pending_release;
mod release;
mod renew;
mod shared;
pub(crate) mod weak;
