//! A server that speaks as much of OpenAI's API as policies need, and fails in the ways that servers fail.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a client asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub path: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Json,
}

/// What the server does about it.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A whole answer: status, further headers, body.
    Say(u16, Vec<(&'static str, String)>, String),
    /// Half of an answer; the connection ends.
    Cut(String),
    /// Nothing, until the client goes away.
    Hang,
    After(Duration, Box<Reply>),
    /// Server-sent events, piece by piece.
    Stream(Vec<Piece>),
}

/// A piece of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// The data of an event.
    Data(String),
    /// Bytes as they are.
    Raw(Vec<u8>),
    Pause(Duration),
    /// The connection ends.
    Cut,
    /// Nothing more, until the client goes away.
    Hang,
}

type Behaviour = dyn Fn(&Asked, usize) -> Reply + Send + Sync;

/// A running server, on a thread of its own; it ends with the process.
pub(crate) struct OpenAiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    behaviour: Box<Behaviour>,
    /// Requests that were answered whole.
    answered: Mutex<Vec<Asked>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    /// Clients that went away before their answer.
    given_up: AtomicUsize,
    /// Pieces of streams that were written.
    written: AtomicUsize,
}

impl Reply {
    /// A chat completion, as servers of this API write it.
    pub(crate) fn chat(text: &str, finish_reason: &str) -> Self {
        Self::json(json!({
            "id": "chatcmpl-1", "object": "chat.completion", "model": "tiny",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110, "prompt_tokens_details": {"cached_tokens": 40}},
        }))
    }

    pub(crate) fn json(body: Json) -> Self {
        Self::Say(200, vec![], body.to_string())
    }

    /// An error in OpenAI's form.
    pub(crate) fn error(status: u16, message: &str) -> Self {
        Self::Say(status, vec![], json!({"error": {"message": message, "type": "server_error", "code": null}}).to_string())
    }

    /// Several samples, as servers of this API write them.
    pub(crate) fn samples(texts: &[String]) -> Self {
        let choice = |(index, text): (usize, &String)| json!({"index": index, "message": {"content": text}, "finish_reason": "stop"});
        let choices: Vec<Json> = texts.iter().enumerate().map(choice).collect();
        Self::json(json!({"choices": choices, "usage": {"prompt_tokens": 100, "completion_tokens": 10 * texts.len()}}))
    }

    pub(crate) fn after(milliseconds: u64, reply: Self) -> Self {
        Self::After(Duration::from_millis(milliseconds), Box::new(reply))
    }

    /// The same answer, in events with so many characters each. `asked`: in the form that it is asked for in.
    pub(crate) fn streamed(self, asked: &Asked, piece_chars: usize) -> Self {
        let Self::Say(200, _, body) = &self else { return self };
        let body: Json = serde_json::from_str(body).expect("an answer is JSON");
        let mut events = Vec::new();
        for choice in body["choices"].as_array().into_iter().flatten() {
            let text = choice.pointer("/message/content").or_else(|| choice.get("text")).and_then(Json::as_str).unwrap_or_default();
            let index = &choice["index"];
            let event = |text: &str, reason: &Json| {
                let mut choice = json!({"index": index, "finish_reason": reason});
                if asked.is_chat() {
                    choice["delta"] = json!({"content": text});
                } else {
                    choice["text"] = json!(text);
                }
                json!({"choices": [choice], "usage": null})
            };
            let chars: Vec<char> = text.chars().collect();
            events.extend(chars.chunks(piece_chars).map(|piece| event(&piece.iter().collect::<String>(), &Json::Null)));
            events.push(event("", &choice["finish_reason"]));
        }
        if asked.body.pointer("/stream_options/include_usage") == Some(&json!(true)) {
            events.push(json!({"choices": [], "usage": body["usage"]}));
        }
        let done = Piece::Data("[DONE]".to_owned());
        Self::Stream(events.iter().map(|event| Piece::Data(event.to_string())).chain([done]).collect())
    }
}

impl Piece {
    /// An event of a chat that says this, and goes on.
    pub(crate) fn chat(text: &str) -> Self {
        Self::Data(json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}).to_string())
    }

    pub(crate) fn pause(milliseconds: u64) -> Self {
        Self::Pause(Duration::from_millis(milliseconds))
    }
}

impl Asked {
    /// What the user's message, or the prompt, says.
    pub(crate) fn prompt(&self) -> &str {
        let chat = self.body.pointer("/messages/0/content");
        chat.or_else(|| self.body.get("prompt")).and_then(Json::as_str).unwrap_or_default()
    }

    pub(crate) fn is_chat(&self) -> bool {
        self.path.ends_with("/chat/completions")
    }

    pub(crate) fn stop(&self) -> Vec<&str> {
        self.body["stop"].as_array().map(|stop| stop.iter().filter_map(Json::as_str).collect()).unwrap_or_default()
    }
}

impl OpenAiServer {
    /// `behaviour`: what it does about a request, given its number from 0.
    pub(crate) fn start(behaviour: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let shared = Arc::new(Shared {
            asked: Mutex::default(),
            behaviour: Box::new(behaviour),
            answered: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a socket");
                while let Ok((stream, _)) = listener.accept().await {
                    // Small packets that wait for each other would be measured as the client's time.
                    stream.set_nodelay(true).expect("a socket");
                    tokio::spawn(serve(stream, Arc::clone(&served)));
                }
            });
        });
        Self { address, shared }
    }

    /// One that says the same to everybody.
    pub(crate) fn always(reply: Reply) -> Self {
        Self::start(move |_, _| reply.clone())
    }

    /// As `--allow-host` names it.
    pub(crate) fn host(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    pub(crate) fn num_asked(&self) -> usize {
        lock(&self.shared.asked).len()
    }

    pub(crate) fn answered(&self) -> Vec<Asked> {
        lock(&self.shared.answered).clone()
    }

    pub(crate) fn most_in_flight(&self) -> usize {
        self.shared.most_in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn given_up(&self) -> usize {
        self.shared.given_up.load(Ordering::SeqCst)
    }

    pub(crate) fn written(&self) -> usize {
        self.shared.written.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of a connection, one after the other.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut buffer).await {
        let number = {
            let mut all = lock(&shared.asked);
            all.push(asked.clone());
            all.len() - 1
        };
        let in_flight = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        let reply = (shared.behaviour)(&asked, number);
        let goes_on = answer(&mut stream, reply, &shared, &asked).await;
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        if !goes_on {
            return;
        }
    }
}

/// None at the end of the connection; a body that is no JSON is null.
pub(crate) async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Asked> {
    let mut chunk = [0; 4096];
    let end_of_head = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(num_bytes) => buffer.extend_from_slice(&chunk[..num_bytes]),
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end_of_head]).into_owned();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: HashMap<String, String> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let body_len: usize = headers.get("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    while buffer.len() < end_of_head + body_len {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(num_bytes) => buffer.extend_from_slice(&chunk[..num_bytes]),
        }
    }
    let body = serde_json::from_slice(&buffer[end_of_head..end_of_head + body_len]).unwrap_or(Json::Null);
    buffer.drain(..end_of_head + body_len);
    Some(Asked { path, headers, body })
}

/// Whether the connection goes on.
async fn answer(stream: &mut TcpStream, reply: Reply, shared: &Shared, asked: &Asked) -> bool {
    match reply {
        Reply::After(time, reply) => {
            if is_gone_within(stream, time).await {
                shared.given_up.fetch_add(1, Ordering::SeqCst);
                return false;
            }
            Box::pin(answer(stream, *reply, shared, asked)).await
        }
        Reply::Hang => {
            is_gone_within(stream, Duration::from_secs(600)).await;
            shared.given_up.fetch_add(1, Ordering::SeqCst);
            false
        }
        Reply::Cut(body) => {
            let whole = response(200, &[], &body);
            // A client that is gone misses nothing.
            let _ = stream.write_all(&whole.as_bytes()[..whole.len() - body.len() / 2]).await;
            false
        }
        Reply::Say(status, headers, body) => {
            lock(&shared.answered).push(asked.clone());
            stream.write_all(response(status, &headers, &body).as_bytes()).await.is_ok()
        }
        Reply::Stream(pieces) => {
            let is_whole = write_pieces(stream, pieces, shared).await;
            if is_whole {
                lock(&shared.answered).push(asked.clone());
            }
            is_whole
        }
    }
}

/// Whether all of them were written and the connection goes on.
async fn write_pieces(stream: &mut TcpStream, pieces: Vec<Piece>, shared: &Shared) -> bool {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut is_there = stream.write_all(head.as_bytes()).await.is_ok();
    let num_pieces = pieces.len();
    for (index, piece) in pieces.into_iter().enumerate() {
        let bytes = match piece {
            Piece::Data(data) => format!("data: {data}\n\n").into_bytes(),
            Piece::Raw(bytes) => bytes,
            Piece::Cut => return false,
            Piece::Pause(time) => {
                is_there = is_there && !is_gone_within(stream, time).await;
                continue;
            }
            Piece::Hang => {
                is_gone_within(stream, Duration::from_secs(600)).await;
                is_there = false;
                continue;
            }
        };
        if !is_there {
            break;
        }
        let mut chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
        if index + 1 == num_pieces {
            // With what ends the body: who has read the last event may go away.
            chunk.extend_from_slice(b"0\r\n\r\n");
        }
        is_there = stream.write_all(&chunk).await.is_ok();
        shared.written.fetch_add(usize::from(is_there), Ordering::SeqCst);
    }
    if num_pieces == 0 {
        is_there = stream.write_all(b"0\r\n\r\n").await.is_ok();
    }
    shared.given_up.fetch_add(usize::from(!is_there), Ordering::SeqCst);
    is_there
}

pub(crate) async fn is_gone_within(stream: &mut TcpStream, time: Duration) -> bool {
    let mut byte = [0];
    matches!(tokio::time::timeout(time, stream.peek(&mut byte)).await, Ok(Ok(0) | Err(_)))
}

fn response(status: u16, headers: &[(&'static str, String)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} Reason\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}
