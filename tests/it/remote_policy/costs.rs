//! What rows say of money.

use super::*;

const PRICES: &str = ", price_input = 2, price_cached = 1, price_output = 10";

/// The first value of the first row; None if it is NULL.
async fn cost(session: &Session, sql: &str) -> Result<Option<f64>> {
    let batches = run(session, sql).await?;
    Ok(batches[0].column(0).as_primitive::<Float64Type>().iter().next().flatten())
}

async fn costs(session: &Session) -> Result<[f64; 3]> {
    let mut costs = [0.0; 3];
    let queries = ["SELECT sum(cost) FROM run", "SELECT cost FROM rollout_summary(run)", "SELECT cost FROM rollout.remote_models"];
    for (found, query) in costs.iter_mut().zip(queries) {
        *found = cost(session, query).await?.unwrap_or_else(|| panic!("{query}: no cost"));
    }
    Ok(costs)
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_answers_have_their_costs() -> Result<()> {
    let (data, server) = (temporary(), OpenAiServer::start(|asked, _| reason(asked)));
    let of_rows = {
        let (_database, session) = with_model(data.path(), &server, PRICES).await?;
        run(&session, WORLD).await?;
        run(&session, GENERATE).await?;
        let [of_rows, of_summary, paid] = costs(&session).await?;
        // A call costs 260 millionths: 60 tokens read, 40 from the server's cache, 10 written.
        assert!(is_near(paid, 260e-6 * server.num_asked() as f64), "{paid}");
        assert!(is_near(of_rows, paid) && is_near(of_summary, paid), "{of_rows}, {of_summary}, {paid}");
        assert_eq!(number(&session, "SELECT count(cost) FROM run WHERE prompt_tokens = 0").await?, 0);
        assert_eq!(number(&session, "SELECT count(*) FROM run WHERE prompt_tokens > 0 AND cost IS NULL").await?, 0);

        let question = "(SELECT question FROM questions ORDER BY id LIMIT 1) q CROSS JOIN LATERAL";
        let answer = cost(&session, &format!("SELECT a.cost FROM {question} answer(q.question, agent => 'qa') a")).await?;
        let steps = cost(&session, &format!("SELECT sum(s.cost) FROM {question} answer_steps(q.question, agent => 'qa') s")).await?;
        assert!(answer.zip(steps).is_some_and(|(answer, steps)| answer > 0.0 && is_near(answer, steps)), "{answer:?}, {steps:?}");
        of_rows
    };
    // Rows say what answers cost when they were paid for, whoever has kept them.
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    run(&session, "DROP TABLE run").await?;
    run(&session, GENERATE).await?;
    let [again, of_summary, paid] = costs(&session).await?;
    assert!(is_near(again, of_rows) && is_near(of_summary, of_rows) && is_near(paid, 0.0), "{again}, {of_summary}, {paid}");
    Ok(())
}

/// The samples of one request have one prompt to pay for.
#[tokio::test(flavor = "multi_thread")]
async fn samples_of_one_request_cost_what_it_costs() -> Result<()> {
    let server = OpenAiServer::start(|asked, _| {
        let texts: Vec<String> = (0..asked.body["n"].as_u64().unwrap_or(1)).map(|sample| reasoned(asked, sample)).collect();
        Reply::samples(&texts)
    });
    let data = temporary();
    let (_database, session) = with_model(data.path(), &server, &format!("{PRICES}, samples_per_request = 4")).await?;
    run(&session, WORLD).await?;
    run(&session, &GENERATE.replace("children = 2", "children = 4")).await?;
    assert!(server.asked().iter().any(|asked| asked.body["n"] == json!(4)), "some samples share a request");
    let [of_rows, of_summary, paid] = costs(&session).await?;
    assert!(is_near(of_rows, paid) && is_near(of_summary, paid), "{of_rows}, {of_summary}, {paid}");
    Ok(())
}
