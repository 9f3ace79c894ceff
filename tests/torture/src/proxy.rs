//! Between a worker and the server: a proxy that loses, delays and refuses.

mod delivery;
mod link;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use delivery::Delivery;
use link::Link;

/// How long a connection to the server may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A proxy to a server, or to several in turn, as a balancer is.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

/// What the proxy shares with the thread that accepts connections.
#[derive(Default)]
struct Shared {
    servers: Mutex<Vec<SocketAddr>>,
    /// How many connections there were.
    accepted: AtomicUsize,
    is_refusing: AtomicBool,
    delivery: Arc<Delivery>,
    links: Mutex<Vec<Link>>,
}

impl Proxy {
    /// To the first of these servers that accepts a connection; each connection begins with the next.
    pub(crate) fn to(servers: Vec<SocketAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            servers: Mutex::new(servers),
            ..Shared::default()
        });
        let accepting = Arc::clone(&shared);
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that can't be established, on either side, is refused.
                let _ = accepting.accept(client);
            }
        });
        Ok(Self { port, shared })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What has it route connections to other servers from now on.
    pub(crate) fn route(&self) -> Route {
        Route(Arc::clone(&self.shared))
    }

    /// Resets connections: each one for which `chosen` says so.
    pub(crate) fn reset(&self, mut chosen: impl FnMut() -> bool) {
        self.shared.links().retain(|link| {
            let is_reset = chosen();
            if is_reset {
                link.reset();
            }
            !is_reset
        });
    }

    /// Delays what is sent.
    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.delivery.set_delay(delay);
    }

    /// Whether connections are refused from now on.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.shared.is_refusing.store(refuse, Ordering::SeqCst);
    }

    /// Gives up the connections that there are: nothing is ever heard of them again, at either end.
    pub(crate) fn abandon(&self) {
        for link in self.shared.links().drain(..) {
            link.abandon();
        }
    }

    /// Whether nothing arrives any more, not even an acknowledgement; what was sent meanwhile arrives afterwards.
    pub(crate) fn silence(&self, silent: bool) {
        let links = self.shared.links();
        // A waiter is not woken before its links take packets again.
        if silent {
            self.shared.delivery.set_silent(true);
        }
        for link in &*links {
            link.drop_packets(silent);
        }
        if !silent {
            self.shared.delivery.set_silent(false);
        }
    }
}

/// Decides to which servers a proxy leads.
pub(crate) struct Route(Arc<Shared>);

impl Route {
    /// To these. Connections to others are reset.
    pub(crate) fn lead_to(&self, servers: &[SocketAddr]) {
        *lock(&self.0.servers) = servers.to_vec();
        self.0.links().retain(|link| {
            let stays = servers.contains(&link.server());
            if !stays {
                link.reset();
            }
            stays
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn accept(&self, client: TcpStream) -> io::Result<()> {
        if self.is_refusing.load(Ordering::SeqCst) {
            return link::refuse(client);
        }
        let (server, connection) = self.connect()?;
        let mut link = Link::between(client, connection, server)?;
        // Silence does not begin or end in between, and the servers do not change.
        let mut links = self.links();
        if !lock(&self.servers).contains(&server) {
            link.reset();
        }
        if self.delivery.is_silent() {
            link.drop_packets(true);
        }
        link.serve(&self.delivery);
        links.retain(Link::is_alive);
        links.push(link);
        Ok(())
    }

    fn connect(&self) -> io::Result<(SocketAddr, TcpStream)> {
        let mut servers = lock(&self.servers).clone();
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        if !servers.is_empty() {
            let next = self.accepted.fetch_add(1, Ordering::SeqCst) % servers.len();
            servers.rotate_left(next);
        }
        for server in servers {
            // Not for as long as the system tries: others wait to be accepted.
            match TcpStream::connect_timeout(&server, TIMEOUT) {
                Ok(connected) => return Ok((server, connected)),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        lock(&self.links)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use socket2::SockRef;

    use super::Proxy;

    /// A client of a server that says everything back.
    fn client_of_an_echo() -> (Proxy, TcpStream) {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let proxy = Proxy::to(vec![echo.local_addr().expect("bound")]).expect("a port");
        thread::spawn(move || {
            for mut client in echo.incoming().flatten() {
                thread::spawn(move || {
                    let mut back = client.try_clone().expect("a socket");
                    let _ = std::io::copy(&mut client, &mut back);
                });
            }
        });
        let mut client = connect(&proxy);
        said_back(&mut client);
        (proxy, client)
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("it listens")
    }

    fn said_back(client: &mut TcpStream) {
        client.write_all(b"a").expect("sent");
        client.read_exact(&mut [0]).expect("received");
    }

    #[test]
    fn a_reset_arrives_as_one() {
        let (proxy, mut client) = client_of_an_echo();
        proxy.reset(|| true);
        let error = client.read(&mut [0]).expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn only_the_chosen_connections_are_reset() {
        let (proxy, mut client) = client_of_an_echo();
        proxy.reset(|| false);
        said_back(&mut client);
    }

    #[test]
    fn refused_client_gets_an_error() {
        let (proxy, mut client) = client_of_an_echo();
        proxy.refuse(true);
        let mut refused = connect(&proxy);
        assert!(refused.read(&mut [0]).is_err());
        said_back(&mut client);
        proxy.refuse(false);
        said_back(&mut connect(&proxy));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn silence_acknowledges_nothing() {
        let (proxy, mut client) = client_of_an_echo();
        // The system closes the connection when nothing is acknowledged.
        let limit = Duration::from_millis(300);
        SockRef::from(&client)
            .set_tcp_user_timeout(Some(limit))
            .expect("a socket of TCP");
        proxy.silence(true);
        client.write_all(b"a").expect("in the system's buffer");
        let error = client.read(&mut [0]).expect_err("no acknowledgement");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn abandoned_connections_stay_silent() {
        let (proxy, mut client) = client_of_an_echo();
        proxy.silence(true);
        client.write_all(b"b").expect("in the system's buffer");
        proxy.abandon();
        proxy.silence(false);
        client
            .set_read_timeout(Some(Duration::from_millis(300)))
            .expect("a time");
        let error = client.read(&mut [0]).expect_err("nothing");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        said_back(&mut connect(&proxy));
    }

    #[test]
    fn client_notices_a_server_that_was_killed_in_silence() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let proxy = Proxy::to(vec![server.local_addr().expect("bound")]).expect("a port");
        let mut client = connect(&proxy);
        let (mut accepted, _) = server.accept().expect("the proxy");
        // Both ends have heard of each other.
        client.write_all(b"a").expect("sent");
        accepted.read_exact(&mut [0]).expect("received");
        proxy.silence(true);
        SockRef::from(&accepted)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
        drop(accepted);
        proxy.silence(false);
        let limit = Duration::from_secs(30);
        client.set_read_timeout(Some(limit)).expect("a time");
        let end = client.read(&mut [0]);
        let told = match &end {
            Ok(read) => *read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(told, "{end:?}");
    }

    #[test]
    fn data_sent_into_a_black_hole_arrives_after_it() {
        let (proxy, mut client) = client_of_an_echo();
        proxy.silence(true);
        client.write_all(b"b").expect("in the system's buffer");
        client
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a time");
        assert!(client.read(&mut [0]).is_err());
        proxy.silence(false);
        client.set_read_timeout(None).expect("no time");
        let mut answer = [0];
        client.read_exact(&mut answer).expect("received");
        assert_eq!(&answer, b"b");
    }
}
