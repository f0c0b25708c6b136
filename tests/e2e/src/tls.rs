//! A TLS client under a [`crate::peer::Peer`]: a plain socket; a thread of its own carries the
//! other end over TLS, as long as both ends are open.
//!
//! Not here: certificates (`papers`).

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use tokio::io::copy_bidirectional;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::Try;

type Carried = (TlsStream<tokio::net::TcpStream>, tokio::net::TcpStream);

/// Connects to `address`, which must have a certificate of `authority` for `localhost`.
///
/// # Errors
/// When there is no connection, or the handshake fails.
pub fn connect(address: &str, authority: &Path) -> Try<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let to = TcpStream::connect(address)?;
    let between = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(between.local_addr()?)?;
    let (far, _) = between.accept()?;
    let (tell, told) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime.map_err(|error| tell.send(Err(error))) else { return };
        let carried = runtime.block_on(shake_hands(&connector, to, far));
        if let Ok((mut to, mut far)) = carried.map_err(|error| tell.send(Err(error))) {
            // Either end may be gone at any time: then both are.
            drop(tell.send(Ok(())));
            drop(runtime.block_on(copy_bidirectional(&mut to, &mut far)));
        }
    });
    told.recv()??;
    Ok(near)
}

async fn shake_hands(
    connector: &TlsConnector,
    to: TcpStream,
    far: TcpStream,
) -> std::io::Result<Carried> {
    to.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let (to, far) = (tokio::net::TcpStream::from_std(to)?, tokio::net::TcpStream::from_std(far)?);
    let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
    Ok((connector.connect(name, to).await?, far))
}
