//! Renewal and release of many leases at a time.

#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
use std::fmt::Write;

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
