//! TLS of the port: the node's certificate, and whose client certificates are believed. A client without a certificate connects all the same, since
//! it may have a token; one with a certificate of another authority does not.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::time::Instant;

use crate::certificate::{ServerKey, ServerNames};

/// How often the files are read again.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// The files and names of the port's TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Directory of the serving certificate.
    pub directory: PathBuf,
    /// Names of the node.
    pub names: ServerNames,
    /// Authorities whose client certificates are believed; `None`: nobody's are.
    pub client_ca_file: Option<PathBuf>,
}

/// TLS of the port with certificates as they are on disk.
pub(crate) struct Tls {
    files: TlsFiles,
    /// Guards the configuration of now, and when it was read.
    now: Mutex<(Arc<ServerConfig>, Instant)>,
}

impl Tls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or has no certificate in it.
    pub(crate) fn read(files: TlsFiles) -> io::Result<Self> {
        let config = configuration(&files)?;
        Ok(Self { files, now: Mutex::new((config, Instant::now())) })
    }

    /// The configuration of now, where it was read lately.
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
            Err(error) => tracing::warn!(%error, "the certificates of the kubelet's port stay as they were"),
        }
        Arc::clone(&now.0)
    }
}

fn configuration(files: &TlsFiles) -> io::Result<Arc<ServerConfig>> {
    let own = ServerKey::open(&files.directory, &files.names, jiff::Timestamp::now())?;
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
    let mut config = builder.with_single_cert(vec![own.certificate], own.key).map_err(io::Error::other)?;
    // Streams are upgraded connections, which HTTP/2 has not.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn authorities(file: &Path) -> io::Result<RootCertStore> {
    let text = std::fs::read(file)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no certificate in it"));
    }
    Ok(roots)
}
