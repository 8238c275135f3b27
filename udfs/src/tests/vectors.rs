//! Vectors: from text, their distances, and operators.

use super::*;

#[tokio::test]
async fn vectors_from_text() {
    check(
        "SELECT vector_in(v, 2) FROM (VALUES ('[1,2]'), (NULL)) t(v)",
        expect![[r#"
        [1.0, 2.0]
        NULL"#]],
    )
    .await;
    check("SELECT arrow_typeof(vector_in('[1,2,3]')), vector_dims(vector_in('[1,2,3]'))", expect!["FixedSizeList(3 x Float32) | 3"]).await;
    check("SELECT arrow_typeof(ARRAY[1, 2]::vector(2))", expect!["FixedSizeList(2 x Float32)"]).await;
    check("SELECT vector_in('[1,2,3]', 2)", expect!["error: expected 2 dimensions, not 3"]).await;
    check(
        "SELECT vector_in('[1,x]')",
        expect![[
            r#"error: invalid input syntax for type vector: "[1,x]": "x" is not a number; expected numbers in brackets, for example [1,2,3]"#
        ]],
    )
    .await;
    check("SELECT vector_in('[1]', 0)", expect!["error: vector_in: n is 0, expected 1 to 16000"]).await;
    check(
        "SELECT vector_in(v), halfvec_in(v), vector_dims(vector_in(v)), vector_in(v) <-> '[1,1]' FROM (VALUES ('[1,2]'), (NULL)) t(v)",
        expect![[r#"
        [1.0, 2.0] | [1, 2] | 2 | 1.0
        NULL | NULL | NULL | NULL"#]],
    )
    .await;
    check("SELECT vector_in(NULL), vector_dims(vector_in(ARRAY[1, 2, 3]))", expect!["NULL | 3"]).await;
    check(
        "SELECT vector_in(v) FROM (VALUES ('[1]'), ('[1,x]')) t(v)",
        expect![[
            r#"error: invalid input syntax for type vector: "[1,x]": "x" is not a number; expected numbers in brackets, for example [1,2,3]"#
        ]],
    )
    .await;
    check("SELECT vector_in(v) FROM (VALUES (ARRAY[]::real[])) t(v)", expect!["error: vector must have at least 1 dimension"]).await;
    check(
        "SELECT vector_in('[1,2]', n) FROM (VALUES (2)) t(n)",
        expect!["error: vector_in: n must be a constant, because it decides the type of the result: vector_in(text, 384)"],
    )
    .await;
}

#[tokio::test]
async fn distances_of_every_layout() {
    check(
        "SELECT l2_distance(v, '[0,0]'), l2_distance(ARRAY[0, 0], v), cosine_distance(v, ARRAY[1.5, 0.0]), inner_product(v, v),
            negative_inner_product(v, v), l1_distance(v, vector_in('[1,1]')), vector_norm(v), l2_normalize(v)
            FROM (SELECT vector_in(t, 2) AS v FROM (VALUES ('[3,4]'), ('[0,0]'), (NULL)) u(t))",
        expect![[r#"
            5.0 | 5.0 | 0.4 | 25.0 | -25.0 | 5.0 | 5.0 | [0.6, 0.8]
            0.0 | 0.0 | NaN | 0.0 | -0.0 | 2.0 | 0.0 | [0.0, 0.0]
            NULL | NULL | NULL | NULL | NULL | NULL | NULL | NULL"#]],
    )
    .await;
    check("SELECT l2_distance('[1,2,3]', '[1,2,3,4]')", expect!["error: different vector dimensions 3 and 4"]).await;
    check(
        "SELECT l2_distance(vector_in('[1,2,3]'), v) FROM (SELECT vector_in(t, 4) AS v FROM (VALUES ('[1,2,3,4]')) u(t)) WHERE false",
        expect!["error: different vector dimensions 3 and 4"],
    )
    .await;
    check("SELECT vector_norm(ARRAY[1, NULL, 3])", expect!["error: a vector must not contain NULL, found one at position 2 of 3"]).await;
    check("SELECT l2_distance(1, '[1]')", expect!["error: l2_distance: left is of type bigint, expected a vector or a list of numbers"])
        .await;
    check(
        "SELECT l2_normalize(NULL), vector_dims(NULL), l2_distance(NULL, '[1]'), l2_normalize(ARRAY[0, 5])",
        expect!["NULL | NULL | NULL | [0.0, 1.0]"],
    )
    .await;
}

#[tokio::test]
async fn vector_operators() {
    check(
        "SELECT t <-> '[0,0]', '[2,0]' <=> t, t <#> ARRAY[1, 1], t <-> NULL FROM (SELECT vector_in('[3,4]', 2) AS t)",
        expect!["5.0 | 0.4 | -7.0 | NULL"],
    )
    .await;
    check(
        "SELECT t FROM (SELECT vector_in(v, 1) AS t FROM (VALUES ('[5]'), ('[1]'), ('[3]')) u(v)) ORDER BY t <-> '[2.5]' LIMIT 2",
        expect![[r#"
        [3.0]
        [1.0]"#]],
    )
    .await;
    check("SELECT ARRAY[1, 2] <=> '[1,2,3]'", expect!["error: different vector dimensions 2 and 3"]).await;
    check(
        "SELECT vector_in('[1,2]') <-> '[1;2]'",
        expect![[
            r#"error: invalid input syntax for type vector: "[1;2]": "1;2" is not a number; expected numbers in brackets, for example [1,2,3]"#
        ]],
    )
    .await;
    check("SELECT 1 <=> 1", expect!["error: operator does not exist: bigint <=> bigint; it is the cosine distance of two vectors; for null-safe equality write IS NOT DISTINCT FROM"]).await;
    check(
        "SELECT 'a' <-> 'b'",
        expect!["error: operator does not exist: text <-> text; at least one side must be a vector, for example '[1,2,3]'::vector(3)"],
    )
    .await;
    check(
        "SELECT ARRAY['a'] <#> '[1]'",
        expect!["error: operator does not exist: text[] <#> text; at least one side must be a vector, for example '[1,2,3]'::vector(3)"],
    )
    .await;
    check("SELECT 1 + 1, ARRAY[1] @> ARRAY[1]", expect!["2 | true"]).await;
}

#[tokio::test]
async fn a_parameter_beside_an_operator_is_a_vector_or_its_text() {
    let context = session(Arc::new(Letters::default()));
    let plan = context.state().create_logical_plan("SELECT vector_in('[3,4]') <-> $1").await.expect("planned");
    let types = plan.get_parameter_types().expect("typed");
    assert_eq!(types.get("$1"), Some(&Some(crate::vector::vector_type(2))));
    let frame = context.execute_logical_plan(plan).await.expect("a frame");
    let frame = frame.with_param_values(vec![ScalarValue::from("[0,0]")]).expect("bound");
    let batches = frame.collect().await.expect("rows");
    assert_eq!(array_value_to_string(batches[0].column(0), 0).expect("a number"), "5.0");
    let plan = context.state().create_logical_plan("SELECT ARRAY[3.0, 4.0] <-> $1").await.expect("planned");
    assert_eq!(plan.get_parameter_types().expect("typed").get("$1"), Some(&Some(arrow::datatypes::DataType::Utf8)));
}
