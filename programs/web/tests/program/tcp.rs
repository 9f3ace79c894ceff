//! What the kernel knows of a connection.

use std::fs;
use std::net::SocketAddr;

/// The bytes that one end of a connection of this machine has written, and the other end has not received.
pub(crate) fn unsent(from: SocketAddr, to: SocketAddr) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").expect("Linux");
    let ports = [from.port(), to.port()];
    let found = table.lines().skip(1).find_map(|line| {
        // Its number, the address of this end, that of the other, the state, and the lengths of its queues.
        let columns: Vec<&str> = line.split_whitespace().collect();
        let port = |column: &str| u16::from_str_radix(column.rsplit_once(':')?.1, 16).ok();
        let is_it = port(columns[1]) == Some(ports[0]) && port(columns[2]) == Some(ports[1]);
        let (unsent, _) = columns[4].split_once(':')?;
        is_it.then(|| u64::from_str_radix(unsent, 16).ok())?
    });
    found.expect("it is connected")
}
