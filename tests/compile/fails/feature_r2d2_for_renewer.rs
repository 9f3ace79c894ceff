//! The crate lacks the feature `r2d2`.
//@ features: sqlite
//~ SlotRenewer
//~ `r2d2`

use diesel_locks::SlotRenewer;

fn main() {}
