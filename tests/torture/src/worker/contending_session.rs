//! A second session, which has the row that an operation wants.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, sleep};
use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use torture_history::{Op, workload_spec};

use super::context::WorkerContext;
use crate::store::Store;

/// More rows than the other session writes: InnoDB ends the one that has changed less.
const ROWS: std::ops::Range<u32> = 1000..1040;
/// The other session is to wait first: PostgreSQL looks for a deadlock when one has waited for some time, and ends
/// that.
const AHEAD: Duration = Duration::from_millis(30);

/// A second session. If it does not wait itself, it continues until this is dropped.
pub(crate) struct ContendingSession {
    has_row: Receiver<()>,
    _until: Sender<()>,
}

impl ContendingSession {
    /// It takes the row. Then, if it is to, it waits for the row that this operation has written.
    pub(crate) fn start<'scope, C: Store>(
        scope: &'scope Scope<'scope, '_>,
        context: &'scope WorkerContext<C>,
        op: Op,
        waits: bool,
    ) -> Self {
        let (tell, has_row) = channel();
        let (until, is_over) = channel();
        scope.spawn(move || {
            // Whatever becomes of it: the operation finds the row taken, or does not.
            let _ = work(context, op, waits, &tell, &is_over);
        });
        Self {
            has_row,
            _until: until,
        }
    }

    /// Waits until it has the row, or has failed.
    pub(crate) fn wait(&self) {
        let _ = self.has_row.recv();
    }
}

fn work<C: Store>(
    context: &WorkerContext<C>,
    op: Op,
    waits: bool,
    tell: &Sender<()>,
    is_over: &Receiver<()>,
) -> anyhow::Result<()> {
    let mut conn = context.pool.get()?;
    let conn = &mut *conn;
    AnsiTransactionManager::begin_transaction(conn)?;
    let worked = take(conn, op, waits, tell);
    if !waits {
        // The sender is dropped.
        let _ = is_over.recv();
    }
    AnsiTransactionManager::rollback_transaction(conn)?;
    Ok(worked?)
}

fn take<C: Store>(conn: &mut C, op: Op, waits: bool, tell: &Sender<()>) -> QueryResult<()> {
    conn.insert_step(op, workload_spec::STEP_WANTED)?;
    if waits {
        for row in ROWS {
            conn.insert_step(op, row)?;
        }
    }
    let _ = tell.send(());
    if waits {
        sleep(AHEAD);
        conn.insert_step(op, workload_spec::STEP_BEFORE)?;
    }
    Ok(())
}
