//! The crate lacks a feature of a pool.
//@ features: sqlite
//~ SlotRenewer
//~ feature = "r2d2"

use diesel_locks::SlotRenewer;

fn main() {}
