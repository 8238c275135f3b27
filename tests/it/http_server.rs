//! HTTP as the servers of the tests need it: a server takes requests, keeps them, and says or does not say what its test wants.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value as Json;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

/// What a client asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub path: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Json,
}

/// What a server does about requests.
#[async_trait]
pub(crate) trait Answers: Send + Sync + 'static {
    /// Answers a request, given its number from 0. Whether the connection goes on.
    async fn answer(&self, stream: &mut TcpStream, asked: &Asked, number: usize) -> bool;
}

/// A running server, on a thread of its own; it ends with the process.
pub(crate) struct HttpServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl HttpServer {
    pub(crate) fn start(answers: Arc<impl Answers>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a socket");
                while let Ok((stream, _)) = listener.accept().await {
                    // Small packets that wait for each other would be measured as the client's time.
                    stream.set_nodelay(true).expect("a socket");
                    tokio::spawn(serve(stream, Arc::clone(&answers), Arc::clone(&kept)));
                }
            });
        });
        Self { address, asked }
    }

    /// As `--allow-host` names it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }

    pub(crate) fn num_asked(&self) -> usize {
        lock(&self.asked).len()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of a connection, one after the other.
async fn serve(mut stream: TcpStream, answers: Arc<impl Answers>, kept: Arc<Mutex<Vec<Asked>>>) {
    let mut buffer = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut buffer).await {
        let number = {
            let mut all = lock(&kept);
            all.push(asked.clone());
            all.len() - 1
        };
        if !answers.answer(&mut stream, &asked, number).await {
            return;
        }
    }
}

/// None at the end of the connection; a body that is no JSON is null.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Asked> {
    let end_of_head = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
        read_more(stream, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..end_of_head]).into_owned();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: HashMap<String, String> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let body_len: usize = headers.get("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    while buffer.len() < end_of_head + body_len {
        read_more(stream, buffer).await?;
    }
    let body = serde_json::from_slice(&buffer[end_of_head..end_of_head + body_len]).unwrap_or(Json::Null);
    buffer.drain(..end_of_head + body_len);
    Some(Asked { path, headers, body })
}

/// None at the end of the connection.
async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4096];
    match stream.read(&mut chunk).await {
        Ok(0) | Err(_) => None,
        Ok(num_bytes) => {
            buffer.extend_from_slice(&chunk[..num_bytes]);
            Some(())
        }
    }
}

/// What stands before the body of an answer.
pub(crate) fn response_head(status: u16, headers: &[(&'static str, String)], body_len: usize) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} Reason\r\nContent-Length: {body_len}\r\n{headers}\r\n")
}

/// Says nothing more, until the client goes away.
pub(crate) async fn hang(stream: &mut TcpStream) {
    is_gone_within(stream, Duration::from_secs(600)).await;
}

pub(crate) async fn is_gone_within(stream: &mut TcpStream, time: Duration) -> bool {
    let mut byte = [0];
    matches!(tokio::time::timeout(time, stream.peek(&mut byte)).await, Ok(Ok(0) | Err(_)))
}
