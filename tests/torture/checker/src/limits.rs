//! What the run knows and histories do not contain.

use std::collections::BTreeSet;
use std::time::Duration;

/// What the run knows and histories do not contain.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
pub struct Limits {
    /// The longest that an operation may take, not counting the time for which its process was paused.
    pub longest: Duration,
    /// Processes that the nemesis killed. Not those that had to be killed because they would not stop: what they had
    /// begun never came back.
    pub killed: BTreeSet<u32>,
    /// Whether limits on statements (`lock_timeout`, `innodb_lock_wait_timeout`, `busy_timeout`) are so low that they
    /// may end some.
    pub statements_are_limited: bool,
    /// Whether what follows a COMMIT or ROLLBACK that was sent as text, in a closure of this crate, is in one more
    /// transaction, which the crate rolls back at the end (InnoDB, without autocommit): locks and numbers in it are.
    pub one_more_transaction: bool,
    /// Whether threads have used asynchronous connections.
    pub asynchronous: bool,
    /// Whether several nodes take writes, which each serve what they have received from the others so far. What is granted
    /// in a transaction that another node has ended is rolled back at its end.
    pub several_writers: bool,
    /// How far from its moments in the log a jump of the clock may have taken place.
    pub jump_tolerance: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(30),
            killed: BTreeSet::new(),
            statements_are_limited: false,
            one_more_transaction: false,
            asynchronous: false,
            several_writers: false,
            jump_tolerance: Duration::from_secs(1),
        }
    }
}
