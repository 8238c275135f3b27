//! From a socket to a client who is known: TLS, the startup message, the rule that fits, the proof that it asks for, and a place.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use pgwire::api::auth::{protocol_negotiation, save_startup_parameters_to_metadata};
use pgwire::api::cancel::{CancelHandler, DefaultCancelHandler};
use pgwire::api::{ClientInfo, ConnectionManager, DefaultClient, PgWireConnectionState};
use pgwire::error::PgWireError;
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::startup::{Authentication, PasswordMessageFamily, Startup};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{MaybeTls, PgWireMessageServerCodec, negotiate_tls};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::codec::Framed;

use super::failures::Failures;
use super::hba::{HbaRules, Method};
use super::limits::{Place, Places};
use super::peer::Origin;
use super::scram::{Exchange, Offer, ScramError, initial_response};
use super::tls::ServerTls;
use crate::engine::{Role, Roles, operating_system_name, operating_system_user};
use crate::server::connection::Socket;
use crate::server::messages::next_frame;
use crate::server::response::{error_message, fatal};

/// The longest message before a client is known.
const STRANGER_BYTES_MAX: usize = 10_000;

/// A client's socket before a word was said.
pub(in crate::server) enum Incoming {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Decides who comes in; one for all connections.
pub(in crate::server) struct Door {
    pub roles: Roles,
    /// `None`: the rules that need no file, see [`Door::usual_method`].
    pub rules: Option<HbaRules>,
    pub tls: Option<ServerTls>,
    /// Whether other machines may come without TLS.
    pub allow_plaintext: bool,
    pub places: Arc<Places>,
    pub failures: Failures,
    pub cancellations: Arc<ConnectionManager>,
}

/// A client who is known, and has a place.
pub(in crate::server) struct Admitted {
    pub socket: Socket,
    pub role: Role,
    pub place: Place,
}

/// Why a client does not come in.
enum Refusal {
    /// What it is told.
    Told(PgWireError),
    /// There is nobody to tell, or nothing to say: the socket is broken, or wanted to cancel a statement.
    Silent,
}

impl From<PgWireError> for Refusal {
    fn from(error: PgWireError) -> Self {
        match error {
            PgWireError::IoError(_) => Self::Silent,
            other => Self::Told(other),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Silent
    }
}

fn refuse<T>(code: &str, message: impl AsRef<str>) -> Result<T, Refusal> {
    Err(Refusal::Told(fatal(code, message.as_ref())))
}

impl Door {
    /// `None`: the client was turned away, and told why.
    pub async fn admit(&self, incoming: Incoming) -> Option<Admitted> {
        let (mut socket, origin) = self.open(incoming).await.ok()??;
        match self.identify(&mut socket, origin).await {
            Ok((role, place)) => Some(Admitted { socket, role, place }),
            Err(Refusal::Silent) => None,
            Err(Refusal::Told(error)) => {
                // No ReadyForQuery after it, and nothing is read any more: what the client has sent ahead is not heard. If the message does not
                // arrive either, there is nobody to tell.
                let _ = socket.send(PgWireBackendMessage::ErrorResponse(error_message(error))).await;
                let _ = socket.close().await;
                None
            }
        }
    }

    /// `None`: it began with TLS, which this server does not speak.
    async fn open(&self, incoming: Incoming) -> io::Result<Option<(Socket, Origin)>> {
        match incoming {
            Incoming::Tcp(stream) => {
                let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
                let socket: Option<Socket> = negotiate_tls(stream, self.tls.as_ref().map(ServerTls::acceptor)).await?;
                Ok(socket.map(|socket| {
                    let origin = Origin::Host { peer, local, is_secure: socket.is_secure() };
                    (socket, origin)
                }))
            }
            Incoming::Unix(stream) => {
                let user_id = stream.peer_cred().ok().map(|credentials| credentials.uid());
                // What the protocol library knows the clients of Unix sockets by.
                let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
                let codec = PgWireMessageServerCodec::new(DefaultClient::new(nowhere, false));
                let mut socket: Socket = Framed::new(MaybeTls::Unix(stream), codec);
                refuse_encryption(&mut socket).await?;
                Ok(Some((socket, Origin::Local { user_id })))
            }
        }
    }

    async fn identify(&self, socket: &mut Socket, origin: Origin) -> Result<(Role, Place), Refusal> {
        if socket.is_secure() && !socket.read_buffer().is_empty() {
            // Sent in the clear, before TLS: not by the client, perhaps, but by someone between the two.
            return refuse("08P01", "received unencrypted data after SSL request");
        }
        let startup = match next_message(socket).await? {
            PgWireFrontendMessage::Startup(startup) => startup,
            PgWireFrontendMessage::CancelRequest(request) => {
                DefaultCancelHandler::new(self.cancellations.clone()).on_cancel_request(request).await;
                return Err(Refusal::Silent);
            }
            _ => return refuse("08P01", "expected a startup message"),
        };
        protocol_negotiation(socket, &startup).await?;
        let (user, database) = names(&startup)?;
        save_startup_parameters_to_metadata(socket, &startup);
        socket.set_state(PgWireConnectionState::AuthenticationInProgress);
        self.authenticate(socket, &origin, &user, &database).await?;
        let Some(role) = self.roles.get(&user) else { return refuse("28000", format!("role \"{user}\" does not exist")) };
        if !role.can_login {
            return refuse("28000", format!("role \"{user}\" is not permitted to log in"));
        }
        match self.places.take(&role) {
            Ok(place) => Ok((role, place)),
            Err(reason) => refuse("53300", reason),
        }
    }

    async fn authenticate(&self, socket: &mut Socket, origin: &Origin, user: &str, database: &str) -> Result<(), Refusal> {
        if let Origin::Host { is_secure: false, .. } = origin
            && !origin.is_loopback()
            && !self.allow_plaintext
        {
            return refuse("28000", "connections from other machines need TLS here; connect with sslmode=require");
        }
        let method = match &self.rules {
            Some(rules) => rules.method(origin, database, user, &self.roles),
            None => Some(self.usual_method(origin, user)?),
        };
        match method {
            Some(Method::Trust) => Ok(()),
            Some(Method::Peer) if self.is_peer(origin, user) => Ok(()),
            Some(Method::Peer) => refuse("28000", format!("peer authentication failed for user \"{user}\"")),
            Some(Method::ScramSha256) => self.check_password(socket, origin, user).await,
            Some(Method::Reject) => refuse("28000", format!("a rule of the server rejects {}", described(origin, user, database))),
            None => refuse("28000", format!("no rule of the server lets in {}", described(origin, user, database))),
        }
    }

    /// Without a file of rules: by the Unix socket, the operating system's user is who they are, and others need a password; over TCP everybody needs
    /// one, but on a fresh database, which knows none yet, the user of this machine who started the server does not.
    fn usual_method(&self, origin: &Origin, user: &str) -> Result<Method, Refusal> {
        match origin {
            Origin::Local { .. } if self.is_peer(origin, user) => Ok(Method::Peer),
            Origin::Host { .. } if origin.is_loopback() && !self.roles.has_passwords() => fresh_method(origin.is_of_another_user()),
            _ => Ok(Method::ScramSha256),
        }
    }

    /// Whether the operating system's user has the role's name, or started the server and asks for its superuser.
    fn is_peer(&self, origin: &Origin, user: &str) -> bool {
        let Origin::Local { user_id: Some(user_id) } = origin else { return false };
        let is_starter = *user_id == operating_system_user() && user == self.roles.superuser();
        is_starter || operating_system_name(*user_id).as_deref() == Some(user)
    }

    /// The message for a wrong password, a role without one, one that has expired and a role that does not exist is the same, and so is the time.
    async fn check_password(&self, socket: &mut Socket, origin: &Origin, user: &str) -> Result<(), Refusal> {
        match self.exchange(socket, user).await? {
            Ok(()) => {
                self.failures.forget(origin.address());
                Ok(())
            }
            Err(ScramError::Protocol(reason)) => refuse("08P01", reason),
            Err(ScramError::Password) => {
                tokio::time::sleep(self.failures.note(origin.address())).await;
                refuse("28P01", format!("password authentication failed for user \"{user}\""))
            }
        }
    }

    async fn exchange(&self, socket: &mut Socket, user: &str) -> Result<Result<(), ScramError>, Refusal> {
        let end_point = self.tls.as_ref().and_then(ServerTls::end_point).filter(|_| socket.is_secure());
        let offer = Offer { end_point };
        send(socket, Authentication::SASL(offer.mechanisms())).await?;
        let body = next_password_message(socket).await?;
        let started =
            initial_response(&body).and_then(|(mechanism, message)| Exchange::start(mechanism, message, offer, self.roles.verifier(user)));
        let exchange = match started {
            Ok(exchange) => exchange,
            Err(error) => return Ok(Err(error)),
        };
        send(socket, Authentication::SASLContinue(exchange.server_first().to_owned().into())).await?;
        let body = next_password_message(socket).await?;
        let finished = std::str::from_utf8(&body).map_err(|_| ScramError::Protocol("malformed SCRAM message"));
        let is_valid = self.roles.get(user).is_none_or(|role| is_valid_now(&role));
        match finished.and_then(|message| exchange.finish(message)) {
            Ok(_) if !is_valid => Ok(Err(ScramError::Password)),
            Ok(server_final) => {
                send(socket, Authentication::SASLFinal(server_final.into())).await?;
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(error)),
        }
    }
}

/// Over loopback, while no role has a password.
fn fresh_method(is_another_user: bool) -> Result<Method, Refusal> {
    if is_another_user {
        return refuse(
            "28000",
            "this database has no passwords yet, so that only the user who started the server can connect over TCP; \
             that user gives others one with CREATE USER name PASSWORD '...'",
        );
    }
    Ok(Method::Trust)
}

/// Whether VALID UNTIL has not passed.
fn is_valid_now(role: &Role) -> bool {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    role.valid_until.is_none_or(|until| u128::try_from(until).is_ok_and(|until| now < until))
}

/// Unix sockets are not encrypted; a client that asks is told so.
async fn refuse_encryption(socket: &mut Socket) -> io::Result<()> {
    loop {
        match socket.next().await {
            Some(Ok(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_)))) => {
                socket.send(PgWireBackendMessage::SslResponse(SslResponse::Refuse)).await?;
            }
            Some(Ok(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresGss(_)))) => {
                socket.send(PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse)).await?;
            }
            // Another message waits, which is read next.
            Some(Ok(_)) => {
                socket.set_state(PgWireConnectionState::AwaitingStartup);
                return Ok(());
            }
            Some(Err(_)) | None => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

async fn next_message(socket: &mut Socket) -> Result<PgWireFrontendMessage, Refusal> {
    match next_frame(socket, STRANGER_BYTES_MAX).await? {
        Some(frame) => Ok(frame.decode()?),
        None => Err(Refusal::Silent),
    }
}

async fn next_password_message(socket: &mut Socket) -> Result<Vec<u8>, Refusal> {
    match next_message(socket).await? {
        PgWireFrontendMessage::PasswordMessageFamily(PasswordMessageFamily::Raw(body)) => Ok(body.to_vec()),
        PgWireFrontendMessage::Terminate(_) => Err(Refusal::Silent),
        _ => refuse("08P01", "expected a password response"),
    }
}

async fn send(socket: &mut Socket, authentication: Authentication) -> Result<(), Refusal> {
    Ok(socket.send(PgWireBackendMessage::Authentication(authentication)).await?)
}

/// The names of user and database, which is the user's unless it is told.
fn names(startup: &Startup) -> Result<(String, String), Refusal> {
    let parameter = |name: &str| startup.parameters.get(name).filter(|value| !value.is_empty()).cloned();
    if parameter("replication").is_some_and(|value| !["false", "off", "no", "0"].contains(&value.as_str())) {
        return refuse("0A000", "replication connections are not supported");
    }
    let Some(user) = parameter("user") else { return refuse("28000", "no PostgreSQL user name specified in startup packet") };
    let database = parameter("database").unwrap_or_else(|| user.clone());
    Ok((user, database))
}

fn described(origin: &Origin, user: &str, database: &str) -> String {
    let place = match origin {
        Origin::Local { .. } => "the Unix socket".to_owned(),
        Origin::Host { peer, is_secure, .. } => {
            format!("{} ({})", peer.ip().to_canonical(), if *is_secure { "TLS" } else { "no encryption" })
        }
    };
    format!("user \"{user}\" for database \"{database}\" from {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_database_trusts_who_started_the_server_alone() {
        assert!(matches!(fresh_method(false), Ok(Method::Trust)));
        let Err(Refusal::Told(PgWireError::UserError(told))) = fresh_method(true) else { panic!("another user is refused, and told so") };
        assert!(told.is_fatal());
        assert_eq!(told.code, "28000");
        assert!(told.message.contains("CREATE USER"), "{}", told.message);
    }
}
