//! What the tests show, on any engine.

mod faults;
mod load;
mod single;

pub(crate) use faults::*;
pub(crate) use load::*;
pub(crate) use single::*;
