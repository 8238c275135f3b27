//! The server's certificate and key.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::tokio_rustls::rustls::crypto::ring::default_provider;
use pgwire::tokio::tokio_rustls::rustls::pki_types::pem::PemObject;
use pgwire::tokio::tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use pgwire::tokio::tokio_rustls::rustls::{self, ServerConfig};
use ring::digest;

use crate::engine::operating_system_user;
use crate::error::{Error, Result};

/// What clients ask for that begin with TLS at once.
const ALPN: &[u8] = b"postgresql";

/// TLS 1.2 and 1.3 with a certificate. Cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    end_point: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// Reads two PEM files: the server's certificate with those that signed it after it, and its key.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Configuration`] for a file without a certificate or key, for a key that others can read, and for two that do not belong
    /// together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self> {
        let fault = |path: &Path, reason: String| Error::Configuration { path: path.to_owned(), line: None, reason };
        let text = std::fs::read(certificate).map_err(|source| Error::Io { path: certificate.to_owned(), source })?;
        let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|error| fault(certificate, format!("its certificate cannot be read: {error}")))?;
        let Some(first) = chain.first() else {
            return Err(fault(certificate, "it has no certificate in PEM form (-----BEGIN CERTIFICATE-----)".to_owned()));
        };
        let end_point = end_point(first);
        let key_text = private_text(key)?;
        let key_der = PrivateKeyDer::from_pem_slice(&key_text).map_err(|_| {
            fault(
                key,
                "it has no private key in PEM form (-----BEGIN PRIVATE KEY-----); a key with a passphrase is not supported".to_owned(),
            )
        })?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key_der));
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => fault(key, format!("it is not the key of the certificate in {}", certificate.display())),
            other => fault(certificate, format!("certificate and key cannot be used: {other}")),
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), end_point })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// What SCRAM binds connections to.
    pub(super) fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }
}

/// A file that only its owner reads; root's may be read by a group, as system-wide keys are.
fn private_text(path: &Path) -> Result<Vec<u8>> {
    let io_error = |source| Error::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io_error)?;
    let metadata = file.metadata().map_err(io_error)?;
    let fault = |reason: &str| Err(Error::Configuration { path: path.to_owned(), line: None, reason: reason.to_owned() });
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
    if !metadata.is_file() {
        return fault("it is no regular file");
    }
    if owner != 0 && owner != operating_system_user() {
        return fault("the private key must belong to the user who starts the server, or to root");
    }
    if mode & 0o077 != 0 && !(owner == 0 && mode & 0o037 == 0) {
        return fault("others can read the private key; run chmod 0600 on it (0640 if it belongs to root)");
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(io_error)?;
    Ok(text)
}

/// The hash of a certificate by the function of its own signature, SHA-256 in the place of older ones. `None`: its signature has none (Ed25519), or the
/// function is told elsewhere in it (RSA-PSS).
fn end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
    // 1.2.840.113549.1.1.x: RSA; 1.2.840.10045.4.x: ECDSA.
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA_WITH_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    let (outer, _) = element(certificate)?;
    let (_, after_content) = element(outer)?;
    let (algorithm, _) = element(after_content)?;
    let (name, _) = element(algorithm)?;
    let function = if name == ECDSA_WITH_SHA1 {
        &digest::SHA256
    } else if let Some([number]) = name.strip_prefix(RSA) {
        match number {
            4 | 5 | 11 => &digest::SHA256,
            12 => &digest::SHA384,
            13 => &digest::SHA512,
            _ => return None,
        }
    } else if let Some([number]) = name.strip_prefix(ECDSA) {
        match number {
            2 => &digest::SHA256,
            3 => &digest::SHA384,
            4 => &digest::SHA512,
            _ => return None,
        }
    } else {
        return None;
    };
    Some(digest::digest(function, certificate).as_ref().into())
}

/// The contents of the first DER element of some bytes, and what comes after it.
fn element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
    };
    rest.split_at_checked(length)
}
