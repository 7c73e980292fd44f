//! TLS of a port: its certificate, and the authorities of accepted client certificates. A client without a certificate connects all
//! the same, since it may have a token; one with a certificate of another authority does not. Called by [`crate::kubelet_api::port`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;

use crate::kubelet_api::certificate::{ServerKey, ServerNames};

/// Interval at which the files are read again.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// The certificate that a port shows.
#[derive(Clone, Debug)]
pub enum ServingCertificate {
    /// A self-signed one of these names, which is kept in a directory.
    Own {
        /// The directory, which is made where it is absent.
        directory: PathBuf,
        /// Names and addresses that the certificate is for.
        names: ServerNames,
    },
    /// The chain of one file, and the key of another one.
    Files {
        /// PEM file of the chain.
        certificate: PathBuf,
        /// PEM file of the key.
        key: PathBuf,
    },
}

/// The files of a port's TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the port.
    pub serving: ServingCertificate,
    /// Authorities whose client certificates are accepted; `None`: client certificates are not accepted.
    pub client_ca_file: Option<PathBuf>,
}

/// TLS of the port with certificates as they are on disk.
pub(crate) struct Tls {
    /// Name of the port, for the log.
    port: &'static str,
    files: TlsFiles,
    /// Guards the configuration of now, and when it was read.
    now: Mutex<(Arc<ServerConfig>, Instant)>,
}

impl Tls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or has no certificate in it.
    pub(crate) fn read(port: &'static str, files: TlsFiles) -> io::Result<Self> {
        let config = configuration(&files)?;
        Ok(Self { port, files, now: Mutex::new((config, Instant::now())) })
    }

    /// Returns the current configuration, if it was read recently.
    pub(crate) fn fresh(&self) -> Option<Arc<ServerConfig>> {
        let now = self.now.lock();
        (now.1.elapsed() < READ_AGAIN).then(|| Arc::clone(&now.0))
    }

    /// Reads the files again; what cannot be read leaves everything as it is. Blocks.
    pub(crate) fn again(&self) -> Arc<ServerConfig> {
        let read = configuration(&self.files);
        let mut now = self.now.lock();
        now.1 = Instant::now();
        match read {
            Ok(config) => now.0 = config,
            Err(error) => tracing::warn!(%error, "the certificates of {} stay as they were", self.port),
        }
        Arc::clone(&now.0)
    }
}

fn configuration(files: &TlsFiles) -> io::Result<Arc<ServerConfig>> {
    let (chain, key) = serving(&files.serving)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match &files.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = authorities(file)
                .map_err(|error| io::Error::new(error.kind(), format!("client CA file {}: {error}", file.display())))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().map_err(io::Error::other)?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(io::Error::other)?;
    // Streams are upgraded connections, which HTTP/2 has not.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Reads the certificate chain of the port, and its key.
fn serving(serving: &ServingCertificate) -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    match serving {
        ServingCertificate::Own { directory, names } => {
            let own = ServerKey::open(directory, names, jiff::Timestamp::now())?;
            Ok((vec![own.certificate], own.key))
        }
        ServingCertificate::Files { certificate, key } => {
            let named = |path: &Path, error: io::Error| {
                io::Error::new(error.kind(), format!("serving certificate: {}: {error}", path.display()))
            };
            let chain = certificates(certificate).map_err(|error| named(certificate, error))?;
            let text = std::fs::read(key).map_err(|error| named(key, error))?;
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}"));
            let private = PrivateKeyDer::from_pem_slice(&text).map_err(|error| named(key, invalid(error)))?;
            Ok((chain, private))
        }
    }
}

/// Reads the certificates of a file, at least one.
fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(io::Error::other)?;
    if read.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no certificate in it"));
    }
    Ok(read)
}

fn authorities(file: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(roots)
}
