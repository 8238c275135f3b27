//! TLS for the driver of the tests: it trusts one certificate, and binds SCRAM to it.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pgwire::tokio::tokio_rustls::TlsConnector;
use pgwire::tokio::tokio_rustls::client::TlsStream as RustlsStream;
use pgwire::tokio::tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use pgwire::tokio::tokio_rustls::rustls::crypto::{CryptoProvider, ring as ring_provider, verify_tls12_signature, verify_tls13_signature};
use pgwire::tokio::tokio_rustls::rustls::pki_types::pem::PemObject;
use pgwire::tokio::tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use pgwire::tokio::tokio_rustls::rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Connects to the server that has this certificate, and no other.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    certificate: CertificateDer<'static>,
}

impl Tls {
    pub(crate) fn trusting(certificate: &Path) -> Self {
        let text = std::fs::read(certificate).expect("a certificate");
        let certificate = CertificateDer::from_pem_slice(&text).expect("a certificate in PEM form");
        let provider = Arc::new(ring_provider::default_provider());
        let verifier = OneCertificate { certificate: certificate.clone(), provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)), certificate }
    }
}

#[derive(Debug)]
struct OneCertificate {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OneCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(RustlsError::InvalidCertificate(CertificateError::UnknownIssuer))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A stream that knows what it is bound to.
pub(crate) struct BoundStream<S> {
    inner: RustlsStream<S>,
    certificate: CertificateDer<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = BoundStream<S>;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> Result<Self, io::Error> {
        Ok(self.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Tls {
    type Stream = BoundStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<BoundStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from("localhost").expect("a name");
            let inner = self.connector.connect(name, stream).await?;
            Ok(BoundStream { inner, certificate: self.certificate })
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for BoundStream<S> {
    /// The certificate of the tests is signed with SHA-256.
    fn channel_binding(&self) -> ChannelBinding {
        let hash = ring::digest::digest(&ring::digest::SHA256, &self.certificate);
        ChannelBinding::tls_server_end_point(hash.as_ref().to_vec())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for BoundStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for BoundStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
