//! A proxy that answers statements in the place of MySQL, as if they had been ended by `KILL QUERY`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use diesel::connection::{Connection, InstrumentationEvent};

use super::Backend;
use super::mysql::Mysql;
use super::proxy::{clone, pump};
use super::urls::{address, by_way_of};

/// The command byte of the execution of a prepared statement.
const EXECUTE: u8 = 0x17;

/// A connection on which statements with this text fail, the next `refusals` times. They are to be prepared.
pub(crate) fn connect_failing(
    database: &Mysql,
    text: &'static str,
    refusals: &Arc<AtomicUsize>,
) -> diesel::MysqlConnection {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let url = database.url();
    let server = address(&url).to_owned();
    // The next execution is refused.
    let refuse = Arc::new(AtomicUsize::new(0));
    let refused = Arc::clone(&refuse);
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let server = TcpStream::connect(server).expect("the server answers");
        let (from, to) = (clone(&server), clone(&client));
        std::thread::spawn(move || pump(from, to, || ()));
        serve(client, server, &refused);
    });
    let mut conn = Mysql::connect_to(&by_way_of(port, &url));
    let refusals = Arc::clone(refusals);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let one_less = |left: usize| left.checked_sub(1);
            if query.to_string().contains(text)
                && refusals
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                    .is_ok()
            {
                refuse.store(1, Ordering::SeqCst);
            }
        }
    });
    conn
}

/// A connection on which the part of a text with `target` in it, up to the text's end, gives place to a `KILL QUERY`
/// of its own session, the first time when `armed`. `cut`: the server gets none of it, and the connection is lost.
pub(crate) fn connect_killing(
    database: &Mysql,
    target: &'static str,
    cut: bool,
    armed: &Arc<AtomicBool>,
) -> diesel::MysqlConnection {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let url = database.url();
    let server = address(&url).to_owned();
    let armed = Arc::clone(armed);
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut server = TcpStream::connect(server).expect("the server answers");
        let (from, to) = (clone(&server), clone(&client));
        std::thread::spawn(move || pump(from, to, || ()));
        let mut buffer = [0; 16 * 1024];
        while let Ok(read) = client.read(&mut buffer) {
            let message = &mut buffer[..read];
            let found = message
                .windows(target.len())
                .position(|part| part == target.as_bytes());
            if let Some(at) = found
                && armed.swap(false, Ordering::SeqCst)
            {
                if cut {
                    break;
                }
                let kill = b"KILL QUERY CONNECTION_ID() -- ";
                message[at..at + kill.len()].copy_from_slice(kill);
            }
            if read == 0 || server.write_all(message).is_err() {
                break;
            }
        }
        for end in [&client, &server] {
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
    });
    Mysql::connect_to(&by_way_of(port, &url))
}

fn serve(mut client: TcpStream, mut server: TcpStream, refuse: &AtomicUsize) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = client.read(&mut buffer) {
        if read == 0 {
            break;
        }
        let command = buffer.get(4).copied();
        if command == Some(EXECUTE) && refuse.swap(0, Ordering::SeqCst) == 1 {
            client
                .write_all(&interrupted())
                .expect("the client listens");
        } else if server.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Write);
}

/// The packet of error 1317.
fn interrupted() -> Vec<u8> {
    let mut packet = vec![0xff];
    packet.extend(1317_u16.to_le_bytes());
    packet.extend(b"#70100Query execution was interrupted");
    let length = u8::try_from(packet.len()).expect("short");
    let mut whole = vec![length, 0, 0, 1];
    whole.append(&mut packet);
    whole
}
