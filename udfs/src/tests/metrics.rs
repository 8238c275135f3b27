//! Metrics, rewards and scores of searches, over columns and in groups.

use super::*;

#[tokio::test]
async fn answer_metrics_over_columns_and_nulls() {
    check(
        "SELECT exact_match(p, g), f1_score(p, g), precision_score(p, g), recall_score(p, g), accuracy(p, g) FROM (VALUES
            (1, 'Paris', ARRAY['Lyon', 'paris']), (2, NULL, ARRAY['Lyon']), (3, 'Paris', NULL), (4, 'Paris', ARRAY[NULL]::text[]),
            (5, 'in Paris', ARRAY[NULL, 'Paris'])) t(id, p, g) ORDER BY id",
        expect![[r#"
            1.0 | 1.0 | 1.0 | 1.0 | 1.0
            0.0 | 0.0 | 0.0 | 0.0 | 0.0
            NULL | NULL | NULL | NULL | NULL
            NULL | NULL | NULL | NULL | NULL
            0.0 | 0.6666666666666666 | 0.5 | 1.0 | 1.0"#]],
    )
    .await;
    check(
        "SELECT exact_match(p, 'the Paris') FROM (VALUES ('paris'), (NULL), ('Lyon')) t(p)",
        expect![[r#"
        1.0
        0.0
        0.0"#]],
    )
    .await;
    check("SELECT exact_match('x', NULL), f1_score(NULL, 'x'), exact_match(golds => 'x', prediction => 'X')", expect!["NULL | 0.0 | 1.0"])
        .await;
    check("SELECT exact_match('x')", expect!["error: wrong number of arguments: exact_match(prediction, golds[, variant]) was given 1"])
        .await;
    check(
        "SELECT exact_match(arrow_cast(p, 'Dictionary(Int32, Utf8)'), arrow_cast('Paris', 'LargeUtf8')) FROM (VALUES ('paris')) t(p)",
        expect!["1.0"],
    )
    .await;
    check("SELECT exact_match(1, 'x')", expect!["error: exact_match: prediction is of type bigint, expected text"]).await;
}

#[tokio::test]
async fn passage_metrics() {
    check(
        "SELECT recall_at_k(ARRAY[3, 1, 2], ARRAY[1, 9], k) FROM (VALUES (1), (2), (NULL)) t(k)",
        expect![[r#"
        0.0
        0.5
        NULL"#]],
    )
    .await;
    check("SELECT recall_at_k(NULL, ARRAY['a'], 3), recall_at_k(ARRAY['a'], NULL, 3), mrr(NULL, ARRAY['a']), mrr(ARRAY['a'], ARRAY[]::text[])", expect!["0.0 | NULL | 0.0 | NULL"])
        .await;
    check("SELECT recall_at_k(ARRAY['a'], ARRAY['a'], 0)", expect!["error: recall_at_k: k is 0, expected 1 or more"]).await;
    check(
        "SELECT recall_at_k(ARRAY['a'], ARRAY['a'], 1.5)",
        expect!["error: recall_at_k: k is of type double precision, expected an integer"],
    )
    .await;
}

#[tokio::test]
async fn ci95_by_group() {
    check("SELECT g, round(ci95(x), 4) FROM (VALUES (1, 0.0), (1, 1.0), (2, 1.0), (3, 2.0), (3, 2.0), (3, NULL)) t(g, x) GROUP BY g ORDER BY g", expect![[r#"
        1 | 0.98
        2 | NULL
        3 | 0.0"#]])
        .await;
    check("SELECT ci95(DISTINCT x) FROM (VALUES (1.0), (2.0), (2.0)) t(x)", expect!["0.979981992270027"]).await;
}

#[tokio::test]
async fn search_scores() {
    check(
        "SELECT uct_score(0.5, v, 4, 1.0) FROM (VALUES (1, 0), (2, 4), (3, NULL)) t(id, v) ORDER BY id",
        expect![[r#"
        inf
        1.0887050112577374
        NULL"#]],
    )
    .await;
    check("SELECT uct_score(0.5, -1, 4, 1.0)", expect!["error: uct_score: visits is -1, expected 0 or more"]).await;
    check("SELECT puct_score(0.5, 1.5, 1, 4, 1.0)", expect!["error: puct_score: prior is 1.5, expected 0 to 1"]).await;
    check("SELECT spre(1.0, 2, alpha => 1.1)", expect!["error: spre: alpha is 1.1, expected above 0 and at most 1"]).await;
}

#[tokio::test]
async fn formats_are_those_of_the_protocol() {
    check(
        "SELECT well_formed('letters', s, r), steps_well_formed('letters', s, r), format_reward('prorag', s, r), format_reward('r3rag', s, r)
            FROM (VALUES (1, ARRAY['go', 'end'], ARRAY['go on', 'end it']), (2, ARRAY['go', 'end'], ARRAY['x go on', 'end it']),
            (3, ARRAY['go'], ARRAY['go on']), (4, NULL, ARRAY['end']), (5, ARRAY['end'], NULL), (6, ARRAY[]::text[], ARRAY[]::text[])) t(id, s, r) ORDER BY id",
        expect![[r#"
            true | true | 1.0 | 0.0
            false | false | -1.0 | -0.9
            false | true | -1.0 | 0.0
            NULL | NULL | NULL | NULL
            NULL | NULL | NULL | NULL
            false | true | -1.0 | 0.0"#]],
    )
    .await;
    check(
        "SELECT steps_well_formed('letters', 'go', 'go on'), well_formed('letters', 'go', r), well_formed(NULL, 'end', 'end') FROM (VALUES ('end')) t(r)",
        expect!["true | false | NULL"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY['go', 'end'], ARRAY['go on'])",
        expect!["error: well_formed: responses is an array of 1, expected 2, one for each of the states"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY['go', 'go', 'end'], ARRAY[NULL, 'go on', 'end it']), steps_well_formed('letters', ARRAY['go', NULL], ARRAY['go on', NULL])",
        expect!["true | true"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY[NULL, 'go', 'end'], ARRAY['go on', NULL, 'end'])",
        expect!["error: well_formed: states is an array with NULL beside a response, expected the state of each response"],
    )
    .await;
    check(
        "SELECT well_formed('lettres', s, 'go on') FROM (VALUES ('go')) t(s)",
        expect![[r#"error: Execution error: unknown protocol "lettres""#]],
    )
    .await;
    check(
        "SELECT format_reward('letters', 'go', 'go on')",
        expect!["error: format_reward: protocol is 'letters', expected one of 'prorag', 'search_r1', 'r3rag'"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY['answer_generation'])",
        expect!["error: wrong number of arguments: well_formed(protocol, states, responses) was given 2"],
    )
    .await;
}

#[tokio::test]
async fn step_rewards() {
    check(
        "SELECT step_reward(s, 'prorag'), step_reward(s, 'prorag', f), step_reward(0.25, 'prorag', f, 'probability')
            FROM (VALUES (1, 0.0, true), (2, 0.0, false), (3, 0.0, NULL), (4, NULL, true)) t(id, s, f) ORDER BY id",
        expect![[r#"
            0.5 | 1.5 | 1.25
            0.5 | -1.5 | -1.75
            0.5 | 0.5 | 0.25
            NULL | NULL | 1.25"#]],
    )
    .await;
    check("SELECT step_reward(0.5, NULL, true)", expect!["NULL"]).await;
    check(
        "SELECT step_reward(1.5, 'prorag', true, 'probability')",
        expect!["error: step_reward: score is 1.5, expected 0 to 1, or scale => 'logit'"],
    )
    .await;
    check(
        "SELECT step_reward(1.5, 'prorag', true, 'logits')",
        expect!["error: step_reward: scale is 'logits', expected one of 'logit', 'probability'; did you mean 'logit'?"],
    )
    .await;
}
