//! What is held: the methods on connections for an operator.

use crate::acts::administration;
use crate::acts::cancel_guard::unless_dropped;
use crate::api::pair::pair;
use crate::values::held_object_lock::most_urgent;
use crate::values::list_options;
use crate::{Error, HeldObjectLock, ListOptions, SemaphoreInfo, SequenceInfo, SlotInfo};

pair! {
    /// Shows an operator what is in the database: held object locks, semaphores, held slots, sequences. It is not in the
    /// [`prelude`](crate::prelude).
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Error, InspectExt, ListOptions};
    ///
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// # const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    /// # let slot = conn.acquire_slot(&COLLATE, LeaseOptions::new(std::time::Duration::from_secs(9)), Wait::No)?;
    /// # conn.run_transaction(TransactionOptions::new(), |conn| conn.next_number(&Sequence::new("pass").for_key(4711)))?;
    /// for semaphore in conn.semaphores(&ListOptions::new())? {
    ///     println!("{}: {} of {:?} held", semaphore.name, semaphore.held, semaphore.permits);
    /// }
    /// for slot in conn.held_slots(&ListOptions::new().name(COLLATE))? {
    ///     println!("{} {:?} until {}", slot.number, slot.holder, slot.expires_at);
    /// }
    /// for sequence in conn.sequences(&ListOptions::new().name("pass").key_prefix("47"))? {
    ///     println!("{:?}: {}", sequence.key, sequence.last_number);
    /// }
    /// match conn.held_object_locks(50) {
    ///     Err(Error::LocksNotShown { .. }) => {} // SQLite
    ///     locks => {
    ///         for lock in locks? {
    ///             println!("{:?}: {:?}, {} wait", lock.id, lock.holder.id, lock.waiters.len());
    ///         }
    ///     }
    /// }
    /// # assert_eq!(conn.semaphores(&ListOptions::new())?[0].held, 1);
    /// # assert_eq!(conn.held_slots(&ListOptions::new())?[0].token, Some(slot.token()));
    /// # assert_eq!(conn.sequences(&ListOptions::new().name("pass"))?[0].last_number, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The methods only read, in or out of an open transaction. They wait only while another session has locked a whole table
    /// ([how long](crate::operation::blocking)); [`held_object_locks`](Self::held_object_locks) never waits. In an open transaction
    /// at SERIALIZABLE, MySQL and MariaDB lock the rows that they read. [Errors by method](crate::Error#errors-by-method).
    ///
    /// SQLite must be in [WAL mode](crate::operation::sqlite). In another mode they fail with "database is locked" while
    /// another connection commits, and a COMMIT of another connection fails until their transaction ends; both after `busy_timeout`.
    #[doc(alias("admin", "monitor", "dashboard", "pg_locks", "operator"))]
    pub trait InspectExt;

    /// The methods of [`InspectExt`](crate::InspectExt) on connections of diesel-async: [example](crate::AsyncObjectLockExt).
    #[doc(alias("admin", "monitor", "dashboard", "pg_locks", "operator"))]
    pub trait AsyncInspectExt;

    engine {
        /// Lists the object locks that are held, with their holders and waiters, as far as the server shows them.
        ///
        /// Returns at most `limit` locks: first those with waiters, the longest wait first, then those of the oldest transactions.
        ///
        /// The result is that of one moment: to find out whether a lock is free use
        /// [`try_lock_object`](crate::ObjectLockExt::try_lock_object). It contains the locks in the database and schema of this
        /// connection's tables, also those of the connection itself.
        ///
        /// | | PostgreSQL | MySQL | MariaDB | SQLite |
        /// |---|---|---|---|---|
        /// | a held [kept](crate::Retention::Kept) lock | with its id; without, if the transaction has created the row and no session waits | with its id; not, if the transaction has created the row and no session waits | with its id, if a session waits | [`Error::LocksNotShown`] |
        /// | a held transient lock | without its id, one entry for all of a transaction, with the exceptions below; with its id, if a waiter or the [name of the session](crate::LockRequest::name_session) shows it | with its id | with its id, if a session waits | |
        /// | a waiter shows the id of a transient lock | if it called [`with_object_lock`](crate::ObjectLockExt::with_object_lock) outside a transaction, and the id has up to about 200 characters | always | always | |
        /// | waiters | all | all | of those for a transient lock, the first | |
        /// | [`started_at`](crate::LockSession::started_at) | in microseconds | in microseconds | in seconds | |
        /// | [`waiting_since`](crate::LockWaiter::waiting_since) | in microseconds; missing for the first moment of a wait | the begin of the statement that waits | in seconds | |
        /// | shown like a lock | a transaction that purges | a transaction that purges | | |
        /// | privileges | SELECT on `diesel_locks_objects`; `pg_read_all_stats` for times, hosts and queries of other users' sessions | SELECT on `performance_schema` | `PROCESS` | |
        /// | reads | the server's locks; with kept locks, the rows of the table | all locks of InnoDB | all locks of InnoDB for which sessions wait | |
        ///
        /// MariaDB reads its locks again only when no session has asked for 0.1 s, and returns the former result until then: ask at
        /// most a few times a second, in all processes together.
        ///
        /// PostgreSQL shows for which transaction a session waits, but not for what. A session whose query is visible
        /// counts as a waiter only if it calls a function of this crate. One whose query is not visible (another user's without
        /// `pg_read_all_stats`, or any with `track_activities = off`), and that holds or requests object locks and waits for a row
        /// of the application, may be shown as a waiter.
        ///
        /// PostgreSQL shows that a transaction holds transient locks, but not which. Those for which no session waits, and which are
        /// not in the session's name, are not listed if their transaction waits for another object, or is listed as the holder of
        /// another lock.
        ///
        /// In an open transaction on PostgreSQL each call discards the transaction's snapshot of statistics
        /// (`pg_stat_clear_snapshot`). While another session has locked the table of objects, PostgreSQL shows kept locks without
        /// their ids, after 20 ms.
        ///
        /// # Errors
        ///
        /// [`Error::InvalidLimit`] for a limit of 0, or above [`MAX_LISTED`](crate::limits::MAX_LISTED). [`Error::LocksNotShown`]
        /// on SQLite, on a hot standby of PostgreSQL, and on MySQL with `performance_schema = OFF`.
        /// [Others](crate::Error#errors-by-method).
        #[doc(alias("pg_locks", "pg_stat_activity", "data_locks", "INNODB_TRX", "waiters", "blocking"))]
        fn held_object_locks(limit: u32) -> Result<Vec<HeldObjectLock>, Error> {
            |engine| unless_dropped!(engine, |engine| async {
                list_options::validate_limit(limit)?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                engine.held_locks().await.map(|locks| most_urgent(locks, limit))
            })
        }

        /// Lists the semaphores that have slots, ordered by name, with their registered permits and the number of held slots.
        ///
        /// A semaphore has slots after it was registered or first used, until
        /// [`purge_slots`](crate::SemaphoreExt::purge_slots) removes them. The method reads all slots of the listed semaphores.
        #[doc(alias("list"))]
        fn semaphores(options: &ListOptions) -> Result<Vec<SemaphoreInfo>, Error> {
            |engine| unless_dropped!(engine, |engine| administration::list_semaphores(engine, options))
        }

        /// Lists the held leased slots of the selected semaphores, ordered by name and number.
        ///
        /// The database's clock decides which leases have expired. Slots that are released but unavailable because of
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) are included, without a token. Slots of transactions
        /// are not visible.
        ///
        /// One query reads the slots of the selected semaphores in the order of the result, also free ones, until the
        /// [limit](ListOptions::limit) of held slots is reached: in a table with many slots select some semaphores by a filter.
        #[doc(alias("holders", "owners", "list"))]
        fn held_slots(options: &ListOptions) -> Result<Vec<SlotInfo>, Error> {
            |engine| unless_dropped!(engine, |engine| administration::list_held(engine, options))
        }

        /// Lists the sequences from which a number was drawn, ordered by name and key, with their last numbers.
        ///
        /// The numbers are those that [`last_number`](crate::SequenceExt::last_number) returns. A table may hold millions of
        /// sequences: select some by a filter.
        #[doc(alias("list"))]
        fn sequences(options: &ListOptions) -> Result<Vec<SequenceInfo>, Error> {
            |engine| unless_dropped!(engine, |engine| administration::list_sequences(engine, options))
        }
    }
}
