//! The options of a lease, and its renewal together with others.

#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
use std::fmt::Write;
use std::time::Duration;

use crate::Error;
use crate::error::NameKind;
use crate::error::limits::{LONGEST_LEASE, SHORTEST_LEASE};

/// The options of a lease: its duration, the holder's text, and a minimum hold time.
///
/// The lease begins when the statement that grants the slot runs, by the database's clock. The duration is rounded up to
/// microseconds (SQLite's clock counts milliseconds) and ranges from
/// [`SHORTEST_LEASE`](crate::limits::SHORTEST_LEASE) to [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE).
///
/// Choose one that is longer than the longest pause of a healthy holder between two renewals (a slow query, a fail-over), and not
/// longer than other servers can wait after the holder has crashed. A `SlotRenewer` renews all its slots together, three times in
/// the shortest of their leases.
///
/// ```
/// use diesel_locks::LeaseOptions;
/// use std::time::Duration;
///
/// // A job that a timer starts once a minute on each of three servers, whose clocks differ by less than 20 s. If one
/// // crashes in the job, another one runs it a minute later.
/// let lease = LeaseOptions::new(Duration::from_secs(50))
///     .hold_at_least(Duration::from_secs(20))
///     .holder("node-2");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "lease options do nothing until they are passed to a connection"]
#[doc(alias("ttl", "expiry", "ShedLock", "LockConfiguration"))]
pub struct LeaseOptions {
    duration: Duration,
    hold_at_least: Duration,
    holder: Option<String>,
}

impl LeaseOptions {
    /// Creates options of a lease that expires after `duration` unless it is renewed or released before.
    #[doc(alias("lockAtMostFor", "lock_at_most_for", "ttl"))]
    pub fn new(duration: Duration) -> Self {
        Self {
            duration,
            hold_at_least: Duration::ZERO,
            holder: None,
        }
    }

    /// Sets a text that names the holder in [`held_slots`](crate::InspectExt::held_slots), and for nothing else: 0 to
    /// [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters without NUL.
    #[doc(alias("owner", "locked_by", "lockedBy"))]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Sets a minimum hold time, at most the lease: the slot stays unavailable for this time after the grant, even if it is
    /// released earlier, unless by [`force_release_all`](crate::SemaphoreExt::force_release_all).
    ///
    /// With a semaphore of one permit, one of all servers whose timers fire within this time runs the job, which is not repeated
    /// within it if it fails. Choose it longer than the servers' clocks differ, and shorter than the timer's period; and a lease
    /// that is shorter than the period too, renewed while the job runs, since a server that crashes keeps the slot until it expires.
    #[doc(alias("lockAtLeastFor", "lock_at_least_for", "ShedLock", "debounce"))]
    pub fn hold_at_least(mut self, duration: Duration) -> Self {
        self.hold_at_least = duration;
        self
    }

    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    pub(crate) fn holder_text(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    /// The same lease, held at least for `time`.
    #[cfg(feature = "_pool")]
    pub(crate) fn at_least(&self, time: Duration) -> Self {
        Self {
            duration: self.duration.max(time),
            hold_at_least: self.hold_at_least.max(time),
            holder: self.holder.clone(),
        }
    }

    pub(crate) fn micros(&self) -> Result<i64, Error> {
        micros(self.duration)
    }

    pub(crate) fn min_hold_micros(&self) -> Result<i64, Error> {
        if self.hold_at_least > self.duration {
            return Err(Error::InvalidLease {
                requested: self.hold_at_least,
                reason: "hold_at_least is longer than the lease",
            });
        }
        Ok(up_to_micros(self.hold_at_least))
    }

    /// Checks all options.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.micros()?;
        self.min_hold_micros()?;
        Ok(NameKind::Holder.check(self.holder.as_deref().unwrap_or_default())?)
    }
}

/// The duration of a lease in microseconds.
pub(crate) fn micros(duration: Duration) -> Result<i64, Error> {
    let reason = if duration < SHORTEST_LEASE {
        "the shortest lease is 1 ms"
    } else if duration > LONGEST_LEASE {
        "the longest lease is 36,525 days"
    } else {
        return Ok(up_to_micros(duration));
    };
    Err(Error::InvalidLease {
        requested: duration,
        reason,
    })
}

pub(crate) fn up_to_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// A lease to renew or release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalRequest {
    pub(crate) semaphore: String,
    pub(crate) number: i32,
    pub(crate) token: [u8; 16],
    pub(crate) lease_us: i64,
}

#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
impl RenewalRequest {
    /// Writes many leases as one JSON value to bind. Names and tokens are hexadecimal digits, which need no escapes.
    #[cfg(feature = "_mysql")]
    pub(crate) fn as_json(leases: &[Self]) -> String {
        Self::as_json_with(leases, |json, name| {
            json.push('"');
            push_hexadecimal(json, name.as_bytes());
            json.push('"');
        })
    }

    /// Writes many leases as one JSON value to bind. Names are texts, tokens hexadecimal digits.
    #[cfg(feature = "_sqlite")]
    pub(crate) fn as_json_of_texts(leases: &[Self]) -> String {
        Self::as_json_with(leases, push_json_text)
    }

    fn as_json_with(leases: &[Self], push_name: fn(&mut String, &str)) -> String {
        let mut json = String::from("[");
        for (position, lease) in leases.iter().enumerate() {
            if position > 0 {
                json.push(',');
            }
            json.push_str("{\"name\":");
            push_name(&mut json, &lease.semaphore);
            json.push_str(",\"token\":\"");
            push_hexadecimal(&mut json, &lease.token);
            let (number, lease_us) = (lease.number, lease.lease_us);
            let _ = write!(json, "\",\"number\":{number},\"lease_us\":{lease_us}}}");
        }
        json.push(']');
        json
    }
}

#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
fn push_hexadecimal(json: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(json, "{byte:02x}");
    }
}

/// Writes a JSON string of ASCII letters and digits. Any other character is an escape: hexadecimal digits.
#[cfg(feature = "_sqlite")]
pub(crate) fn push_json_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            json.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(json, "\\u{unit:04x}");
        }
    }
    json.push('"');
}

/// A lease whose token still matches: renewed, or not renewed because another session has locked the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalResult {
    pub(crate) token: Vec<u8>,
    pub(crate) remaining_us: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_microsecond_count_as_one() {
        assert_eq!(micros(Duration::new(1, 1)).ok(), Some(1_000_001));
        assert_eq!(
            LeaseOptions::new(LONGEST_LEASE).micros().ok(),
            Some(3_155_760_000_000_000)
        );
    }

    #[test]
    fn unusable_leases_name_the_limit() {
        for (lease, why) in [
            (LeaseOptions::new(Duration::ZERO), "1 ms"),
            (LeaseOptions::new(Duration::from_micros(999)), "1 ms"),
            (LeaseOptions::new(Duration::MAX), "36,525 days"),
            (
                LeaseOptions::new(Duration::from_secs(1)).hold_at_least(Duration::from_secs(2)),
                "hold_at_least",
            ),
        ] {
            let error = lease.check().expect_err("unusable");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
