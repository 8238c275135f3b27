//! Prompts that are longer than the server's model can read.

use super::*;
use crate::openai_server::Piece;

const ANSWERS: &str = "SELECT a.stop_reason, a.steps FROM questions q CROSS JOIN LATERAL answer(q.question, agent => 'qa') a ORDER BY q.id";

fn refusals() -> Vec<Reply> {
    let openai = json!({"error": {"message": "This model's maximum context length is 4097 tokens. However, your messages resulted in 5000 tokens.",
        "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}});
    let vllm = json!({"object": "error", "message": "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2036 in the \
        messages, 64 in the completion). Please reduce the length of the messages or completion.", "type": "BadRequestError", "code": 400});
    let llama_cpp = json!({"error": {"code": 400, "message": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "type": "exceed_context_size_error", "n_prompt_tokens": 4390, "n_ctx": 4096}});
    let mut replies: Vec<Reply> = [openai, vllm, llama_cpp.clone()].iter().map(|body| Reply::Say(400, vec![], body.to_string())).collect();
    replies.push(Reply::Stream(vec![Piece::Data(llama_cpp.to_string())]));
    replies
}

/// What becomes of a question of so many words.
fn asked_at_length(num_words: usize) -> String {
    format!(
        "SELECT a.stop_reason, a.steps FROM (SELECT repeat('Who? ', {num_words}) AS q) long CROSS JOIN LATERAL answer(long.q, agent => 'qa') a"
    )
}

/// Refuses prompts above this many bytes.
fn narrow(bytes: usize, refusal: Reply) -> OpenAiServer {
    OpenAiServer::start(move |asked, _| {
        let reply = if asked.prompt().len() > bytes { refusal.clone() } else { reason(asked) };
        if asked.body["stream"] == json!(true) { reply.streamed(asked, 4) } else { reply }
    })
}

/// A length that some prompts of a run have and some have not.
async fn some_length() -> Result<usize> {
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason(asked)));
    let (_database, session) = with_model(data.path(), &server, "").await?;
    rows(&session, WORLD).await?;
    rows(&session, ANSWERS).await?;
    let mut lengths: Vec<usize> = server.asked().iter().map(|asked| asked.prompt().len()).collect();
    lengths.sort_unstable();
    Ok(lengths[lengths.len() / 2])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_too_long_ends_its_trajectory() -> Result<()> {
    let length = some_length().await?;
    for refusal in refusals() {
        let stream = matches!(refusal, Reply::Stream(_));
        let (data, server) = (temporary(), narrow(length, refusal.clone()));
        let (_database, session) = with_model(data.path(), &server, &format!(", stream = {stream}")).await?;
        rows(&session, WORLD).await?;
        let answers = rows(&session, ANSWERS).await?;
        assert!(answers.iter().any(|word| word == "context_full"), "{refusal:?}: {answers:?}");
        // Not even the first prompt.
        assert_eq!(rows(&session, &asked_at_length(2_000)).await?, ["context_full", "0"]);
        rows(&session, GENERATE).await?;
        let ended = "SELECT count(*) FROM run WHERE is_terminal AND action = 'query_generation' AND outcome_reward = 0 AND depth < 5";
        assert!(number(&session, ended).await? > 0, "{refusal:?}");
        assert_eq!(number(&session, "SELECT count(DISTINCT question_id) FROM run").await?, 4);
        let alone =
            "GENERATE ROLLOUTS INTO alone USING AGENT qa FROM (SELECT 'q' AS id, repeat('Who? ', 2000) AS question, 'x' AS golden_answers)
            WITH (simulations = 4)";
        rows(&session, alone).await?;
        assert_eq!(rows(&session, "SELECT count(*), sum(visit_count) FROM alone").await?, ["1", "0"], "a tree that is its root");
        // Nothing failed, and nothing was tried again.
        assert_eq!(rows(&session, "SELECT retries, failures FROM rollout.remote_models").await?, ["0", "0"], "{refusal:?}");
        let error = rows(&session, "SELECT generate('m', repeat('p', 9000))").await.expect_err("there is no trajectory to end");
        assert_eq!(error.sqlstate(), "22023", "{error}");
        assert!(error.client_message().contains("context") && error.client_message().contains("max_tokens"), "{error}");
    }
    Ok(())
}

/// A judge that cannot read the steps has no value for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_judge_may_find_the_steps_too_long() -> Result<()> {
    let refusal = refusals().remove(0);
    let (data, server) = (
        temporary(),
        OpenAiServer::start(move |asked, _| {
            let is_judge = asked.body["model"] == json!("judge");
            if is_judge { refusal.clone() } else { reason(asked) }
        }),
    );
    let (_database, session) = with_model(data.path(), &server, "").await?;
    rows(&session, &format!("CREATE MODEL judge FROM 'openai://judge' WITH (base_url = '{}')", server.base_url())).await?;
    rows(&session, WORLD).await?;
    rows(&session, &GENERATE.replace("simulations = 6", "simulations = 6, value = 'judge', judge = 'judge'")).await?;
    assert_eq!(number(&session, "SELECT count(DISTINCT question_id) FROM run").await?, 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_cannot_be_read_is_not_sent() -> Result<()> {
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason(asked)));
    let (_database, session) = with_model(data.path(), &server, ", context_length = 100").await?;
    rows(&session, WORLD).await?;
    // More than eight bytes for each of the hundred tokens.
    assert_eq!(rows(&session, &asked_at_length(200)).await?, ["context_full", "0"]);
    let error = rows(&session, "SELECT generate('m', repeat('p', 801))").await.expect_err("it is too long");
    assert_eq!(error.sqlstate(), "22023", "{error}");
    assert!(error.client_message().contains("context_length of 100"), "{error}");
    assert_eq!(server.num_asked(), 0);
    rows(&session, "SELECT generate('m', repeat('p', 800))").await?;
    assert_eq!(server.num_asked(), 1);
    Ok(())
}
