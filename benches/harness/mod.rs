//! What the benchmarks share: engines with databases of their own, connections that work at the same time, rounds of the
//! variants that are compared, and the report.

mod backend;
mod connections;
mod report;
mod rounds;
mod samples;
mod statement;

pub(crate) use backend::{Backend, Database, Engine};
pub(crate) use connections::{Connections, Measured, read_bond, write_bond};
pub(crate) use report::{Benchmark, Common, Limit, Report, connections, name};
pub(crate) use rounds::{Plan, Rows, Variant, compare, under_old_snapshot};
pub(crate) use samples::{Figure, Samples, figure, order};
pub(crate) use statement::{Cached, Statement, Value, statements};
