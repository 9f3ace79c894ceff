//! A runtime that is shut down while one of its futures waits, or holds a lock.

use std::future::pending;
use std::sync::{Arc, mpsc};
use std::thread;

use diesel_locks::Error;
use diesel_locks::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::locks::{ID, write};
use crate::support::after::After;
use crate::support::blocker::Blocker;
use crate::support::dropped::LONG;
use crate::support::engine::{BoxFuture, Connections, Engine, Source, Taken};
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

/// The pool is not of the runtime: it keeps the connection, and lends it to others.
pub(crate) async fn shut_down_while_held<E: Engine>() {
    for source in [Source::Bb8, Source::Deadpool] {
        let place = "a runtime with threads";
        end_while_held::<E>(source, with_threads(), End::Waits, place).await;
        let place = "a runtime with one thread";
        end_while_held::<E>(source, with_one_thread(), End::Waits, place).await;
        let place = "a runtime with threads, in a poll";
        end_while_held::<E>(source, with_threads(), End::InPoll, place).await;
    }
}

/// What the closure that holds the lock does when its runtime is shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Waits,
    /// It is being polled, and returns afterwards: nothing can be committed any more.
    InPoll,
}

async fn end_while_held<E: Engine>(source: Source, runtime: Runtime, end: End, place: &str) {
    let database = E::new();
    let watch = Watch::new(&database);
    let connections: Shared<E> = Arc::new(database.connections(source).await);
    let (tell, told) = channel();
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = (end == End::InPoll).then_some(may_go_on);
    runtime.spawn(hold::<E>(Arc::clone(&connections), may_go_on, tell));
    let (stop, stopped) = channel::<()>();
    let running = thread::spawn(move || {
        runtime.block_on(stopped).expect("the test says when");
        if end == End::InPoll {
            runtime.shutdown_background();
            go_on.send(()).expect("the closure waits");
        } else {
            runtime.shutdown_timeout(LONG);
        }
    });
    let session = told.await.expect("a session");
    stop.send(()).expect("it runs");
    let ended = spawn_blocking(|| running.join()).await;
    ended.expect("no panic").expect("no panic");

    let after = After {
        watch: &watch,
        session,
        place,
    };
    after.until_quiet().await;
    after.until_free(&Held::Object(ID)).await;
    let written = watch.written(ATTEMPT).await;
    assert!(
        written == 0 || (written == 2 && end == End::InPoll),
        "{place}: {written} rows"
    );
    after.check_next(&mut connections.take().await).await;
}

const ATTEMPT: usize = 1;

type Shared<E> = Arc<Box<dyn Connections<<E as Engine>::Conn>>>;

fn hold<E: Engine>(
    connections: Shared<E>,
    may_go_on: Option<mpsc::Receiver<()>>,
    tell: Sender<Option<i64>>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        // As in `wait`.
        let connected = tokio::spawn(async move { connections.take().await }).await;
        let conn = connected.expect("no panic");
        tokio::spawn(hold_with::<E>(conn, may_go_on, tell));
    })
}

fn hold_with<E: Engine>(
    mut conn: Taken<E::Conn>,
    may_go_on: Option<mpsc::Receiver<()>>,
    tell: Sender<Option<i64>>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let session = E::session(&mut conn).await;
        let work = async move |conn: &mut E::Conn| {
            write(conn, ATTEMPT).await?;
            tell.send(session).expect("the test waits for it");
            match may_go_on {
                Some(may_go_on) => may_go_on.recv().expect("the test says when"),
                None => pending().await,
            }
            Ok::<_, Error>(())
        };
        let _ = conn.with_object_lock(ID, work).await;
    })
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
