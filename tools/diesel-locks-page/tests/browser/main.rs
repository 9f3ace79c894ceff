//! The page in a headless Chromium.

mod acts;
mod connection;
mod lists;
mod looks;
mod page;
mod webdriver;
