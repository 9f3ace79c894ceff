//! Renewal and release of many leases at a time.

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

/// A lease whose token still matches: renewed, or not renewed because another session has locked the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalResult {
    pub(crate) token: Vec<u8>,
    pub(crate) remaining_us: i64,
}
