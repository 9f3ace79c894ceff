//! What is done in a transaction that holds a lock or a slot.

use async_trait::async_trait;
use diesel::QueryResult;
use tokio::time::sleep;
use torture_history::{Locking, workload_spec};

use super::tasks::Plan;
use crate::async_pools::Section;
use crate::async_store::AsyncStore;
use crate::worker::errors::Failure;
use crate::worker::locks::ensure_unchanged;
use crate::worker::operation::Operation;

/// Adds one to counters, by reading and writing them, and reads the shared ones.
pub(super) struct Counting<'a> {
    pub(super) operation: &'a Operation,
    pub(super) plan: &'a Plan,
    pub(super) locking: &'a Locking,
}

impl Counting<'_> {
    pub(super) async fn count<A: AsyncStore>(&self, conn: &mut A) -> Result<(), Failure> {
        let Locking {
            counters, shared, ..
        } = self.locking;
        self.operation.entered(None)?;
        let before = read_all(conn, shared).await?;
        for &counter in counters {
            let n = conn.read_counter(counter).await?;
            sleep(self.plan.pause).await;
            conn.write_counter(self.operation.op, counter, n + 1)
                .await?;
        }
        if !shared.is_empty() {
            // As long as the pauses of blocking connections.
            sleep(self.plan.pause * 4).await;
            let after = read_all(conn, shared).await?;
            ensure_unchanged(self.locking, &before, &after)?;
            let step = workload_spec::STEP_READ;
            conn.insert_step(self.operation.op, step).await?;
        }
        self.operation.leaves();
        Ok(())
    }
}

async fn read_all<A: AsyncStore>(conn: &mut A, counters: &[u32]) -> QueryResult<Vec<i64>> {
    let mut read = Vec::new();
    for &counter in counters {
        read.push(conn.read_counter(counter).await?);
    }
    Ok(read)
}

#[async_trait]
impl<A: AsyncStore> Section<A> for Counting<'_> {
    async fn run(&self, conn: &mut A) -> Result<(), Failure> {
        self.count(conn).await
    }
}

/// Notes its visit.
pub(super) struct Visiting<'a> {
    pub(super) operation: &'a Operation,
    pub(super) plan: &'a Plan,
}

impl Visiting<'_> {
    pub(super) async fn visit<A: AsyncStore>(&self, conn: &mut A) -> Result<(), Failure> {
        self.operation.entered(None)?;
        // Long enough for all permits to be in use at times.
        sleep(self.plan.pause * 3).await;
        conn.insert_slot_use(self.operation.op).await?;
        self.operation.leaves();
        Ok(())
    }
}

#[async_trait]
impl<A: AsyncStore> Section<A> for Visiting<'_> {
    async fn run(&self, conn: &mut A) -> Result<(), Failure> {
        self.visit(conn).await
    }
}
