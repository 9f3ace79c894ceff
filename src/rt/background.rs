//! A runtime of this crate, on a thread of its own, which the first work starts.
//!
//! A destructor can't wait for the server, and the runtime of a future may have been shut down, or, if it has one thread, may
//! not run again. So what dropped futures have left on the server is ended here, and renewers whose runtime has been shut down
//! go on.

use std::future::pending;
use std::sync::LazyLock;
use std::{io, thread};

use tokio::runtime::{Builder, Handle};

static RUNTIME: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let started = start();
    if let Err(error) = &started {
        tracing::warn!(
            target: "diesel_locks::cancel",
            %error,
            "no thread to end what dropped futures have left: the server ends it when their connections are closed"
        );
    }
    started.ok()
});

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("diesel-locks-cancel".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = &*RUNTIME {
        runtime.spawn(work);
    }
}
