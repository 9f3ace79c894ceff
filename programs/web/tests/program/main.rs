//! The program: its HTTP interface, driven by many clients at once, on each engine.

mod client;
mod engines;
mod holder;
mod instance;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod proxy;
mod scenarios;
#[cfg(target_os = "linux")]
mod tcp;
