//! What the tests show, on any engine.

#![allow(
    clippy::extra_unused_type_parameters,
    reason = "each is called with the type of its engine's connection"
)]

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod database_down;
mod instances;
mod load;
mod operator;
mod shutdown;
mod single;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) use database_down::*;
pub(crate) use instances::*;
pub(crate) use load::*;
pub(crate) use operator::*;
pub(crate) use shutdown::*;
pub(crate) use single::*;
