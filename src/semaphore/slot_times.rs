//! The times of a slot, held or not, as a timer reads them.

/// The first slot of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSlot {
    /// Another session has the table locked.
    #[allow(dead_code, reason = "not without an engine that locks tables")]
    TableLocked,
    Missing,
    Found(SlotTimes),
}

/// The times of a slot, whether it is held or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTimes {
    /// That of the last grant.
    pub(crate) fence: i64,
    pub(crate) acquired_us: i64,
    /// Zero without a minimum hold time, after the last holder has not used the slot, and after a release by force.
    pub(crate) hold_until_us: i64,
    /// Not positive if the slot is free.
    pub(crate) remaining_us: i64,
}

/// The columns of [`SlotTimes`].
pub(crate) type SlotTimesRow = (i64, i64, i64, i64);

impl From<Option<SlotTimesRow>> for FirstSlot {
    fn from(row: Option<SlotTimesRow>) -> Self {
        let Some((fence, acquired_us, hold_until_us, remaining_us)) = row else {
            return Self::Missing;
        };
        Self::Found(SlotTimes {
            fence,
            acquired_us,
            hold_until_us,
            remaining_us,
        })
    }
}
