//! A client's connection and the server's behind it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::delivery::Delivery;

/// A client's connection and the server's behind it, as long as a thread reads from one of them.
pub(super) struct Link {
    server: SocketAddr,
    ends: Weak<Ends>,
    strong: Option<Arc<Ends>>,
}

struct Ends {
    client: TcpStream,
    server: TcpStream,
    /// Neither end gets a regular end of the connection.
    is_reset: AtomicBool,
    /// Neither end gets anything any more.
    is_abandoned: AtomicBool,
}

/// How an end is closed: at once, by RST.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Closes a connection by RST.
pub(super) fn refuse(client: TcpStream) -> io::Result<()> {
    SockRef::from(&client).set_linger(AT_ONCE)?;
    drop(client);
    Ok(())
}

impl Link {
    pub(super) fn between(
        client: TcpStream,
        server: TcpStream,
        address: SocketAddr,
    ) -> io::Result<Self> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        // A black hole may have dropped the packet by which the killed server's system closed the connection, and that
        // is not sent again. A keepalive makes the system answer. The black hole itself is shorter than the keepalive's
        // time-out.
        let asking = TcpKeepalive::new()
            .with_time(Duration::from_secs(2))
            .with_interval(Duration::from_secs(2))
            .with_retries(10);
        SockRef::from(&server).set_tcp_keepalive(&asking)?;
        let ends = Arc::new(Ends {
            client,
            server,
            is_reset: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        });
        Ok(Self {
            server: address,
            ends: Arc::downgrade(&ends),
            strong: Some(ends),
        })
    }

    /// The server's address.
    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    pub(super) fn is_alive(&self) -> bool {
        self.ends.strong_count() > 0
    }

    /// Resets both ends.
    pub(super) fn reset(&self) {
        let Some(ends) = self.ends.upgrade() else {
            return;
        };
        ends.is_reset.store(true, Ordering::SeqCst);
        for end in [&ends.client, &ends.server] {
            // An error means that it has ended by itself.
            let _ = SockRef::from(end).set_linger(AT_ONCE);
            // Wakes who reads; nothing is sent for that.
            let _ = end.shutdown(Shutdown::Read);
        }
    }

    /// Falls silent for ever, as long as this process lives.
    pub(super) fn abandon(&self) {
        if let Some(ends) = self.ends.upgrade() {
            ends.is_abandoned.store(true, Ordering::SeqCst);
        }
        self.drop_packets(true);
    }

    /// Whether what arrives is dropped by the system before TCP has seen it: nothing is acknowledged, as when the other
    /// machine has vanished.
    pub(super) fn drop_packets(&self, drop: bool) {
        let Some(ends) = self.ends.upgrade() else {
            return;
        };
        for end in [&ends.client, &ends.server] {
            // An error means that it has ended by itself.
            let _ = filter(end, drop);
        }
    }

    /// Passes on what is sent, in both directions, until an end is closed.
    pub(super) fn serve(&mut self, delivery: &Arc<Delivery>) {
        let Some(ends) = self.strong.take() else {
            return;
        };
        let (there, back) = (Arc::clone(&ends), ends);
        let (delivery_there, delivery_back) = (Arc::clone(delivery), Arc::clone(delivery));
        thread::spawn(move || there.pump(&there.client, &there.server, &delivery_there));
        thread::spawn(move || back.pump(&back.server, &back.client, &delivery_back));
    }
}

impl Ends {
    /// The sockets stay open, and nothing is sent: closing one would be noticed at its other end.
    fn park_if_abandoned(&self) {
        while self.is_abandoned.load(Ordering::SeqCst) {
            thread::park();
        }
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, delivery: &Delivery) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            delivery.wait();
            self.park_if_abandoned();
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        delivery.wait();
        self.park_if_abandoned();
        if !self.is_reset.load(Ordering::SeqCst) {
            // The other side learns that there is nothing more to come.
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(target_os = "linux")]
fn filter(end: &TcpStream, drop: bool) -> io::Result<()> {
    /// `BPF_RET | BPF_K`: how many bytes of a packet are let through.
    const RETURN: u16 = 0x06;
    let end = SockRef::from(end);
    if drop {
        end.attach_filter(&[socket2::SockFilter::new(RETURN, 0, 0, 0)])
    } else {
        end.detach_filter()
    }
}

/// Elsewhere the system acknowledges what is sent, and passes it on when the silence ends.
#[cfg(not(target_os = "linux"))]
fn filter(_end: &TcpStream, _drop: bool) -> io::Result<()> {
    Ok(())
}
