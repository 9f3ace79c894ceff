//! A session that holds an object lock until the test is done with it.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use diesel::prelude::*;
use diesel_locks::prelude::*;

pub(crate) struct Holder {
    release: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    /// Returns when the lock is held.
    pub(crate) fn acquire<C: ObjectLockExt + Connection>(url: &str, id: ObjectId) -> Self {
        let url = url.to_owned();
        let (held, is_held) = channel();
        let (release, released) = channel();
        let thread = thread::spawn(move || {
            let mut conn = C::establish(&url).expect("the database answers");
            conn.with_object_lock(id, |_| -> QueryResult<()> {
                held.send(()).expect("the test waits");
                let _ = released.recv();
                Ok(())
            })
            .expect("the lock is free");
        });
        is_held.recv().expect("the lock is acquired");
        Self {
            release: Some(release),
            thread: Some(thread),
        }
    }

    /// Returns when the lock is released.
    pub(crate) fn release(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the holder");
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.release.take());
    }
}
