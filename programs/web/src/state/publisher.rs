//! Makes snapshots, for all listeners.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Snapshot;
use super::handovers::Handovers;
use super::lists::{self, Lists};
use super::rates::Window;
use super::snapshot::Full;
use crate::app::App;
use crate::log::{self, Changes, with_causes};
use crate::store::{NoAnswer, Store};

/// The pause between two snapshots.
const PAUSE: Duration = Duration::from_millis(300);

/// How long a look at the database may take: longer than each of its statements, so that a locked table is an error that
/// the database tells.
const LONGEST_LOOK: Duration = Duration::from_secs(6);

/// Makes a snapshot every 300 ms on the calling thread, until the process is to end.
pub(crate) fn run<C: Store>(app: &App<C>, engine: &str, snapshots: &watch::Sender<Arc<Snapshot>>) {
    let mut publisher = Publisher::default();
    while !app.shutdown.stop_token().is_stopped() {
        let snapshot = publisher.next(app, engine);
        snapshots.send_replace(Arc::new(snapshot));
        thread::sleep(PAUSE);
    }
}

/// What a snapshot needs of those before.
#[derive(Default)]
struct Publisher {
    lists: Lists,
    read: Option<Instant>,
    handovers: Handovers,
    window: Window,
    error: Changes,
}

impl Publisher {
    fn next<C: Store>(&mut self, app: &App<C>, engine: &str) -> Snapshot {
        let (asked, with_locks) = (engine.to_owned(), self.lists.locks_are_due());
        let look = app.page.ask(LONGEST_LOOK, move |conn| {
            lists::look(conn, &asked, with_locks)
        });
        let cause = look.as_ref().err().map(cause);
        self.error.see_kind("the page is not up to date", cause);
        let error = match look {
            Ok(look) => {
                self.lists.take(look);
                self.handovers
                    .update(self.lists.now_us, &self.lists.semaphores);
                self.read = Some(Instant::now());
                None
            }
            // The cause may name the server: it is for the log.
            Err(NoAnswer::Silent | NoAnswer::NotConnected(_)) => {
                Some("the database does not answer")
            }
            Err(NoAnswer::Failed(_)) => {
                Some("the database can't be read, and the service's log says why")
            }
        };
        let age = self.read.map(|read| read.elapsed().as_micros());
        let age = i64::try_from(age.unwrap_or_default()).unwrap_or_default();
        let snapshot = Full {
            engine,
            instance: &app.instance,
            guarded: app.arguments.operator_token.is_some(),
            semaphores: &self.lists.semaphores,
            rates: self
                .window
                .add(Instant::now(), app.metrics.totals(), &app.waits),
            handovers: self.handovers.list(),
            handovers_cut: self.handovers.are_cut(),
            object_locks: &self.lists.object_locks,
            sequences: &self.lists.sequences,
        };
        let json = serde_json::to_string(&snapshot).unwrap_or_else(|error| {
            log::line(&format!("no snapshot: {error}"));
            "{}".to_owned()
        });
        Snapshot::new(self.lists.now_us + age, error, json)
    }
}

/// The kind of the error, and its text. The texts of errors of connecting alternate while the database is down.
fn cause(error: &NoAnswer) -> (String, String) {
    let no_answer = "the database does not answer".to_owned();
    match error {
        NoAnswer::Silent => (no_answer.clone(), no_answer),
        NoAnswer::NotConnected(error) => (no_answer, with_causes(error)),
        NoAnswer::Failed(error) => (with_causes(error), with_causes(error)),
    }
}
