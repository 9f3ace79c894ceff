//! What the tests send.

use std::net::SocketAddr;
use std::time::Instant;

use program_support::testing::PATIENCE;
use program_support::testing::http::{Answer, Sent, send, send_json};

/// Again if no connection was free: nothing was done then.
pub(crate) fn post(address: SocketAddr, path: &str) -> Answer {
    let started = Instant::now();
    loop {
        let answer = send(address, "POST", path, &[], "").answer();
        let refused = answer.body.contains("no connection to the database");
        if !refused || started.elapsed() > PATIENCE {
            return answer;
        }
    }
}

/// Sends a transfer of 1.
pub(crate) fn send_transfer(address: SocketAddr, from: i64, to: i64) -> Sent {
    let body = format!(r#"{{"from":{from},"to":{to},"amount":1}}"#);
    send_json(address, "/transfers", &[], &body)
}

/// Sends a document that was changed in this second.
pub(crate) fn send_document(address: SocketAddr, id: &str, second: usize) -> Sent {
    let path = format!("/documents/{id}");
    send(address, "PUT", &path, &[], &document(second))
}

/// A document that was changed in this second.
pub(crate) fn document(second: usize) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "<Invoice xmlns:cbc='urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2'>\
         <cbc:ID>4711</cbc:ID><cbc:IssueDate>2026-01-31T12:{minute:02}:{second:02}Z</cbc:IssueDate></Invoice>"
    )
}
