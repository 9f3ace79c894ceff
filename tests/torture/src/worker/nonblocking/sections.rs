//! What is done in a transaction that holds a lock or a slot.

use async_trait::async_trait;
use tokio::time::sleep;

use super::tasks::Plan;
use crate::async_pools::Section;
use crate::async_store::AsyncStore;
use crate::worker::errors::Failure;
use crate::worker::operation::Operation;

/// Adds one to counters, by reading and writing them.
pub(super) struct Counting<'a> {
    pub(super) operation: &'a Operation,
    pub(super) plan: &'a Plan,
    pub(super) counters: &'a [u32],
}

impl Counting<'_> {
    pub(super) async fn count<A: AsyncStore>(&self, conn: &mut A) -> Result<(), Failure> {
        self.operation.entered(None)?;
        for &counter in self.counters {
            let n = conn.read_counter(counter).await?;
            sleep(self.plan.pause).await;
            conn.write_counter(self.operation.op, counter, n + 1)
                .await?;
        }
        self.operation.leaves();
        Ok(())
    }
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
