//! Questions to the database with a time limit, which holds also if the network is silent.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;
use diesel_locks::Error;
use program_support::connection::AnyConnection;
use program_support::database::Database;

use super::connect;

/// The longest pause between two questions while earlier ones have no answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The questions without an answer that are left behind at most. Each has a thread and a connection until the system
/// gives the connection up: on Linux after about 15 minutes.
const MOST_LEFT: usize = 40;

/// Asks the database on a connection that nothing else uses.
///
/// The client library of MySQL waits for an answer without a limit, and so does that of PostgreSQL if the server's
/// machine receives the question. So each question has a thread, which is left behind when the time is up; the next
/// question gets another connection.
pub(crate) struct Asker {
    /// Each question that has no answer yet has a clone.
    shared: Arc<Shared>,
    last: Instant,
}

struct Shared {
    database: Database,
    idle: Mutex<Option<AnyConnection>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The time is up, or earlier questions have no answer yet.
    Silent,
    NotConnected(anyhow::Error),
    Failed(anyhow::Error),
}

impl Asker {
    pub(crate) fn new(database: &Database) -> Self {
        Self {
            shared: Arc::new(Shared {
                database: database.clone(),
                idle: Mutex::new(None),
            }),
            last: Instant::now(),
        }
    }

    /// Asks, and waits for the answer until the limit.
    pub(crate) fn ask<T, F>(&mut self, limit: Duration, question: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: Fn(&mut AnyConnection) -> Result<T, Error> + Send + 'static,
    {
        if !is_due(self.without_answer(), self.last.elapsed()) {
            return Err(NoAnswer::Silent);
        }
        self.last = Instant::now();
        let shared = Arc::clone(&self.shared);
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            let answer = shared.ask(question);
            // Before the caller can ask again.
            drop(shared);
            // Nobody waits for it if it is late.
            let _ = sender.send(answer);
        });
        answer.recv_timeout(limit).unwrap_or(Err(NoAnswer::Silent))
    }

    fn without_answer(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }
}

impl Shared {
    fn ask<T>(
        &self,
        question: impl Fn(&mut AnyConnection) -> Result<T, Error>,
    ) -> Result<T, NoAnswer> {
        let mut idle = self.idle().take();
        loop {
            let is_new = idle.is_none();
            let mut conn = match idle.take() {
                Some(conn) => conn,
                None => connect(&self.database).map_err(NoAnswer::NotConnected)?,
            };
            let answer = question(&mut conn);
            let is_lost = answer.is_err() && conn.ping().is_err();
            if is_lost && !is_new {
                // It may have ended while nobody used it.
                continue;
            }
            if !is_lost {
                *self.idle() = Some(conn);
            }
            return answer.map_err(|error| NoAnswer::Failed(error.into()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Option<AnyConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether another question may be asked while so many have no answer, so long after the last one: the pauses double.
fn is_due(without_answer: usize, since_last: Duration) -> bool {
    let pause = Duration::from_secs(1 << without_answer.min(10)).min(LONGEST_PAUSE);
    without_answer == 0 || (without_answer < MOST_LEFT && since_last >= pause)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use program_support::database::Database;
    use program_support::testing::{TempDir, path_in};

    use super::{Asker, MOST_LEFT, NoAnswer, is_due};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn pauses_double_while_there_is_no_answer() {
        let due = |without_answer, seconds| is_due(without_answer, Duration::from_secs(seconds));
        assert!(due(0, 0));
        assert!(!due(1, 1) && due(1, 2));
        assert!(!due(3, 7) && due(3, 8));
        assert!(!due(9, 29) && due(9, 30));
        assert!(!due(MOST_LEFT, 1000));
    }

    #[test]
    fn question_without_an_answer_is_left_behind() {
        let directory = TempDir::new().expect("a directory");
        let database = Database::from_url(&path_in(&directory, "asker.sqlite")).expect("a path");
        let mut asker = Asker::new(&database);
        assert!(matches!(asker.ask(LONG, |_| Ok(1)), Ok(1)));
        let (answer, is_answered) = mpsc::channel::<()>();
        let silent = asker.ask(Duration::ZERO, move |_| {
            let _ = is_answered.recv();
            Ok(2)
        });
        assert!(matches!(silent, Err(NoAnswer::Silent)));
        drop(answer);
        while asker.without_answer() > 0 {
            thread::yield_now();
        }
        assert!(matches!(asker.ask(LONG, |_| Ok(4)), Ok(4)));
    }
}
