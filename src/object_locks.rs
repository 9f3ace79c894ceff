//! The methods on connections.

use crate::engine::{Engine, Grant};
use crate::object_lock::{IntoObjectLock, IntoObjectLocks};
use crate::request::Request;
use crate::{Error, transaction};

pub trait ObjectLocks: Engine {
    fn with_object_lock<T, E, F>(&mut self, lock: impl IntoObjectLock, work: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        run_or_held(self, &Request::new(lock.into_object_lock())?, work)
    }

    fn try_with_object_lock<T, E, F>(
        &mut self,
        lock: impl IntoObjectLock,
        work: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(lock.into_object_lock())?.without_waiting();
        transaction::run(self, &request, work)
    }

    fn with_object_locks<T, E, F>(&mut self, locks: impl IntoObjectLocks, work: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        run_or_held(self, &Request::new(locks.into_object_locks())?, work)
    }

    fn try_with_object_locks<T, E, F>(
        &mut self,
        locks: impl IntoObjectLocks,
        work: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(locks.into_object_locks())?.without_waiting();
        transaction::run(self, &request, work)
    }

    fn lock_object(&mut self, lock: impl IntoObjectLock) -> Result<(), Error> {
        let request = Request::new(lock.into_object_lock())?;
        match transaction::lock(self, "lock_object", &request)? {
            Grant::Locked => Ok(()),
            Grant::Held => Err(Error::Held {
                what: request.what(),
            }),
        }
    }

    fn try_lock_object(&mut self, lock: impl IntoObjectLock) -> Result<bool, Error> {
        let request = Request::new(lock.into_object_lock())?.without_waiting();
        Ok(transaction::lock(self, "try_lock_object", &request)? == Grant::Locked)
    }

    fn purge_object_locks(&mut self) -> Result<usize, Error> {
        if transaction::depth(self)? > 0 {
            return Err(Error::InTransaction {
                method: "purge_object_locks",
                why: "the removed rows would stay locked until it ends",
            });
        }
        self.purge()
    }
}

impl<C: Engine> ObjectLocks for C {}

fn run_or_held<C, T, E, F>(conn: &mut C, request: &Request, work: F) -> Result<T, E>
where
    C: Engine,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    match transaction::run(conn, request, work)? {
        Some(value) => Ok(value),
        None => Err(Error::Held {
            what: request.what(),
        }
        .into()),
    }
}
