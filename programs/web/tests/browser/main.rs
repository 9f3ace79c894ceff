//! The operator's page in a headless Chromium.

mod connection;
mod holders;
mod http;
mod layout;
mod operator;
mod page;
mod pictures;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod service;
mod webdriver;
