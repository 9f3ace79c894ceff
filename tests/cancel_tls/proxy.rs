//! Between clients and a server of PostgreSQL: accepts encrypted connections only, as a server with `hostssl` does.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The length of the message and the code in it, as PostgreSQL's protocol has them.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const CANCEL_REQUEST: [u8; 8] = [0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e];

/// Forwards encrypted connections to the server, decrypted.
pub(crate) struct TlsProxy {
    pub(crate) port: u16,
    certificate: CertificateDer<'static>,
    counts: Arc<Mutex<Counts>>,
}

/// Connections since the start. One that ends before it is encrypted is in none of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Without a request for encryption.
    pub(crate) refused: usize,
    /// Encrypted, with a cancel request.
    pub(crate) cancel_requests: usize,
    /// Encrypted, with anything else.
    pub(crate) sessions: usize,
}

impl TlsProxy {
    /// `server`: host and port.
    pub(crate) async fn to(server: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.expect("a certificate");
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions that ring has")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .expect("a certificate and its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (counted, server) = (Arc::clone(&counts), server.to_owned());
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a client");
                let (acceptor, counts) = (acceptor.clone(), Arc::clone(&counted));
                let server = server.clone();
                // Clients may end without a message.
                tokio::spawn(async move { forward(client, &acceptor, &server, &counts).await });
            }
        });
        Self {
            port,
            certificate,
            counts,
        }
    }

    /// A connector that trusts the proxy's certificate only.
    pub(crate) fn connector(&self) -> MakeRustlsConnect {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.certificate.clone());
        added.expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions that ring has")
            .with_root_certificates(roots)
            .with_no_client_auth();
        MakeRustlsConnect::new(config)
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().expect("no panic before")
    }
}

async fn forward(
    mut client: TcpStream,
    acceptor: &TlsAcceptor,
    server: &str,
    counts: &Mutex<Counts>,
) -> io::Result<()> {
    let count = |change: fn(&mut Counts)| change(&mut counts.lock().expect("no panic before"));
    let mut first = [0; 8];
    client.read_exact(&mut first).await?;
    if first != SSL_REQUEST {
        count(|counts| counts.refused += 1);
        return Ok(());
    }
    client.write_all(b"S").await?;
    let mut client = acceptor.accept(client).await?;
    client.read_exact(&mut first).await?;
    count(if first == CANCEL_REQUEST {
        |counts| counts.cancel_requests += 1
    } else {
        |counts| counts.sessions += 1
    });
    let mut server = TcpStream::connect(server).await?;
    server.write_all(&first).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
