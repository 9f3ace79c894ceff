//! How a wrapper waits.

#[cfg(feature = "_pool")]
use std::io;
use std::marker::PhantomData;
#[cfg(feature = "_pool")]
use std::thread;
use std::time::Duration;

use super::ConnectionWrapper;
#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "async-sqlite"
))]
use crate::timer::task::TaskTimer;
use crate::timer::thread::ThreadTimer;
use crate::timer::{Event, Timer};

/// As the inner connection of `W` does.
pub struct WrapperTimer<W>(PhantomData<W>);

impl<W: ConnectionWrapper> Timer for WrapperTimer<W> {
    const MAY_STALL: bool = W::AWAITS;

    async fn pause(time: Duration) {
        #[cfg(any(
            feature = "async-postgres",
            feature = "async-mysql",
            feature = "async-sqlite"
        ))]
        if W::AWAITS {
            return TaskTimer::pause(time).await;
        }
        ThreadTimer::pause(time).await;
    }

    async fn wait<E: Event>(event: E) -> E::Value {
        #[cfg(any(
            feature = "async-postgres",
            feature = "async-mysql",
            feature = "async-sqlite"
        ))]
        if W::AWAITS {
            return TaskTimer::wait(event).await;
        }
        ThreadTimer::wait(event).await
    }

    async fn answer_within<T: Send>(
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        #[cfg(any(
            feature = "async-postgres",
            feature = "async-mysql",
            feature = "async-sqlite"
        ))]
        if W::AWAITS {
            return TaskTimer::answer_within(limit, work).await;
        }
        ThreadTimer::answer_within(limit, work).await
    }

    #[cfg(feature = "_pool")]
    fn spawn(name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || W::block_on(work)).map(drop)
    }
}
