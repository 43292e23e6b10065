//! What a connection of the load speaks: plain TCP, or TLS by rustls over it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::Failure;

/// The name in the certificates of the servers under measurement.
pub(crate) const NAME: &str = "localhost";

/// The configuration of a client that trusts who stands in the folder's `ca.pem`.
///
/// Sessions are not resumed: each handshake is a whole one.
pub(crate) fn trust(folder: &Path) -> Result<Arc<ClientConfig>, Failure> {
    let file = folder.join("ca.pem");
    let explain = |error: String| format!("cannot use {}: {error}", file.display());
    let authority = CertificateDer::from_pem_file(&file).map_err(|e| explain(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(|e| explain(e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| explain(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// One connection, non-blocking once it is made.
pub(crate) enum Channel {
    Plain(TcpStream),
    Secure(Box<Secure>),
}

/// A TLS connection.
pub(crate) struct Secure {
    stream: TcpStream,
    session: ClientConnection,
    /// Records that were received and not yet opened, as nobody had room for their content.
    rest: Vec<u8>,
}

impl Channel {
    /// Shakes hands on a blocking socket.
    pub(crate) fn secure(mut stream: TcpStream, trust: &Arc<ClientConfig>) -> io::Result<Self> {
        let name = ServerName::try_from(NAME).expect("the name is a valid one");
        let mut session =
            ClientConnection::new(Arc::clone(trust), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Self::Secure(Box::new(Secure { stream, session, rest: Vec::new() })))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Secure(secure) => &secure.stream,
        }
    }

    /// Takes bytes to send; what is taken may still have to be flushed.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Secure(secure) => {
                secure.flush()?;
                secure.session.writer().write(bytes)
            }
        }
    }

    /// Sends what was taken; `WouldBlock` while some of it is left.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secure(secure) => secure.flush(),
        }
    }

    /// Receives into `room`, by way of `wire` where records come in between.
    ///
    /// A result smaller than `room` says that the socket is empty, so that what comes later is a
    /// new edge; 0 is the end of the stream.
    pub(crate) fn read(&mut self, room: &mut [u8], wire: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room),
            Self::Secure(secure) => secure.read(room, wire),
        }
    }
}

impl Secure {
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => outcome.map(drop)?,
            }
        }
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], wire: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        let rest = std::mem::take(&mut self.rest);
        self.open(&rest, room, &mut got)?;
        while got < room.len() {
            let count = match self.stream.read(wire) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock && got > 0 => break,
                Err(error) => return Err(error),
            };
            self.open(&wire[..count], room, &mut got)?;
            if count < wire.len() && got > 0 {
                break;
            }
        }
        Ok(got)
    }

    /// Opens records; their content goes behind the `got` bytes of `room`.
    fn open(&mut self, mut records: &[u8], room: &mut [u8], got: &mut usize) -> io::Result<()> {
        loop {
            match self.session.reader().read(&mut room[*got..]) {
                Ok(count) => *got += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if records.is_empty() {
                return Ok(());
            }
            if *got == room.len() {
                self.rest = records.to_vec();
                return Ok(());
            }
            self.session.read_tls(&mut records)?;
            self.session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}
