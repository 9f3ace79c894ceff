//! A thread on which what dropped futures have left on the server is ended.
//!
//! A destructor can't wait for the server, and the runtime of the future may have been shut down, or, if it has one thread,
//! may not run again. So the work is done by a runtime of this crate, which is started by the first dropped future.

use std::future::pending;
use std::io;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Cancel requests are connections of their own: no more than these at a time.
static REQUESTS: Semaphore = Semaphore::const_new(8);

/// A cancel request that takes longer is given up.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

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

/// Runs the work on the thread.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = &*RUNTIME {
        runtime.spawn(work);
    }
}

/// Sends a cancel request, in turn with others. Returns `None` when it took too long.
pub(crate) async fn request<T>(request: impl Future<Output = T>) -> Option<T> {
    let _turn = REQUESTS.acquire().await.ok()?;
    timeout(LONGEST_REQUEST, request).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_is_done_without_a_runtime_of_the_caller() {
        let (done, is_done) = channel();
        spawn(async move {
            let answer = request(async { 17 }).await;
            done.send(answer).expect("the test waits for it");
        });
        let answer = is_done.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer, Ok(Some(17)));
    }
}
