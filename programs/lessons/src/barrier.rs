//! Runs a function on two threads at the same time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel_locks::Error;

use crate::scenario::SessionName;
use crate::session::connect;
use crate::store::Store;

/// A thread that waits alone continues after this time.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Barrier {
    here: Mutex<u32>,
    arrived: Condvar,
}

impl Barrier {
    pub(crate) fn wait(&self) {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        *here += 1;
        self.arrived.notify_all();
        let _ = self
            .arrived
            .wait_timeout_while(here, PATIENCE, |here| *here < 2);
    }
}

/// Runs `act` for A and for B at the same time, each on its own connection. Returns both results.
pub(crate) fn both<C: Store, T: Send>(
    url: &str,
    act: impl Fn(&mut C, SessionName) -> Result<T, Error> + Sync,
) -> Result<[T; 2]> {
    let run = |session| -> Result<T> {
        let mut conn = connect::<C>(url)?;
        act(&mut conn, session).with_context(|| format!("{session} failed"))
    };
    thread::scope(|scope| {
        let a = scope.spawn(|| run(SessionName::A));
        let b = run(SessionName::B);
        Ok([a.join().expect("no panic")?, b?])
    })
}
