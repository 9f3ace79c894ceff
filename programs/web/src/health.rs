//! Whether the database answers, asked once for all health checks.

use std::time::Duration;

use diesel::r2d2::R2D2Connection;
use diesel_locks::StopToken;
use program_support::database::Database;
use tokio::sync::watch;

use crate::store::{Asker, NoAnswer};

/// The pause between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Why the database can't be used, if it can't.
pub(crate) type Health = Option<&'static str>;

/// Asks on the calling thread, until the process is to end.
pub(crate) fn watch(database: &Database, stop: &StopToken, health: &watch::Sender<Health>) {
    let mut asker = Asker::new(database);
    loop {
        let (now, cause) = match asker.ask(LIMIT, |conn| Ok(conn.ping()?)) {
            Ok(()) => (None, "it answers again".to_owned()),
            Err(NoAnswer::Silent) => (Some("the database does not answer"), "no answer".to_owned()),
            // The cause may name the server: it is for the log.
            Err(NoAnswer::NotConnected(cause) | NoAnswer::Failed(cause)) => {
                (Some("the database does not answer"), format!("{cause:#}"))
            }
        };
        health.send_modify(|health| {
            if *health != now {
                crate::log(&format!("the database: {cause}"));
            }
            *health = now;
        });
        if !stop.sleep(PAUSE) {
            return;
        }
    }
}
