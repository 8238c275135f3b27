//! Functions that call a model, over a runtime of letters: each different input once.

use super::*;

#[tokio::test]
async fn equal_conversations_are_rendered_once() {
    let runtime = Arc::new(Letters::default());
    let sql = "SELECT apply_chat_template('m', c, add_generation_prompt => e) FROM (VALUES ('a', true), ('b', false), ('a', true), ('a', false), (NULL, true), \
               ('c', NULL)) t(c, e)";
    let found = rows(&session(Arc::clone(&runtime)), sql).await.expect("texts");
    assert_eq!(found, ["a answer:", "b", "a answer:", "a", "NULL", "c answer:"]);
    assert_eq!(runtime.calls(), [r#"chat true ["a", "c"]"#, r#"chat false ["b", "a"]"#]);
}

#[tokio::test]
async fn embed_once_per_distinct_text() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT embed('letters', t) FROM (VALUES ('jaws'), ('shark'), (NULL), ('jaws')) u(t)";
    expect![[r#"
        [4.0, 1.0]
        [5.0, 1.0]
        NULL
        [4.0, 1.0]"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"embed Passage ["jaws", "shark"]"#]].assert_eq(&runtime.calls().join("\n"));
}

#[tokio::test]
async fn embed_arguments() {
    check("SELECT embed('letters', 'jaws', kind => 'query')", expect!["[1.0, 4.0]"]).await;
    check(
        "SELECT embed(input => 'jaws', model => 'letters'), embed('letters', NULL), embed('letters', 'jaws', NULL)",
        expect!["[4.0, 1.0] | NULL | [4.0, 1.0]"],
    )
    .await;
    check("SELECT t <=> embed('letters', 'jaws') FROM (SELECT vector_in('[4,1]') AS t)", expect!["0.0"]).await;
    check("SELECT embed('letters', 'jaws', 'question')", expect!["error: embed: kind is 'question', expected 'query' or 'passage'"]).await;
    check(
        "SELECT embed('letters', 'jaws', k) FROM (VALUES ('query'), ('passage')) t(k)",
        expect!["error: embed: kind must be a constant, but its rows differ"],
    )
    .await;
    check("SELECT embed('nobody', 'jaws')", expect![[r#"error: Execution error: unknown model "nobody""#]]).await;
    check(
        "SELECT embed(m, 'jaws') FROM (VALUES ('letters')) t(m)",
        expect!["error: embed: model must be a constant, such as 'policy', because a statement is planned for one model"],
    )
    .await;
    check("SELECT embed(NULL, 'jaws')", expect!["error: embed: model is NULL, expected the name of a model"]).await;
    check("SELECT embed('letters', 5)", expect!["error: embed: input is of type bigint, expected text"]).await;
    check(
        "SELECT embed('letters', 'jaws', 'query', 1)",
        expect!["error: wrong number of arguments: embed(model, input[, kind]) was given 4"],
    )
    .await;
    check(
        "SELECT embed('letters', 'jaws', type => 'query')",
        expect!["error: Error during planning: Unknown parameter name 'type'. Valid parameters are: [model, input, kind]"],
    )
    .await;
    check("SELECT embed('letters')", expect!["error: wrong number of arguments: embed(model, input[, kind]) was given 1"]).await;
}

#[tokio::test]
async fn generate_once_per_prompt_and_options_and_all_at_once() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT generate('letters', t, max_tokens => 3, temperature => 0.5, top_p => 0.9, seed => s, stop => ARRAY['x'])
        FROM (VALUES ('jaws', 1), ('jaws', 2), ('emma', 1), ('jaws', 1), (NULL, 3)) u(t, s)";
    expect![[r#"
        swa t=0.5 p=0.9 s=1 ["x"]
        swa t=0.5 p=0.9 s=2 ["x"]
        amm t=0.5 p=0.9 s=1 ["x"]
        swa t=0.5 p=0.9 s=1 ["x"]
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"
        generate seed 1 ["jaws", "emma"]
        generate seed 2 ["jaws"]
        done with seed 1
        done with seed 2"#]]
    .assert_eq(&runtime.calls().join("\n"));
}

#[tokio::test]
async fn rerank_once_per_distinct_pair() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT rerank('letters', q, p) FROM (VALUES ('a b', 'b a'), ('a b', 'c'), (NULL, 'c'), ('a b', 'b a'), ('a', NULL)) u(q, p)";
    expect![[r#"
        2.0
        0.0
        NULL
        2.0
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"rerank [("a b", "b a"), ("a b", "c")]"#]].assert_eq(&runtime.calls().join("\n"));
    check("SELECT rerank('letters', passage => 'a', query => 'a')", expect!["1.0"]).await;
    check("SELECT rerank('letters', NULL, 'a')", expect!["NULL"]).await;
    check("SELECT rerank('letters', 'a')", expect!["error: wrong number of arguments: rerank(model, query, passage) was given 2"]).await;
}

#[tokio::test]
async fn judge_once_per_distinct_case() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT judge('letters', q, g, a, max_tokens => 9, prompts => NULL) FROM (VALUES ('q', ARRAY['a', 'b'], 'b'), ('q', ARRAY['a', 'b'], 'c'),
        ('q', ARRAY['a', 'b'], 'b'), ('q', ARRAY['a'], 'b?'), ('q', ARRAY['a'], NULL), ('q', ARRAY['a'], ' '), (NULL, ARRAY['a'], 'a'), ('q', NULL, 'a')) u(q, g, a)";
    expect![[r#"
        1.0
        0.0
        1.0
        NULL
        0.0
        0.0
        NULL
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"judge letters default 9 ["q [\"a\", \"b\"] b", "q [\"a\", \"b\"] c", "q [\"a\"] b?"]"#]]
        .assert_eq(&runtime.calls().join("\n"));
}

#[tokio::test]
async fn judge_arguments() {
    check(
        "SELECT judge('letters', 'q', 'a', 'a'), judge_reply('letters', 'q', 'a', 'b', 'mine'), judge_reply('letters', 'q', 'a', NULL)",
        expect!["1.0 | Some(false) | NULL"],
    )
    .await;
    check("SELECT judge(answer => 'a', golds => ARRAY['b', 'a'], question => 'q', model => 'letters')", expect!["1.0"]).await;
    check("SELECT judge('letters', 'q', ARRAY[]::text[], 'a')", expect!["NULL"]).await;
    check("SELECT judge('letters', 'q', 'a', 'a', 'mine', 0)", expect!["error: judge: max_tokens is 0, expected 1 or more"]).await;
    check(
        "SELECT judge('letters', 'q', 'a', 'a', 'mine', n) FROM (VALUES (1), (2)) t(n)",
        expect!["error: judge: max_tokens must be a constant, but its rows differ"],
    )
    .await;
    check("SELECT judge(NULL, 'q', 'a', 'a')", expect!["error: judge: model is NULL, expected the name of a model"]).await;
    check("SELECT judge('letters', 'q', 'a', 5)", expect!["error: judge: answer is of type bigint, expected text"]).await;
    check(
        "SELECT judge('letters', 'q', 'a')",
        expect!["error: wrong number of arguments: judge(model, question, golds, answer[, prompts[, max_tokens]]) was given 3"],
    )
    .await;
}

#[tokio::test]
async fn judge_relevance_once_per_distinct_case() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT judge_relevance('letters', q, s, p, max_tokens => 9, prompts => NULL) FROM (VALUES ('q', 'a b', ARRAY['a', 'c']),
        ('q', 'a b', ARRAY['a', 'c']), ('q', 'why?', ARRAY['a']), ('q', 'a', ARRAY[]::text[]), ('q', 'a', NULL), (NULL, 'a', ARRAY['a']), (NULL, 'a', ARRAY[]::text[]),
        ('q', NULL, ARRAY['a'])) u(q, s, p)";
    expect![[r#"
        0.5
        0.5
        NULL
        0.0
        NULL
        NULL
        NULL
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"grade letters default 9 ["q a b [\"a\", \"c\"]", "q why? [\"a\"]"]"#]].assert_eq(&runtime.calls().join("\n"));
    check("SELECT judge_relevance('letters', 'q', 'a', 'a')", expect!["1.0"]).await;
    check(
        "SELECT judge_relevance('letters', 'q', 'a', 'a', 'mine', 0)",
        expect!["error: judge_relevance: max_tokens is 0, expected 1 or more"],
    )
    .await;
    check(
        "SELECT judge_relevance('letters', 'q', 'a')",
        expect!["error: wrong number of arguments: judge_relevance(model, question, step, passages[, prompts[, max_tokens]]) was given 3"],
    )
    .await;
}

#[tokio::test]
async fn generate_arguments() {
    check(
        "SELECT generate('letters', 'jaws'), generate('letters', 'jaws', 2, NULL, 0.5, NULL, 'end')",
        expect![[r#"swaj t=0 p=1 s=0 [] | sw t=0 p=0.5 s=0 ["end"]"#]],
    )
    .await;
    check("SELECT generate('letters', 'jaws', 0)", expect!["error: generate: max_tokens is 0, expected 1 or more"]).await;
    check("SELECT generate('letters', 'jaws', 1, -0.5)", expect!["error: generate: temperature is -0.5, expected 0 or more"]).await;
    check("SELECT generate('letters', 'jaws', 1, 1.0, 0.0)", expect!["error: generate: top_p is 0, expected above 0 and at most 1"]).await;
    check("SELECT generate('letters', 'jaws', 1, 1.0, 0.5, -7)", expect!["error: generate: seed is -7, expected 0 or more"]).await;
    check(
        "SELECT generate('letters', 'jaws', 1, 1.0, 0.5, 7, '')",
        expect!["error: generate: stop is '', expected texts of at least one character"],
    )
    .await;
    check(
        "SELECT generate('letters', 'jaws', 2, NULL, NULL, NULL, NULL, k, 0.25, 1.5) FROM (VALUES (0), (5)) t(k)",
        expect![[r#"
            sw t=0 p=1 s=0 []
            sw t=0 p=1 s=0 [] k=5 m=0.25 r=1.5"#]],
    )
    .await;
    let narrowed = |argument: &str| format!("SELECT generate('letters', 'jaws', NULL, NULL, NULL, NULL, NULL, {argument})");
    check(&narrowed("-1"), expect!["error: generate: top_k is -1, expected 0 or more"]).await;
    check(&narrowed("0, 1.5"), expect!["error: generate: min_p is 1.5, expected from 0 to 1"]).await;
    check(&narrowed("0, 0, 0"), expect!["error: generate: repetition_penalty is 0, expected above 0"]).await;
    check("SELECT generate('letters', 'jaws', 'many')", expect!["error: generate: max_tokens is of type text, expected an integer"]).await;
    check(
        "SELECT generate('letters', 'jaws', temperature => 1.0)",
        expect!["error: Error during planning: Missing required parameter 'max_tokens'"],
    )
    .await;
}
