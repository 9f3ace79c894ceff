//! Questions to the database with a time limit, which holds also if the network is silent.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::ConnectionError;
use diesel_locks::Error;

use super::Store;

/// The longest pause between two questions while earlier ones have no answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The questions without an answer that are left behind at most. Each has a thread and a connection until the system
/// gives the connection up: on Linux after about 15 minutes.
const MOST_LEFT: u32 = 40;

/// Asks the database on a connection that nothing else uses.
///
/// The client library of MySQL waits for an answer without a limit, and so does that of PostgreSQL if the server's
/// machine receives the question. So each question has a thread, which is left behind when the time is up; the next
/// question gets another connection.
pub(crate) struct Asker<C>(Arc<Inner<C>>);

struct Inner<C> {
    url: String,
    state: Mutex<State<C>>,
}

struct State<C> {
    idle: Option<C>,
    /// Questions that have no answer yet.
    under_way: u32,
    last: Instant,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The time is up, or earlier questions have no answer yet.
    Silent,
    NotConnected(ConnectionError),
    Failed(Error),
}

impl<C: Store> Asker<C> {
    pub(super) fn new(url: &str) -> Self {
        Self(Arc::new(Inner {
            url: url.to_owned(),
            state: Mutex::new(State {
                idle: None,
                under_way: 0,
                last: Instant::now(),
            }),
        }))
    }

    /// Asks, and waits for the answer until the limit. One caller at a time: a second question counts the first one as
    /// one without an answer.
    pub(crate) fn ask<T, F>(&self, limit: Duration, question: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: Fn(&mut C) -> Result<T, Error> + Send + 'static,
    {
        let under_way = self.0.begin().ok_or(NoAnswer::Silent)?;
        let inner = Arc::clone(&self.0);
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            let answer = inner.ask(question);
            drop(under_way);
            // Nobody waits for it if it is late.
            let _ = sender.send(answer);
        });
        answer.recv_timeout(limit).unwrap_or(Err(NoAnswer::Silent))
    }
}

impl<C: Store> Inner<C> {
    fn begin(self: &Arc<Self>) -> Option<UnderWay<C>> {
        let mut state = self.lock();
        if !is_due(state.under_way, state.last.elapsed()) {
            return None;
        }
        state.under_way += 1;
        state.last = Instant::now();
        Some(UnderWay(Arc::clone(self)))
    }

    fn ask<T>(&self, question: impl Fn(&mut C) -> Result<T, Error>) -> Result<T, NoAnswer> {
        let mut idle = self.lock().idle.take();
        loop {
            let is_new = idle.is_none();
            let mut conn = idle.take().map_or_else(|| self.connect(), Ok)?;
            let answer = question(&mut conn);
            if answer.is_ok() || conn.ping().is_ok() {
                self.lock().idle = Some(conn);
                return answer.map_err(NoAnswer::Failed);
            }
            // A connection may have ended while nobody used it.
            if is_new {
                return answer.map_err(NoAnswer::Failed);
            }
        }
    }

    fn connect(&self) -> Result<C, NoAnswer> {
        let mut conn = C::establish(&self.url).map_err(NoAnswer::NotConnected)?;
        conn.configure_session()
            .and_then(|()| conn.limit_look())
            .map_err(|error| NoAnswer::Failed(error.into()))?;
        Ok(conn)
    }
}

impl<C> Inner<C> {
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether another question may be asked while so many have no answer, so long after the last one: the pauses double.
fn is_due(under_way: u32, since_last: Duration) -> bool {
    let pause = Duration::from_secs(1 << under_way.min(10)).min(LONGEST_PAUSE);
    under_way == 0 || (under_way < MOST_LEFT && since_last >= pause)
}

/// A question that has no answer yet.
struct UnderWay<C>(Arc<Inner<C>>);

impl<C> Drop for UnderWay<C> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use diesel::SqliteConnection;

    use super::{Asker, MOST_LEFT, NoAnswer, is_due};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn pauses_double_while_there_is_no_answer() {
        let due = |under_way, seconds| is_due(under_way, Duration::from_secs(seconds));
        assert!(due(0, 0));
        assert!(!due(1, 1) && due(1, 2));
        assert!(!due(3, 7) && due(3, 8));
        assert!(!due(9, 29) && due(9, 30));
        assert!(!due(MOST_LEFT, 1000));
    }

    #[test]
    fn question_without_an_answer_is_left_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("asker.sqlite");
        let asker = Asker::<SqliteConnection>::new(path.to_str().expect("UTF-8"));
        assert!(matches!(asker.ask(LONG, |_| Ok(1)), Ok(1)));
        let (answer, is_answered) = mpsc::channel::<()>();
        let is_answered = std::sync::Mutex::new(is_answered);
        let hangs = move |_: &mut SqliteConnection| {
            let is_answered = is_answered.lock().expect("one thread");
            let _ = is_answered.recv();
            Ok(2)
        };
        let silent = asker.ask(Duration::ZERO, hangs);
        assert!(matches!(silent, Err(NoAnswer::Silent)));
        drop(answer);
        while asker.0.lock().under_way > 0 {
            std::thread::yield_now();
        }
        assert!(matches!(asker.ask(LONG, |_| Ok(4)), Ok(4)));
    }
}
