//! The programs, from their arguments to their output.

mod collate;
mod lessons;
mod passes;
mod row_locking_matrix;
mod scale;
mod timeline;
