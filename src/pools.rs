//! Waits without a connection: what lends connections, and how they are shared.

pub(crate) mod borrowed;
pub(crate) mod lender;
pub(crate) mod object_waits;
pub(crate) mod slot_waits;
