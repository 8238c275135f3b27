//! Transcripts: what the policy said and what was put in are turns of their own, as chat models are spoken to.

use super::*;

/// Two searches, and then an answer.
fn searched(asked: &Asked) -> Reply {
    let messages = asked.body["messages"].as_array().expect("messages");
    let text = match messages.len() {
        1 => "<think>Who?</think> <search>film",
        3 => "<think>And?</think>\n<search>director",
        _ => "<think>I see.</think> <answer>1946",
    };
    Reply::chat(text, "stop")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_is_sent_by_turns() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| searched(asked));
    let (_database, session) = with_model(data.path(), &server, "").await?;
    rows(&session, WORLD).await?;
    let answer = "SELECT answer FROM answer('Who made Jaws?', agent => 'qa', protocol => 'search_r1', k => 1)";
    assert_eq!(rows(&session, answer).await?, ["1946"]);
    let asked = server.asked();
    let last = asked.last().expect("it was asked");
    let turns: Vec<(&str, &str)> = last.body["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| (message["role"].as_str().unwrap_or_default(), message["content"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(turns.iter().map(|(role, _)| *role).collect::<Vec<_>>(), ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(turns[0].1, "Question: Who made Jaws?");
    assert_eq!(turns[1].1, "<think>Who?</think> <search>film</search>");
    assert!(turns[2].1.starts_with("<information>\n[1] ") && turns[2].1.ends_with("\n</information>"), "{}", turns[2].1);
    assert_eq!(turns[3].1, "<think>And?</think>\n<search>director</search>");
    // A trajectory, and so a training, has one text.
    let is_one = "SELECT prompt LIKE 'Question: Who made Jaws?%<search>film</search>%</information>%<search>director</search>%'
        FROM answer_steps('Who made Jaws?', agent => 'qa', protocol => 'search_r1', k => 1) ORDER BY step DESC LIMIT 1";
    assert_eq!(rows(&session, is_one).await?, ["true"]);
    assert_eq!(server.num_asked(), 3, "the answers were kept");
    Ok(())
}

/// Other protocols write each prompt anew, with what came before in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_written_anew_is_one_message() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| reason(asked));
    let (_database, session) = with_model(data.path(), &server, "").await?;
    rows(&session, WORLD).await?;
    rows(&session, "SELECT answer FROM answer('Who made Jaws?', agent => 'qa')").await?;
    assert!(server.asked().iter().all(|asked| asked.body["messages"].as_array().is_some_and(|messages| messages.len() == 1)));
    Ok(())
}
