//! A server that speaks as much of OpenAI's API as policies need, and fails in the ways that servers fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http_server::{Answers, Asked, HttpServer, hang, is_gone_within, lock, response_head};

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
    http: HttpServer,
    shared: Arc<Shared>,
}

struct Shared {
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
        let shared = Arc::new(Shared {
            behaviour: Box::new(behaviour),
            answered: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        });
        Self { http: HttpServer::start(Arc::clone(&shared)), shared }
    }

    /// One that says the same to everybody.
    pub(crate) fn always(reply: Reply) -> Self {
        Self::start(move |_, _| reply.clone())
    }

    /// As `--allow-host` names it.
    pub(crate) fn host(&self) -> String {
        self.http.url()
    }

    pub(crate) fn base_url(&self) -> String {
        format!("{}/v1", self.http.url())
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.http.asked()
    }

    pub(crate) fn num_asked(&self) -> usize {
        self.http.num_asked()
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

#[async_trait]
impl Answers for Shared {
    async fn answer(&self, stream: &mut TcpStream, asked: &Asked, number: usize) -> bool {
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        let goes_on = write_reply(stream, (self.behaviour)(asked, number), self, asked).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        goes_on
    }
}

/// Whether the connection goes on.
async fn write_reply(stream: &mut TcpStream, reply: Reply, shared: &Shared, asked: &Asked) -> bool {
    match reply {
        Reply::After(time, reply) => {
            if is_gone_within(stream, time).await {
                shared.given_up.fetch_add(1, Ordering::SeqCst);
                return false;
            }
            Box::pin(write_reply(stream, *reply, shared, asked)).await
        }
        Reply::Hang => {
            hang(stream).await;
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
                hang(stream).await;
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

fn response(status: u16, headers: &[(&'static str, String)], body: &str) -> String {
    let headers = [&[("Content-Type", "application/json".to_owned())][..], headers].concat();
    format!("{}{body}", response_head(status, &headers, body.len()))
}
