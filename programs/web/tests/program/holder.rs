//! A session that holds an object lock until the test is done with it.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use diesel::prelude::*;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Database;

pub(crate) struct Holder {
    /// The lock is released when it is dropped.
    release: Sender<()>,
    thread: JoinHandle<()>,
}

impl Holder {
    /// Returns when the lock is held.
    pub(crate) fn acquire(url: &str, id: ObjectId) -> Self {
        let database = Database::from_url(url).expect("a URL");
        let (held, is_held) = channel();
        let (release, released) = channel::<()>();
        let thread = thread::spawn(move || {
            let mut conn = AnyConnection::open(&database).expect("the database answers");
            conn.with_object_lock(id, |_| -> QueryResult<()> {
                held.send(()).expect("the test waits");
                let _ = released.recv();
                Ok(())
            })
            .expect("the lock is free");
        });
        is_held.recv().expect("the lock is acquired");
        Self { release, thread }
    }

    /// Returns when the lock is released.
    pub(crate) fn release(self) {
        drop(self.release);
        self.thread.join().expect("the holder");
    }
}
