//! A streamed answer: its events, put together to the answer that the server would have given in one piece.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::complaint::{complaint, told, words_of_text};
use super::content;
use super::events::Event;
use super::failure::{Fault, FaultKind};
use super::options::Api;
use super::response::{Wanted, first_stop, malformed};

/// What the last event of a choice says of its end.
const END_FIELDS: [&str; 3] = ["finish_reason", "stop_reason", "matched_stop"];

/// What has come so far.
#[derive(Debug)]
pub(super) struct Gathered<'a> {
    wanted: Wanted<'a>,
    /// By their numbers: those of several samples come mixed.
    choices: BTreeMap<u64, Choice>,
    usage: Option<Json>,
    prompt_ids: Option<Json>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Choice {
    /// None: the server has said nothing of it, as in a refusal.
    text: Option<String>,
    /// Whether an event had a place for a piece of it.
    has_place: bool,
    /// The first thought that was told.
    reasoning: Option<Json>,
    /// Events with text: about as many as tokens.
    num_pieces: u64,
    /// Empty until the server has ended it.
    end: Map<String, Json>,
    logprobs: Map<String, Json>,
    token_ids: Vec<Json>,
    has_stop: bool,
    /// The server went on after a stop text: it does not know it.
    is_past_stop: bool,
}

impl<'a> Gathered<'a> {
    pub fn new(wanted: Wanted<'a>) -> Self {
        Self { wanted, choices: BTreeMap::new(), usage: None, prompt_ids: None, is_over: false }
    }

    /// Takes an event. Whether the answer is whole: the server says so, or it writes on after a stop text that it does not know.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`], or what the event says has gone wrong.
    pub fn take(&mut self, event: &Event) -> Result<bool, Fault> {
        let data = event.data.trim_ascii();
        if event.is_error {
            let (words, kind) = complaint(None, data);
            return Err(Fault::new(kind, words));
        }
        if data == b"[DONE]" {
            self.is_over = true;
            return Ok(true);
        }
        let words = || words_of_text(&String::from_utf8_lossy(data));
        let json: Json =
            serde_json::from_slice(data).map_err(|_| malformed(&format!("an event of its stream is not JSON: {}", words())))?;
        if let Some(fault) = told(&json) {
            return Err(fault);
        }
        let Json::Object(mut json) = json else {
            return Err(malformed(&format!("an event of its stream is no object: {}", words())));
        };
        for choice in json.get("choices").and_then(Json::as_array).into_iter().flatten() {
            let index = choice.get("index").and_then(Json::as_u64).unwrap_or(0);
            // More than were asked for would not be read, and there may be any number of them.
            if index >= self.wanted.num_samples as u64 {
                continue;
            }
            self.choices.entry(index).or_default().take(choice, self.wanted)?;
        }
        if let Some(usage) = json.remove("usage").filter(Json::is_object) {
            self.usage = Some(usage);
        }
        if let Some(ids) = json.remove("prompt_token_ids").filter(Json::is_array) {
            self.prompt_ids = Some(ids);
        }
        self.is_over = self.is_stopped_here();
        Ok(self.is_over)
    }

    /// Whether the server has begun to write.
    pub fn has_text(&self) -> bool {
        self.choices.values().any(|choice| choice.num_pieces > 0)
    }

    /// The answer, when the server says or sends no more. `stray`: what it sent beside events.
    ///
    /// # Errors
    /// [`FaultKind::Cut`] if something is missing, [`FaultKind::Malformed`] if there is nothing.
    pub fn finish(self, stray: &[u8]) -> Result<Json, Fault> {
        let words = words_of_text(&String::from_utf8_lossy(stray));
        let told = |what: &str| if words.trim().is_empty() { what.to_owned() } else { format!("{what}: {words}") };
        if self.choices.is_empty() {
            return Err(malformed(&told("its stream has no choices")));
        }
        // Some servers end a stream without saying that it is over, and a gateway that has lost its server says so: what is whole has an end.
        if self.choices.values().any(|choice| !choice.is_whole(self.is_over)) {
            return Err(Fault::new(FaultKind::Cut, told("its stream ended before its text")));
        }
        // Who is not listened to till the end does not say what was used.
        let num_pieces: u64 = self.choices.values().map(|choice| choice.num_pieces).sum();
        let choices: Vec<Json> = self.choices.into_iter().map(|(index, choice)| choice.into_json(index, self.wanted.api)).collect();
        Ok(json!({ "choices": choices, "usage": self.usage, "pieces": num_pieces, "prompt_token_ids": self.prompt_ids }))
    }

    /// Whether nothing that still comes is wanted.
    fn is_stopped_here(&self) -> bool {
        let mut choices = self.choices.values();
        self.choices.len() >= self.wanted.num_samples
            && choices.clone().any(|choice| choice.is_past_stop && choice.end.is_empty())
            && choices.all(|choice| choice.is_past_stop || !choice.end.is_empty())
    }
}

impl Choice {
    /// Whether it has its end. One that says nothing may have none, if the server says that it is over: it is no answer then.
    fn is_whole(&self, is_over: bool) -> bool {
        let is_blank = self.text.as_ref().is_none_or(|text| text.trim().is_empty());
        !self.end.is_empty() || is_over && (self.is_past_stop || is_blank)
    }

    fn take(&mut self, event: &Json, wanted: Wanted<'_>) -> Result<(), Fault> {
        if let Some(fault) = told(event).filter(|_| event.get("error").is_some_and(content::is_said)) {
            return Err(fault);
        }
        let place = match wanted.api {
            Api::Chat => event.get("delta").filter(|delta| delta.is_object()),
            Api::Completions => event.get("text").map(|_| event),
        };
        if let Some(place) = place {
            self.has_place = true;
            let field = if wanted.api == Api::Chat { "content" } else { "text" };
            if let Some(piece) = content::text(place.get(field))? {
                self.write(&piece, wanted.stop);
            }
            if self.reasoning.is_none() {
                self.reasoning = content::reasoning(place).cloned();
            }
        } else if ["delta", "message", "text"].iter().any(|name| event.get(name).is_some_and(content::is_said)) {
            return Err(malformed(&format!("an event of its stream has its text in another place: {event}")));
        }
        for (name, list) in event.get("logprobs").and_then(Json::as_object).into_iter().flatten() {
            append(&mut self.logprobs, name, list);
        }
        self.token_ids.extend(event.get("token_ids").and_then(Json::as_array).into_iter().flatten().cloned());
        // The other fields stand in every event of some servers; they mean something in the last one.
        if event.get("finish_reason").is_some_and(content::is_said) {
            let fields = END_FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), event.get(*name)?.clone())));
            self.end = fields.collect();
        }
        Ok(())
    }

    fn write(&mut self, piece: &str, stop: &[String]) {
        let text = self.text.get_or_insert_default();
        if piece.is_empty() {
            return;
        }
        self.num_pieces += 1;
        self.is_past_stop = self.has_stop;
        let longest = stop.iter().map(String::len).max().unwrap_or(0);
        let searched = text.floor_char_boundary(text.len().saturating_sub(longest));
        text.push_str(piece);
        self.has_stop = self.has_stop || first_stop(&text[searched..], stop).is_some();
    }

    fn into_json(self, index: u64, api: Api) -> Json {
        let mut choice = self.end;
        choice.insert("index".to_owned(), json!(index));
        // Without a place for a text it has none, which is another thing than an empty one.
        if self.has_place {
            match api {
                Api::Chat => {
                    choice.insert("message".to_owned(), json!({ "content": self.text, "reasoning_content": self.reasoning }));
                }
                Api::Completions => {
                    choice.insert("text".to_owned(), json!(self.text));
                    choice.insert("reasoning_content".to_owned(), json!(self.reasoning));
                }
            }
        }
        choice.insert("logprobs".to_owned(), Json::Object(self.logprobs));
        if !self.token_ids.is_empty() {
            choice.insert("token_ids".to_owned(), Json::Array(self.token_ids));
        }
        Json::Object(choice)
    }
}

fn append(lists: &mut Map<String, Json>, name: &str, more: &Json) {
    let Json::Array(more) = more else { return };
    if let Json::Array(list) = lists.entry(name).or_insert_with(|| json!([])) {
        list.extend(more.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::response::Answer;
    use super::*;

    fn gather(wanted: Wanted<'_>, events: &[Json]) -> Result<Answer, Fault> {
        let mut gathered = Gathered::new(wanted);
        for event in events {
            let event = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
            if gathered.take(&Event { data: event.into_bytes(), is_error: false })? {
                break;
            }
        }
        Answer::read(&gathered.finish(&[])?, wanted)
    }

    fn wanted(api: Api, stop: &[String], num_samples: usize) -> Wanted<'_> {
        Wanted { api, stop, num_samples }
    }

    fn piece(index: u64, text: &str) -> Json {
        json!({ "choices": [{ "index": index, "delta": { "content": text }, "finish_reason": null, "matched_stop": null }], "usage": null })
    }

    fn end(index: u64) -> Json {
        json!({ "choices": [{ "index": index, "delta": {}, "finish_reason": "stop", "stop_reason": null }] })
    }

    #[test]
    fn pieces_are_a_text() {
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } });
        let role = json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" } }] });
        let events = [role, piece(0, "So "), piece(0, "it"), end(0), usage, json!("[DONE]")];
        let found = gather(wanted(Api::Chat, &["x".to_owned()], 1), &events).expect("an answer");
        let first = &found.completions[0];
        assert_eq!((first.text.as_str(), first.stopped, found.tokens.prompt, first.generated_tokens), ("So it", false, 7, 3));
        // Without the word that it is over, the end of the text has to be there.
        assert_eq!(gather(wanted(Api::Chat, &[], 1), &events[..4]).expect("an answer").completions[0].text, "So it");
        assert_eq!(gather(wanted(Api::Chat, &[], 1), &events[..3]).expect_err("half").kind, FaultKind::Cut);
        assert_eq!(gather(wanted(Api::Chat, &[], 1), &[piece(0, "So"), json!("[DONE]")]).expect_err("half").kind, FaultKind::Cut);
        let given_up = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "abort" }] });
        assert_eq!(gather(wanted(Api::Chat, &[], 1), &[piece(0, "So"), given_up]).expect_err("half").kind, FaultKind::Cut);
        assert_eq!(
            gather(wanted(Api::Chat, &[], 1), &[piece(7, "one that was not asked for")]).expect_err("none").kind,
            FaultKind::Malformed
        );
        assert_eq!(gather(wanted(Api::Chat, &[], 1), &[]).expect_err("nothing").kind, FaultKind::Malformed);
        assert_eq!(gather(wanted(Api::Chat, &[], 1), &[end(0)]).expect("a refusal").completions[0].text, "");
    }

    #[test]
    fn what_goes_wrong_in_the_middle_is_told() {
        let kind = |event: Json| gather(wanted(Api::Chat, &[], 1), &[piece(0, "So"), event]).expect_err("it fails").kind;
        assert_eq!(kind(json!("{\"choices\": [")), FaultKind::Malformed);
        assert_eq!(kind(json!(42)), FaultKind::Malformed);
        assert_eq!(kind(json!({"choices": [{"delta": {"content": 1}}]})), FaultKind::Malformed);
        assert_eq!(kind(json!({"error": {"message": "worn out", "code": 503}})), FaultKind::Status(503));
        assert_eq!(kind(json!({"error": "worn out"})), FaultKind::Complaint);
        assert_eq!(kind(json!({"detail": "worn out"})), FaultKind::Complaint);
        assert_eq!(kind(json!({"choices": [{"delta": {}, "error": {"message": "worn out", "code": 502}}]})), FaultKind::Status(502));
        assert_eq!(kind(json!({"choices": [{"message": {"content": "whole"}}]})), FaultKind::Malformed);
        assert_eq!(kind(json!({"choices": [{"text": "of another interface"}]})), FaultKind::Malformed);
        assert_eq!(kind(json!({"object": "error", "message": "no", "code": 400})), FaultKind::Status(400));
        assert_eq!(kind(json!({"error": {"message": "too many", "code": "context_length_exceeded"}})), FaultKind::ContextFull);
    }

    /// Whether it is an answer hangs on what else is told.
    #[test]
    fn an_empty_text_is_an_answer_if_it_has_an_end() {
        let found = |api: Api, events: &[Json]| {
            gather(wanted(api, &[], 1), events).map(|answer| (answer.completions[0].text.clone(), answer.completions[0].is_answer))
        };
        let empty = |is_answer: bool| Ok((String::new(), is_answer));
        let role = || json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" } }] });
        let thought = |name: &str| json!({ "choices": [{ "index": 0, "delta": { name: "Hm." } }] });
        let ended = |reason: Json| json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
        let done = || json!("[DONE]");
        assert_eq!(found(Api::Chat, &[role(), end(0), done()]), empty(true));
        assert_eq!(found(Api::Chat, &[role(), ended(json!("length"))]), empty(true));
        for events in [
            vec![role(), done()],
            vec![role(), ended(json!("error")), done()],
            vec![role(), ended(json!(null)), done()],
            vec![role(), ended(json!("")), done()],
            vec![role(), thought("reasoning_content"), end(0), done()],
            vec![thought("reasoning"), end(0)],
        ] {
            assert_eq!(found(Api::Chat, &events), empty(false), "{events:?}");
        }
        // A thought is never what was said, and none beside it.
        let spoken = [thought("reasoning_content"), piece(0, "So"), end(0)];
        assert_eq!(found(Api::Chat, &spoken), Ok(("So".to_owned(), true)));
        assert_eq!(found(Api::Chat, &[role()]).expect_err("it is over for no reason").kind, FaultKind::Cut);
        let text = |text: &str, reason: Json| json!({ "choices": [{ "index": 0, "text": text, "finish_reason": reason }] });
        assert_eq!(found(Api::Completions, &[text("", json!("stop")), done()]), empty(true));
        assert_eq!(found(Api::Completions, &[text("", json!(null)), done()]), empty(false));
        assert_eq!(found(Api::Completions, &[text("So", json!("error"))]).expect_err("it broke off").kind, FaultKind::Cut);
        // Parts, in a piece too.
        let parts = json!({ "choices": [{ "index": 0, "delta": { "content": [{ "type": "text", "text": "So " }, { "type": "text", "text": "it is" }] } }] });
        assert_eq!(found(Api::Chat, &[parts, end(0)]), Ok(("So it is".to_owned(), true)));
    }

    /// The server would write on for ever.
    #[test]
    fn a_stop_text_that_the_server_does_not_know_ends_the_answer() {
        let stop = ["</query>".to_owned(), String::new()];
        let going_on: Vec<Json> = ["<query>Jaws</qu", "ery> and", " so", " on"].iter().map(|text| piece(0, text)).collect();
        let found = gather(wanted(Api::Chat, &stop, 1), &going_on).expect("it is over after the third");
        assert_eq!((found.completions[0].text.as_str(), found.completions[0].stopped), ("<query>Jaws", true));
        assert_eq!(found.tokens.generated, 3, "the pieces that were read");
        // Unless the server tells with each piece, as vLLM does with `continuous_usage_stats`.
        let counted = |(number, event): (usize, &Json)| {
            let mut event = event.clone();
            event["usage"] = json!({ "prompt_tokens": 9, "completion_tokens": 2 * number });
            event
        };
        let counted: Vec<Json> = going_on.iter().enumerate().map(counted).collect();
        let tokens = gather(wanted(Api::Chat, &stop, 1), &counted).expect("it is over after the third").tokens;
        assert_eq!((tokens.prompt, tokens.generated), (9, 4));
        assert_eq!(gather(wanted(Api::Chat, &stop, 1), &going_on[..2]).expect_err("it may be its last piece").kind, FaultKind::Cut);
        // Another sample goes on.
        assert_eq!(gather(wanted(Api::Chat, &stop, 2), &going_on).expect_err("one is missing").kind, FaultKind::Cut);
        let mixed: Vec<Json> = going_on.iter().cloned().chain([piece(1, "no"), end(1), piece(0, "never read")]).collect();
        let found = gather(wanted(Api::Chat, &stop, 2), &mixed).expect("both are there");
        assert_eq!(found.completions.iter().map(|one| one.text.as_str()).collect::<Vec<_>>(), ["<query>Jaws", "no"]);
    }

    #[test]
    fn tokens_are_gathered_too() {
        let token = |text: &str, logprob: f64, id: u32| {
            let logprobs = json!({ "tokens": [text], "token_logprobs": [logprob], "text_offset": [0] });
            json!({ "choices": [{ "index": 0, "text": text, "logprobs": logprobs, "token_ids": [id] }] })
        };
        let end = json!({ "choices": [{ "index": 0, "text": "", "finish_reason": "length", "logprobs": null }] });
        let found = gather(wanted(Api::Completions, &[], 1), &[token("a", -0.5, 3), token("b", -0.25, 4), end]).expect("an answer");
        let first = &found.completions[0];
        assert_eq!((first.text.as_str(), &first.token_ids[..], &first.token_logprobs[..]), ("ab", &[3, 4][..], &[-0.5, -0.25][..]));
    }

    proptest! {
        /// The same texts at once and in pieces, mixed.
        #[test]
        fn pieces_say_what_the_whole_says(
            texts in proptest::collection::vec("[a-c</>é漢]{0,30}", 1..4),
            order in proptest::collection::vec((0..4_usize, 1..5_usize), 0..60),
            stop in proptest::collection::vec("[a-c</>é漢]{0,3}", 0..3),
            is_chat in any::<bool>(),
        ) {
            let api = if is_chat { Api::Chat } else { Api::Completions };
            let wanted = wanted(api, &stop, texts.len());
            let whole = |(index, text): (usize, &String)| match api {
                Api::Chat => json!({ "index": index, "message": { "content": text }, "finish_reason": "stop" }),
                Api::Completions => json!({ "index": index, "text": text, "finish_reason": "stop" }),
            };
            let whole = json!({ "choices": texts.iter().enumerate().map(whole).collect::<Vec<_>>() });
            let say = |index: usize, text: &str, reason: Json| match api {
                Api::Chat => json!({ "choices": [{ "index": index, "delta": { "content": text }, "finish_reason": reason }] }),
                Api::Completions => json!({ "choices": [{ "index": index, "text": text, "finish_reason": reason }] }),
            };
            let mut left: Vec<Vec<char>> = texts.iter().map(|text| text.chars().collect()).collect();
            let mut events = Vec::new();
            for (index, len) in order.into_iter().filter(|(index, _)| *index < texts.len()) {
                let piece: String = { let len = len.min(left[index].len()); left[index].drain(..len).collect() };
                events.push(say(index, &piece, Json::Null));
            }
            for (index, rest) in left.into_iter().enumerate() {
                events.push(say(index, &rest.into_iter().collect::<String>(), json!("stop")));
            }
            let said = |answer: Answer| answer.completions.into_iter().map(|one| (one.text, one.stopped)).collect::<Vec<_>>();
            prop_assert_eq!(said(gather(wanted, &events).unwrap()), said(Answer::read(&whole, wanted).unwrap()));
        }
    }
}
