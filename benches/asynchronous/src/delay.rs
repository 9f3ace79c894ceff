//! A proxy before the database that delays what it forwards, as a network does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use url::Url;

/// Starts a proxy, which lives as long as the process, and returns the URL of the database through it.
pub(crate) fn url_with_delay(server: &str, delay: Duration) -> Result<String> {
    let mut url = Url::parse(server).context("the database's URL")?;
    let host = url.host_str().context("a URL with a host")?;
    let port = url.port().context("a URL with a port")?;
    let target = format!("{host}:{port}");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Err(error) = connect(client, &target, delay) {
                eprintln!("{target}: {error:#}");
            }
        }
    });
    // Always accepted for a URL with a host.
    let _ = url.set_host(Some("127.0.0.1"));
    let _ = url.set_port(Some(port));
    Ok(url.into())
}

fn connect(client: TcpStream, target: &str, delay: Duration) -> Result<()> {
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    forward(client.try_clone()?, server.try_clone()?, delay);
    forward(server, client, delay);
    Ok(())
}

/// Forwards each piece when the delay has passed since it arrived.
fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, pieces) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender
                .send((Instant::now() + delay, buffer[..count].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (time, piece) in pieces {
            thread::sleep(time.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        // The other side has closed its connection.
        let _ = to.shutdown(Shutdown::Both);
    });
}
