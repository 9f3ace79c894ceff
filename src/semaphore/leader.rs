//! A leader with automatic fail-over.

#[cfg(feature = "r2d2")]
mod blocking;
mod candidate;
#[cfg(feature = "_async_pool")]
mod nonblocking;
