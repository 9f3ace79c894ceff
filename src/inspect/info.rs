//! Semaphores and sequences in the database.

/// A semaphore that has slots in the database, as returned by [`semaphores`](crate::InspectExt::semaphores).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// The name.
    pub name: String,
    /// The number of permits that was [registered](crate::SemaphoreExt::register_semaphores) last; `None` if the semaphore
    /// is not registered. The number that limits holders is that of each request's [`Semaphore`](crate::Semaphore).
    pub permits: Option<u32>,
    /// The number of slots: the largest number of permits for which slots were created and not purged since.
    pub slots: u32,
    /// The number of held leased slots: those whose leases have not expired, and those that are released but unavailable
    /// until their minimum hold time has passed. Slots held by transactions do not count.
    pub held: u32,
}

/// A sequence from which a number was drawn, as returned by [`sequences`](crate::InspectExt::sequences).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceInfo {
    /// The name.
    pub name: String,
    /// The key; `None` for a sequence without one.
    pub key: Option<String>,
    /// The last number drawn by a committed transaction, or by the open one.
    pub last_number: i64,
}
