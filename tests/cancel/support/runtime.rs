//! Runtimes on which the bodies run.

use tokio::runtime::{Builder, Runtime};

/// A runtime with several threads.
pub(crate) fn with_threads() -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

/// A runtime with one thread, which runs nothing while that is blocked.
pub(crate) fn with_one_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
