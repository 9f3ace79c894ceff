//! The program: its HTTP interface, driven by many clients at once, on each engine.

mod client;
mod engines;
mod holder;
mod instance;
mod measure;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod proxy;
mod scenarios;
