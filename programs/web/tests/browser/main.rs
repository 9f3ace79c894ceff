//! The operator's page in a headless Chromium.

#[path = "../program/client.rs"]
#[allow(dead_code, reason = "tests/program uses the rest")]
mod client;
mod connection;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../program/holder.rs"]
mod holder;
mod holders;
#[path = "../program/instance.rs"]
#[allow(dead_code, reason = "tests/program uses the rest")]
mod instance;
mod layout;
mod operator;
mod page;
#[cfg(feature = "postgres")]
mod pictures;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod webdriver;
