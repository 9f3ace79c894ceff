//! Reads the lists, on a thread that may wait for the database.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use diesel_locks::chrono::{DateTime, Utc};

use crate::arguments::List;
use crate::database::{AnyConnection, Database};
use crate::failure::Failure;
use crate::watch::events::Event;
use crate::{clock, list};

/// The lists, and when they were read, by the clock of the database.
pub(super) struct Reading {
    pub(super) text: String,
    pub(super) at: DateTime<Utc>,
}

pub(super) struct Reader {
    database: Database,
    options: List,
    conn: Option<AnyConnection>,
}

impl Reader {
    pub(super) fn new(database: Database, options: List) -> Self {
        Self {
            database,
            options,
            conn: None,
        }
    }

    pub(super) fn read(&mut self) -> Result<Reading, Failure> {
        let mut conn = self.conn.take().map_or_else(|| self.connect(), Ok)?;
        let at = clock::now(&mut conn).map_err(|error| Failure::Locks(error.into()))?;
        let text = list::list(&mut conn, &self.options)?.text;
        // After an error the next reading has a new connection.
        self.conn = Some(conn);
        Ok(Reading { text, at })
    }

    fn connect(&self) -> Result<AnyConnection, Failure> {
        let mut conn = self.database.open()?;
        conn.set_up()?;
        Ok(conn)
    }

    /// Reads after each interval, until this process ends.
    pub(super) fn start(mut self, interval: Duration, events: Sender<Event>) -> io::Result<()> {
        let work = move || {
            loop {
                thread::sleep(interval);
                let read = self.read().map_err(|failure| failure.line());
                if events.send(Event::Read(read)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(work)?;
        Ok(())
    }
}
