//! Several samples of one prompt as one request.

use super::*;
use crate::openai_server::Piece;

const GENERATE_WIDE: &str = "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions)
    WITH (simulations = 6, children = 3, rollouts_per_node = 2, max_depth = 5, temperature = 1.0, seed = 5, concurrency = 4)";

/// As many samples as are asked for.
fn reason_n(asked: &Asked) -> Reply {
    let texts: Vec<String> = (0..asked.body["n"].as_u64().unwrap_or(1)).map(|sample| reasoned(asked, sample)).collect();
    let reply = Reply::samples(&texts);
    if asked.body["stream"] == json!(true) { reply.streamed(asked, 4) } else { reply }
}

/// How many samples each request was for.
fn sizes(server: &OpenAiServer) -> Vec<u64> {
    server.asked().iter().map(|asked| asked.body["n"].as_u64().unwrap_or(1)).collect()
}

/// The trees of a run in a directory of its own.
async fn trees(data: &Path, server: &OpenAiServer, options: &str, generate: &str) -> Result<Vec<String>> {
    let (_database, session) = with_model(data, server, options).await?;
    rows(&session, WORLD).await?;
    rows(&session, generate).await?;
    rows(&session, TREE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_a_node_are_one_request() -> Result<()> {
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason_n(asked)));
    let first = trees(data.path(), &server, ", samples_per_request = 4", GENERATE_WIDE).await?;
    let asked = sizes(&server);
    assert!(asked.contains(&3) && asked.contains(&2), "children, and first steps of completions: {asked:?}");
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    let read_again = number(&session, "SELECT count(*) FROM run WHERE depth > 0 AND cached_tokens > 0").await?;
    assert!(read_again > 0, "samples after the first found the prompt there");

    // Without the server the same trees come again.
    let num_asked = server.num_asked();
    rows(&session, "DROP TABLE run").await?;
    rows(&session, GENERATE_WIDE).await?;
    assert_eq!(rows(&session, TREE).await?, first);
    assert_eq!(server.num_asked(), num_asked);
    assert_eq!(number(&session, "SELECT requests FROM rollout.remote_models").await?, 0);

    // In pieces, and those of several samples mixed by the server, they are the same too.
    let (other, streaming) = (temporary(), OpenAiServer::start(|asked, _| mixed(asked, reason_n(asked))));
    assert_eq!(trees(other.path(), &streaming, ", samples_per_request = 4, stream = true", GENERATE_WIDE).await?, first);
    assert_eq!(sizes(&streaming).into_iter().sum::<u64>(), asked.into_iter().sum::<u64>());
    Ok(())
}

fn data(piece: &Piece) -> &str {
    if let Piece::Data(data) = piece { data } else { "" }
}

/// Events of several samples in turns.
fn mixed(asked: &Asked, reply: Reply) -> Reply {
    let Reply::Stream(pieces) = reply else { panic!("{:?} is no stream", asked.body) };
    let (events, ends): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| data(piece).contains("\"delta\""));
    let of = |sample: usize| {
        let number = format!("\"index\":{sample}");
        events.iter().filter(|piece| data(piece).contains(&number)).cloned().collect::<Vec<_>>()
    };
    let samples: Vec<Vec<_>> = (0..4).map(of).collect();
    let longest = samples.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|turn| samples.iter().filter_map(move |sample| sample.get(turn).cloned()));
    Reply::Stream(turns.chain(ends).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_gives_one_sample_is_asked_for_the_others() -> Result<()> {
    let (plain_data, plain) = (temporary(), OpenAiServer::start(|asked, _| reason(asked)));
    let one_by_one = trees(plain_data.path(), &plain, "", GENERATE_WIDE).await?;
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason(asked)));
    assert_eq!(trees(data.path(), &server, ", samples_per_request = 4", GENERATE_WIDE).await?, one_by_one);
    assert!(sizes(&server).contains(&3) && !sizes(&plain).contains(&3));
    assert_eq!(server.num_asked(), plain.num_asked(), "the sample that came is not asked for again");
    let session = open(data.path(), &[server.host()]).await?.session();
    rows(&session, "DROP TABLE run").await?;
    rows(&session, GENERATE_WIDE).await?;
    assert_eq!((rows(&session, TREE).await?, server.num_asked()), (one_by_one, plain.num_asked()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sampled_greedily_is_one_text() -> Result<()> {
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason_n(asked)));
    let greedy = GENERATE_WIDE.replace("temperature = 1.0", "temperature = 0.0");
    trees(data.path(), &server, ", samples_per_request = 4", &greedy).await?;
    assert!(sizes(&server).iter().all(|size| *size == 1), "vLLM refuses several");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn first_steps_of_sampled_trajectories_are_one_request() -> Result<()> {
    let sample = "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions)
        WITH (method = 'sample', simulations = 6, temperature = 1.0, seed = 5)";
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason_n(asked)));
    trees(data.path(), &server, ", samples_per_request = 4", sample).await?;
    let asked = sizes(&server);
    let count = |size: u64| asked.iter().filter(|asked| **asked == size).count();
    assert_eq!((count(4), count(2), count(3)), (4, 4, 0), "six trajectories of each question");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_of_several_samples_pays_nothing_twice() -> Result<()> {
    killed_run(", samples_per_request = 2, stream = true", reason_n).await
}

/// The words of llama.cpp before it knew n.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_several_samples_says_so() -> Result<()> {
    let (data, server) = (
        temporary(),
        OpenAiServer::start(|asked, _| match asked.body.get("n") {
            Some(_) => Reply::error(400, "Only one completion choice is allowed"),
            None => reason(asked),
        }),
    );
    let (_database, session) = with_model(data.path(), &server, ", samples_per_request = 2").await?;
    rows(&session, WORLD).await?;
    let error = rows(&session, GENERATE).await.expect_err("it is refused");
    let message = error.client_message();
    assert!(message.contains("Only one completion") && message.contains("samples_per_request = 1"), "{message}");
    Ok(())
}
