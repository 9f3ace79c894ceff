//! What is known about a running server.

use std::path::PathBuf;

/// A running server.
pub(crate) struct Server {
    /// Name and version.
    pub(crate) title: String,
    /// Where it comes from.
    pub(crate) origin: String,
    pub(crate) url: String,
    /// Whether it can be made to report errors in German.
    pub(crate) has_locale_de: bool,
    /// A program that kills it.
    pub(crate) kill: Option<PathBuf>,
}
