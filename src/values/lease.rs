//! The options of a lease, and its renewal together with others.

use std::borrow::Cow;
#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fs, process};

use crate::Error;
use crate::Slot;
use crate::error::NameKind;
use crate::error::limits::{LONGEST_LEASE, MAX_NAME_CHARS, SHORTEST_LEASE};

/// The options of a lease: its duration, the number of permits, the holder's text, a minimum hold time, and when its renewals end.
///
/// The lease begins when the statement that grants the slot runs, by the database's clock. The duration is rounded up to
/// microseconds (SQLite's clock counts milliseconds) and ranges from
/// [`SHORTEST_LEASE`](crate::limits::SHORTEST_LEASE) to [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE).
///
/// [How long](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#how-long-a-lease) is in the guide. A
/// `SlotRenewer` renews at a third of the shortest lease.
///
/// ```
/// use diesel_locks::LeaseOptions;
/// use std::time::Duration;
///
/// // For a job that a timer starts once a minute on each server: one of them runs it.
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
    pub(crate) progress_within: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    permits: u32,
}

impl LeaseOptions {
    /// Creates options of a lease that expires after `duration` unless it is renewed or released before.
    #[doc(alias("lockAtMostFor", "lock_at_most_for", "ttl"))]
    pub fn new(duration: Duration) -> Self {
        Self {
            duration,
            hold_at_least: Duration::ZERO,
            holder: None,
            progress_within: None,
            max_hold: None,
            permits: 1,
        }
    }

    /// Sets a text that names the holder in [`held_slots`](crate::InspectExt::held_slots), and for nothing else: 0 to
    /// [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters without NUL.
    ///
    /// The default is `host/pid`, such as `web-2/4711`. The host name is the first of Linux's own, the environment variable `HOSTNAME`
    /// and `COMPUTERNAME` that has 1 to 200 ASCII characters without spaces. If none has, the default is the process id.
    #[doc(alias("owner", "locked_by", "lockedBy"))]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Sets a minimum hold time, at most the lease: the slot stays unavailable for this time after the grant, even if it is
    /// released earlier, unless by [`force_release_all`](crate::SemaphoreExt::force_release_all). So, with one permit and a method
    /// that does not wait, one of all servers whose timers fire within this time [runs a
    /// job](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#a-job-that-one-server-is-to-run). If it crashes,
    /// it keeps the slot until the lease expires.
    #[doc(alias("lockAtLeastFor", "lock_at_least_for", "ShedLock", "debounce"))]
    pub fn hold_at_least(mut self, duration: Duration) -> Self {
        self.hold_at_least = duration;
        self
    }

    /// Has a `SlotRenewer` renew the lease only if the last call of `SlotGuard::progress`, or the grant, is less than `duration` ago.
    /// Otherwise the lease expires and the guard is lost: about `duration` and the lease after that call, at the latest. A call before
    /// the lease has expired has it renewed again.
    ///
    /// From [`SHORTEST_LEASE`](crate::limits::SHORTEST_LEASE) to [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE). Methods of a
    /// connection, whose leases no renewer renews, return [`Error::InvalidLease`].
    #[doc(alias("heartbeat", "watchdog", "stuck", "hang"))]
    pub fn progress_within(mut self, duration: Duration) -> Self {
        self.progress_within = Some(duration);
        self
    }

    /// Has a `SlotRenewer` end the lease about this long after the grant, whatever the holder does: its guard is lost then. At least the
    /// lease, at most [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE).
    ///
    /// Methods of a connection, whose leases no renewer renews, return [`Error::InvalidLease`].
    #[doc(alias("lockAtMostFor", "timeout", "deadline"))]
    pub fn max_hold(mut self, duration: Duration) -> Self {
        self.max_hold = Some(duration);
        self
    }

    /// Leases so many permits at once, all or none: for work of different sizes, or to keep all others out for a time. One slot is
    /// returned, which holds them all. 1 to the number of permits of the semaphore, and at most
    /// [`MAX_PERMITS_AT_ONCE`](crate::limits::MAX_PERMITS_AT_ONCE) (100); with more, methods return
    /// [`Error::InvalidPermitsAtOnce`](crate::Error::InvalidPermitsAtOnce).
    ///
    /// A request that waits keeps the permits that are free until it has all, however many others request one; one that does not wait
    /// is refused meanwhile. [The guide](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#several-permits) has the
    /// mechanics, and an example.
    ///
    /// Not in an open transaction, and not with [`hold_at_least`](Self::hold_at_least): [`Error::AlreadyInTransaction`],
    /// [`Error::InvalidLease`].
    #[doc(alias("weight", "acquire_many", "batch", "weighted semaphore"))]
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    pub(crate) fn permits_at_once(&self) -> u32 {
        self.permits
    }

    /// The same lease of one permit, for a part of the time.
    pub(crate) fn of_one_permit(&self, duration: Duration) -> Self {
        Self {
            duration,
            permits: 1,
            max_hold: None,
            ..self.clone()
        }
    }

    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    pub(crate) fn holder_text(&self) -> Cow<'_, str> {
        static HOST: LazyLock<Option<String>> = LazyLock::new(host);
        match &self.holder {
            Some(holder) => Cow::Borrowed(holder),
            None => Cow::Owned(process_text(HOST.as_deref(), process::id())),
        }
    }

    /// The same lease, held at least for `time`.
    #[cfg(feature = "_pool")]
    pub(crate) fn at_least(&self, time: Duration) -> Self {
        Self {
            duration: self.duration.max(time),
            hold_at_least: self.hold_at_least.max(time),
            max_hold: self.max_hold.map(|hold| hold.max(time)),
            ..self.clone()
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
        if self.permits > 1 && !self.hold_at_least.is_zero() {
            return Err(Error::InvalidLease {
                requested: self.hold_at_least,
                reason: "hold_at_least is for one permit",
            });
        }
        Ok(up_to_micros(self.hold_at_least))
    }

    /// Checks that the lease needs no renewer.
    pub(crate) fn check_unrenewed(&self) -> Result<(), Error> {
        match self.progress_within.or(self.max_hold) {
            Some(requested) => Err(Error::InvalidLease {
                requested,
                reason: "progress_within and max_hold need a SlotRenewer",
            }),
            None => Ok(()),
        }
    }

    /// Checks all options.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.micros()?;
        self.min_hold_micros()?;
        for (option, shortest, reason) in [
            (
                self.progress_within,
                SHORTEST_LEASE,
                "progress_within ranges from 1 ms to 36,525 days",
            ),
            (
                self.max_hold,
                self.duration,
                "max_hold ranges from the lease to 36,525 days",
            ),
        ] {
            if let Some(requested) = option
                && !(shortest..=LONGEST_LEASE).contains(&requested)
            {
                return Err(Error::InvalidLease { requested, reason });
            }
        }
        Ok(NameKind::Holder.check(self.holder.as_deref().unwrap_or_default())?)
    }
}

impl From<&LeaseOptions> for LeaseOptions {
    fn from(lease: &LeaseOptions) -> Self {
        lease.clone()
    }
}

/// The longest host name in a holder's text: with the process it has no more than [`MAX_NAME_CHARS`].
const MAX_HOST_CHARS: usize = 200;
const _: () = assert!(MAX_HOST_CHARS + "/4294967295".len() <= MAX_NAME_CHARS);

/// The name of this host. A system that does not tell it has none.
fn host() -> Option<String> {
    let of_linux = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let variables = ["HOSTNAME", "COMPUTERNAME"].map(|name| env::var(name).ok());
    let mut names = of_linux.into_iter().chain(variables.into_iter().flatten());
    names.find_map(|name| usable_host(&name).map(str::to_owned))
}

/// ASCII characters, which a database has in any encoding.
fn usable_host(name: &str) -> Option<&str> {
    let name = name.trim();
    let is_usable = (1..=MAX_HOST_CHARS).contains(&name.len());
    (is_usable && name.bytes().all(|byte| byte.is_ascii_graphic())).then_some(name)
}

fn process_text(host: Option<&str>, pid: u32) -> String {
    host.map_or_else(|| pid.to_string(), |host| format!("{host}/{pid}"))
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
    pub(crate) fence: i64,
    pub(crate) lease_us: i64,
    /// Whether the holder knows that its release is requested.
    pub(crate) release_seen: bool,
}

impl RenewalRequest {
    /// A request to renew a slot, or, with any lease, to release it.
    pub(crate) fn new(slot: &Slot, lease_us: i64) -> Self {
        Self {
            semaphore: slot.semaphore.clone(),
            number: slot.number_i32(),
            token: slot.token.into_bytes(),
            fence: slot.fence,
            lease_us,
            release_seen: false,
        }
    }
}

#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
impl RenewalRequest {
    /// Writes many leases as one JSON value to bind. Names and tokens are hexadecimal digits, which need no escapes.
    #[cfg(feature = "_mysql")]
    pub(crate) fn as_json(leases: &[Self]) -> String {
        Self::as_json_with(leases, |json, name| {
            json.push('"');
            for byte in name.bytes() {
                let _ = write!(json, "{byte:02x}");
            }
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
        for lease in leases {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str("{\"name\":");
            push_name(&mut json, &lease.semaphore);
            let (number, fence, lease_us) = (lease.number, lease.fence, lease.lease_us);
            let token = u128::from_be_bytes(lease.token);
            let seen = i32::from(lease.release_seen);
            let _ = write!(
                json,
                ",\"token\":\"{token:032x}\",\"number\":{number},\"fence\":{fence},\"lease_us\":{lease_us},\"seen\":{seen}}}"
            );
        }
        json.push(']');
        json
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
    pub(crate) release_requested: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_host_and_process_unless_it_is_set() {
        let lease = LeaseOptions::new(SHORTEST_LEASE);
        let text = lease.holder_text();
        assert!(text.ends_with(&process::id().to_string()), "{text}");
        assert!(NameKind::Holder.check(&text).is_ok(), "{text}");
        assert_eq!(lease.clone().holder("").holder_text(), "");
        assert_eq!(process_text(usable_host("web-2\n"), 7), "web-2/7");
        for unusable in [
            "",
            "\n",
            "a b",
            "a\0",
            "h\u{f6}st",
            &"a".repeat(MAX_HOST_CHARS + 1),
        ] {
            assert_eq!(process_text(usable_host(unusable), 7), "7");
        }
    }
}
