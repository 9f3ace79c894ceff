//! What differs per engine for semaphores.
//!
//! A slot is a row. It is free when its lease has ended and no transaction has the row locked; it is taken
//! by an update that skips locked rows, so that nobody waits for anybody.

use std::time::Duration;

use crate::{Error, Semaphore, Slot};

use crate::engine::Engine;

/// The slot store of an engine. Sealed, as [`Engine`] is.
pub trait SlotStore: Engine {
    /// What the database's clock counts in, if that is coarse: when it is read, it may be so much later
    /// already, and a lease ends so much earlier than its holder would think.
    const CLOCK_STEP: Duration = Duration::ZERO;

    /// Which database this is: the same text from every connection to it, and another from one to another.
    /// `None` when no other connection can see it.
    fn database(conn: &mut Self) -> Result<Option<String>, Error>;

    /// Leases a free slot, if there is one. One attempt; never waits for another session's transaction.
    fn try_lease(conn: &mut Self, wanted: &Wanted<'_>, place: &Place) -> Result<Attempt, Error>;

    /// Opens a transaction for [`try_hold`](Self::try_hold). `false` when another writes and the engine
    /// has one writer.
    fn begin_to_hold(conn: &mut Self) -> Result<bool, Error>;

    /// Locks a free slot until the open transaction ends, if there is one. One attempt.
    fn try_hold(conn: &mut Self, semaphore: &Semaphore, place: &Place) -> Result<Attempt, Error>;

    /// After [`Attempt::Surplus`]: the slots that may be taken although slots above the number of
    /// permits may be held.
    ///
    /// Every holder, wherever, leaves one slot fewer. Of the free ones only the lowest are open, so that
    /// two who count at the same time can't both take what only one may.
    fn open_slots(
        conn: &mut Self,
        semaphore: &Semaphore,
        in_transaction: bool,
    ) -> Result<Vec<i32>, Error>;

    /// Whether somebody adds or removes slots at this moment, and may have them locked for as long as a
    /// COMMIT takes. Outside of a transaction.
    fn slots_change(conn: &mut Self) -> Result<bool, Error>;

    /// Makes the slots up to the number of permits that are not there yet, in transactions of its own. One
    /// who adds or removes slots at this moment is waited for, or not: then the answer is `false`.
    fn add_slots(conn: &mut Self, semaphore: &Semaphore, waits: bool) -> Result<bool, Error> {
        loop {
            match Self::add_batch(conn, semaphore, waits)? {
                Added::All => return Ok(true),
                Added::Part => {}
                Added::Nothing => return Ok(false),
                Added::NoFloor => Self::make_fence_floor(conn)?,
            }
        }
    }

    /// Makes the next of them, in one transaction.
    fn add_batch(conn: &mut Self, semaphore: &Semaphore, waits: bool) -> Result<Added, Error>;

    /// Makes the row of `diesel_locks_fences` if somebody has removed it: not below any fence that is known. Others
    /// may make it at the same moment.
    fn make_fence_floor(conn: &mut Self) -> Result<(), Error>;

    /// Raises the floor above all fences by so much time, as far as [`Raised`] says.
    fn raise_fence_floor(conn: &mut Self, by: Duration) -> Result<Raised, Error>;

    /// Notes that the slots of the semaphore are to stay.
    fn register(conn: &mut Self, semaphore: &Semaphore) -> Result<(), Error>;

    /// Gives the slot another end, if it is still that of this token; says how many rows that were.
    fn extend(conn: &mut Self, slot: &Slot, lease_us: i64, state: Expiry) -> Result<usize, Error>;

    /// Frees the slot, or has it end when it need not be kept any longer; as [`extend`](Self::extend).
    fn give_back(conn: &mut Self, slot: &Slot, state: Expiry) -> Result<usize, Error>;

    /// Keeps the slot from being granted to another until the transaction ends; `false` when it is not
    /// of this token any more.
    fn pin(conn: &mut Self, slot: &Slot) -> Result<bool, Error>;

    /// Whether the slot is of this token, its lease ended or not. Changes and locks nothing.
    fn is_of_token(conn: &mut Self, slot: &Slot) -> Result<bool, Error>;

    /// The slots that are held.
    fn held(conn: &mut Self, name: &str) -> Result<Vec<HeldRow>, Error>;

    /// Takes every slot from its holder; says how many there were.
    fn give_all_back(conn: &mut Self, name: &str) -> Result<usize, Error>;

    /// Removes slots that have been free since `age_us` ago and that nobody has registered.
    fn purge_slots_older_than(conn: &mut Self, age_us: i64) -> Result<usize, Error>;

    /// Gives back many slots in one statement, which waits for nobody. The answer has the tokens of those
    /// that are still theirs because another session had the row locked.
    fn give_back_many(conn: &mut Self, leases: &[Renewal]) -> Result<Vec<Vec<u8>>, Error>;

    /// Renews many leases in one statement. The answer has, for each that is still its token's, how long
    /// it lasts from now on.
    fn renew(conn: &mut Self, leases: &[Renewal]) -> Result<Vec<Renewed>, Error>;
}

/// A lease that is asked for, checked.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub(crate) semaphore: &'a Semaphore,
    pub(crate) token: [u8; 16],
    pub(crate) holder: Option<&'a str>,
    pub(crate) lease_us: i64,
    pub(crate) at_least_us: i64,
}

/// Where an attempt is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In a transaction of the application's, or of ours that is open.
    pub(crate) in_transaction: bool,
    /// Only among these slots, after [`Attempt::Surplus`].
    pub(crate) open: Option<Vec<i32>>,
    /// A slot that was released a moment ago.
    pub(crate) likely: Option<i32>,
}

/// What a batch has made of the slots that were missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    All,
    Part,
    /// Somebody else adds or removes slots at this moment, and is not waited for.
    Nothing,
    /// The row of `diesel_locks_fences` is missing.
    NoFloor,
}

/// What became of the floor of all fences that is to be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    To(i64),
    /// That would leave no years of grants.
    TooFar,
    /// The row of `diesel_locks_fences` is missing.
    NoFloor,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Granted(Granted),
    /// All slots are leased.
    Full,
    /// Another got in the way, and the transaction is to be begun again.
    Again,
    /// One is not leased, and locked by another session: by an acquirer, for a moment, or by a
    /// transaction that holds it.
    Locked,
    /// Another session has the whole table locked.
    #[allow(dead_code, reason = "not without an engine that locks tables")]
    TableLocked,
    /// There are fewer slots than permits, and none was to be had.
    Missing,
    /// There are more slots than permits, so that some above may be held.
    Surplus,
}

/// The grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub(crate) number: i32,
    pub(crate) fence: i64,
}

/// Whether only a lease that has not ended is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Unexpired,
    Any,
}

/// A row of a held slot, and what is left of it in microseconds.
pub(crate) type HeldRow = (i32, Option<Vec<u8>>, Option<String>, i64, i64, i64, i64);

/// A lease to renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub(crate) semaphore: String,
    pub(crate) number: i32,
    pub(crate) token: [u8; 16],
    pub(crate) lease_us: i64,
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
impl Renewal {
    /// Many leases as one value to bind. Names and tokens are hexadecimal digits, so that nothing has to
    /// be escaped.
    pub(crate) fn as_json(leases: &[Self]) -> String {
        use std::fmt::Write;

        let mut json = String::from("[");
        for (position, lease) in leases.iter().enumerate() {
            if position > 0 {
                json.push(',');
            }
            json.push_str("{\"name\":\"");
            for byte in lease.semaphore.bytes() {
                let _ = write!(json, "{byte:02x}");
            }
            json.push_str("\",\"token\":\"");
            for byte in lease.token {
                let _ = write!(json, "{byte:02x}");
            }
            let (number, lease_us) = (lease.number, lease.lease_us);
            let _ = write!(json, "\",\"number\":{number},\"lease_us\":{lease_us}}}");
        }
        json.push(']');
        json
    }
}

/// A lease that is still its token's: renewed, or not because another session had the row locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub(crate) token: Vec<u8>,
    pub(crate) left_us: i64,
}

/// The slots of which one is asked for by its number.
const OPEN_AT_MOST: usize = 1000;

/// The answer to "what is there", which decides an attempt that granted nothing.
pub(crate) fn judge(slots: Option<i32>, permits: i32, any_free: bool, place: &Place) -> Attempt {
    let slots = slots.unwrap_or(0);
    if let Some(open) = &place.open {
        if open.is_empty() {
            Attempt::Full
        } else {
            Attempt::Locked
        }
    } else if slots > permits {
        Attempt::Surplus
    } else if slots < permits {
        Attempt::Missing
    } else if any_free {
        Attempt::Locked
    } else {
        Attempt::Full
    }
}

/// The slots of a semaphore that are open when `free` of its `slots` are.
///
/// `slots` was counted before `free` was looked at: slots that were removed between the two count as held,
/// those that were added do not count.
///
/// Not more than a statement has bound values for: the lowest of the open ones will do.
pub(crate) fn open_among(mut free: Vec<i32>, slots: i64, permits: i32) -> Vec<i32> {
    free.retain(|number| i64::from(*number) <= slots);
    free.sort_unstable();
    let free_slots = i64::try_from(free.len()).unwrap_or(i64::MAX);
    let holders = slots - free_slots;
    let open = usize::try_from(i64::from(permits) - holders).unwrap_or(0);
    let within = free.iter().copied().filter(|number| *number <= permits);
    within.take(open.min(OPEN_AT_MOST)).collect()
}

#[cfg(test)]
mod tests {
    use super::open_among;

    #[test]
    fn holders_above_the_number_of_permits_close_slots_below() {
        assert_eq!(open_among(vec![5, 4, 3, 2, 1], 5, 3), [1, 2, 3]);
        assert_eq!(open_among(vec![1, 2, 3], 5, 3), [1]);
        assert_eq!(open_among(vec![1, 3, 5], 5, 3), [1]);
        assert_eq!(open_among(vec![2, 5], 5, 3), [0; 0]);
        assert_eq!(open_among(vec![4, 5], 5, 3), [0; 0]);
    }

    #[test]
    fn slots_that_come_or_go_between_the_looks_open_nothing() {
        let most_of_a_hundred: Vec<i32> = (3..50).chain(51..=100).collect();
        assert_eq!(open_among(most_of_a_hundred, 50, 3), [0; 0]);
        assert_eq!(open_among(vec![3, 4, 5, 6], 3, 3), [3]);
    }
}
