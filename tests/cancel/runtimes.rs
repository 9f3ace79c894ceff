//! A runtime that is shut down while one of its futures waits.

use std::sync::Arc;
use std::thread;

use diesel_locks::Error;
use diesel_locks::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::locks::ID;
use crate::support::after::After;
use crate::support::blocker::Blocker;
use crate::support::dropped::LONG;
use crate::support::engine::{BoxFuture, Engine, Source, Taken};
use crate::support::runtime::{with_one_thread, with_threads};
use crate::support::watch::{Held, Watch};

/// The connection, and the task that moves its bytes, are of the runtime too.
pub(crate) async fn shut_down<E: Engine>() {
    end_of::<E>(with_threads(), "a runtime with threads").await;
    end_of::<E>(with_one_thread(), "a runtime with one thread").await;
}

async fn end_of<E: Engine>(runtime: Runtime, place: &str) {
    let database = Arc::new(E::new());
    let watch = Watch::new(&*database);
    let held = Held::Object(ID);
    let blocker = Blocker::acquire(&database, &held).await;
    let (tell, told) = channel();
    runtime.spawn(wait::<E>(Arc::clone(&database), tell));
    let (stop, stopped) = channel();
    let running = thread::spawn(move || run(runtime, stopped));
    let session = told.await.expect("a session");
    while session.is_some() && !watch.waits(session).await {
        sleep(std::time::Duration::from_millis(1)).await;
    }
    stop.send(()).expect("it runs");
    let ended = spawn_blocking(|| running.join()).await;
    ended.expect("no panic").expect("no panic");

    let after = After {
        watch: &watch,
        session,
        place,
    };
    // Before the lock is free.
    after.until_quiet().await;
    blocker.release().await;
    after.until_free(&held).await;
}

/// Waits for the lock, with a connection that is established here.
fn wait<E: Engine>(database: Arc<E>, tell: Sender<Option<i64>>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        // A pool's connections too are older than the tasks that use them. A runtime drops its oldest tasks first.
        let connected = tokio::spawn(connect::<E>(database)).await;
        let conn = connected.expect("no panic");
        tokio::spawn(wait_with::<E>(conn, tell));
    })
}

fn connect<E: Engine>(database: Arc<E>) -> BoxFuture<'static, Taken<E::Conn>> {
    Box::pin(async move {
        let connections = database.connections(Source::Bare).await;
        connections.take().await
    })
}

fn wait_with<E: Engine>(
    mut conn: Taken<E::Conn>,
    tell: Sender<Option<i64>>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let session = E::session(&mut conn).await;
        tell.send(session).expect("the test waits for it");
        let nothing = async |_: &mut E::Conn| Ok::<_, Error>(());
        let locked = conn.with_object_lock(ID, nothing).await;
        panic!("it was to wait: {locked:?}");
    })
}

fn run(runtime: Runtime, stopped: Receiver<()>) {
    runtime.block_on(stopped).expect("the test says when");
    runtime.shutdown_timeout(LONG);
}
