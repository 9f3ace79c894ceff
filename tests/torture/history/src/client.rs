//! Which client an operation uses.

use serde::{Deserialize, Serialize};

/// The connections that an operation uses, and the method that acquires what it requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// A blocking connection, of a pool of r2d2.
    R2d2,
    /// `LockPool` with a pool of r2d2.
    R2d2LockPool,
    /// A connection of diesel-async, of a pool of deadpool.
    Deadpool,
    /// `LockPool` with a pool of deadpool.
    DeadpoolLockPool,
    /// A connection of diesel-async, of a pool of bb8.
    Bb8,
    /// `LockPool` with a pool of bb8.
    Bb8LockPool,
}

impl Client {
    /// Those of asynchronous threads.
    pub const ASYNCHRONOUS: [Self; 4] = [
        Self::Deadpool,
        Self::DeadpoolLockPool,
        Self::Bb8,
        Self::Bb8LockPool,
    ];

    /// Whether operations wait without a connection.
    pub fn is_lock_pool(self) -> bool {
        matches!(
            self,
            Self::R2d2LockPool | Self::DeadpoolLockPool | Self::Bb8LockPool
        )
    }

    /// For people, and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::R2d2 => "r2d2",
            Self::R2d2LockPool => "r2d2, lock pool",
            Self::Deadpool => "deadpool",
            Self::DeadpoolLockPool => "deadpool, lock pool",
            Self::Bb8 => "bb8",
            Self::Bb8LockPool => "bb8, lock pool",
        }
    }
}
