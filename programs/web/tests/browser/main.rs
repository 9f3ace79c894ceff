//! The operator's page in a headless Chromium.

#[path = "../program/client.rs"]
#[allow(dead_code, reason = "tests/program uses the rest")]
mod client;
mod connection;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../program/holder.rs"]
mod holder;
#[path = "../program/instance.rs"]
#[allow(dead_code, reason = "tests/program uses the rest")]
mod instance;
mod lists;
mod operator;
mod page;
mod webdriver;
