//! Printing and reading a statement gives it back; no text makes the parser panic.

use proptest::prelude::*;

use super::*;
use crate::ast::{Ident, ObjectName, Query};

/// Queries whose printed form sqlparser itself reads back; what is random is what is ours.
const QUERIES: &[&str] = &[
    "SELECT 1",
    "SELECT a, \"B\" FROM t WHERE a <=> $1 < 0.5 ORDER BY a LIMIT 3",
    "WITH RECURSIVE p AS (SELECT 1 UNION ALL SELECT 2) SELECT * FROM p",
    "VALUES (1, 'it''s'), (2, NULL)",
    "SELECT * FROM q CROSS JOIN LATERAL answer(q.question, agent => 'qa') AS a",
    "SELECT '[1]'::vector",
];

fn query() -> impl Strategy<Value = Box<Query>> {
    proptest::sample::select(QUERIES).prop_map(|text| match parse_one(text) {
        Statement::Query(query) => query,
        other => panic!("{other} is no query"),
    })
}

/// Names with and without need of quotes, among them reserved words.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_][a-z0-9_$]{0,6}", "[A-Za-z0-9 \"'.;é-]{1,6}", "select|from|with|using|if|model|on|primary|Policy"]
}

fn reference() -> impl Strategy<Value = String> {
    prop_oneof![name(), (name(), 0..100u32).prop_map(|(name, version)| format!("{name}@{version}"))]
}

fn ident() -> impl Strategy<Value = Ident> {
    name().prop_map(|name| crate::name::fold(Ident::with_quote('"', name)))
}

fn object_name() -> impl Strategy<Value = ObjectName> {
    proptest::collection::vec(ident(), 1..3).prop_map(ObjectName::from)
}

fn scalar() -> impl Strategy<Value = OptionValue> {
    prop_oneof![
        "[ -~é\n]{0,8}".prop_map(OptionValue::Text),
        any::<i64>().prop_map(OptionValue::Integer),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(OptionValue::Float),
        any::<bool>().prop_map(OptionValue::Boolean),
        Just(OptionValue::Null),
    ]
}

fn option_entries() -> impl Strategy<Value = Options> {
    let value = prop_oneof![scalar(), proptest::collection::vec(scalar(), 1..3).prop_map(OptionValue::List)];
    let names = name().prop_map(|name| name.to_lowercase());
    proptest::collection::btree_map(names, value, 0..4)
        .prop_map(|entries| Options::new(entries.into_iter().collect()).expect("names in a map differ"))
}

fn variable() -> impl Strategy<Value = String> {
    let part = || prop_oneof!["[a-z_]{1,6}", "[a-z é\"-]{1,4}", "tables|session|local|time|all|role|default|to|names"];
    prop_oneof![part(), (part(), part()).prop_map(|(left, right)| format!("{left}.{right}"))]
}

const TYPES: &[&str] = &["text", "int", "vector(3)", "text[]", "timestamp with time zone", "numeric(10,2)", "boolean", "double precision"];

fn column() -> impl Strategy<Value = ColumnDefinition> {
    (ident(), proptest::sample::select(TYPES), any::<bool>(), any::<bool>(), 0..4usize).prop_map(
        |(name, data_type, not_null, unique, value)| {
            let value = ["", " DEFAULT -1", " DEFAULT lower('A')", " GENERATED ALWAYS AS (f(x) + 1) STORED"][value];
            let text = format!("CREATE TABLE t (c {data_type}{value})");
            let Statement::CreateTable(mut table) = parse_one(&text) else { panic!("{text} is no table") };
            ColumnDefinition { name, not_null, unique, ..table.columns.remove(0) }
        },
    )
}

fn definition() -> impl Strategy<Value = Statement> {
    let using = proptest::option::of(query());
    let primary_key = proptest::collection::vec(ident(), 0..3);
    let columns = proptest::collection::vec(column(), 1..4);
    prop_oneof![
        (name(), any::<bool>(), "[ -~]{0,9}", using, option_entries()).prop_map(|(name, if_not_exists, source, using, options)| {
            Statement::CreateModel(CreateModel { name, if_not_exists, source, using, options })
        }),
        (name(), any::<bool>(), option_entries()).prop_map(|(name, if_not_exists, options)| Statement::CreateAgent(CreateAgent {
            name,
            if_not_exists,
            options
        })),
        (object_name(), any::<bool>(), columns, primary_key, proptest::option::of(query())).prop_map(
            |(name, if_not_exists, columns, primary_key, query)| {
                Statement::CreateTable(CreateTable { name, if_not_exists, columns, primary_key, query })
            }
        ),
        (name(), any::<bool>(), object_name(), name(), ident(), proptest::option::of(name()), option_entries()).prop_map(
            |(name, if_not_exists, table, using, column, operator_class, options)| {
                Statement::CreateIndex(CreateIndex { name: Some(name), if_not_exists, table, using, column, operator_class, options })
            }
        ),
        (object_name(), name(), ident()).prop_map(|(table, using, column)| {
            let options = Options::default();
            Statement::CreateIndex(CreateIndex { name: None, if_not_exists: false, table, using, column, operator_class: None, options })
        }),
        (reference(), any::<bool>()).prop_map(|(name, if_exists)| Statement::DropModel(DropModel { name, if_exists })),
        (name(), any::<bool>()).prop_map(|(name, if_exists)| Statement::DropAgent(DropAgent { name, if_exists })),
        (proptest::collection::vec(object_name(), 1..3), any::<bool>())
            .prop_map(|(names, if_exists)| Statement::DropTable(DropTable { names, if_exists })),
        (object_name(), any::<bool>()).prop_map(|(name, if_exists)| Statement::DropIndex(DropIndex { name, if_exists })),
        reference().prop_map(|name| Statement::DescribeModel(DescribeModel { name })),
        name().prop_map(|name| Statement::DescribeAgent(DescribeAgent { name })),
        object_name().prop_map(|name| Statement::DescribeTable(DescribeTable { name })),
    ]
}

fn work() -> impl Strategy<Value = Statement> {
    let columns = || proptest::collection::vec(ident(), 0..3);
    let train =
        (proptest::sample::select(&TrainMethod::ALL[..]), name(), reference(), query(), proptest::option::of(query()), option_entries());
    let source = prop_oneof![
        (object_name(), columns()).prop_map(|(table, columns)| CopySource::Table(table, columns)),
        query().prop_map(CopySource::Query),
    ];
    prop_oneof![
        (object_name(), name(), query(), option_entries())
            .prop_map(|(into, agent, query, options)| { Statement::GenerateRollouts(GenerateRollouts { into, agent, query, options }) }),
        train.prop_map(|(method, model, base, query, validate, options)| {
            Statement::Train(Train { method, model, base, query, validate, options })
        }),
        (object_name(), columns(), "[ -~]{0,9}", option_entries())
            .prop_map(|(table, columns, path, options)| Statement::CopyFrom(CopyFrom { table, columns, path, options })),
        (source, "[ -~]{0,9}", option_entries()).prop_map(|(source, path, options)| Statement::CopyTo(CopyTo { source, path, options })),
        (object_name(), columns(), query()).prop_map(|(table, columns, source)| Statement::Insert(Insert {
            table,
            columns,
            source,
            returning: vec![]
        })),
        (variable(), proptest::collection::vec(scalar(), 1..3), any::<bool>()).prop_map(|(variable, values, local)| Statement::Set(Set {
            variable,
            values,
            local
        })),
        variable().prop_map(|variable| Statement::Show(Show { variable })),
        variable().prop_map(|variable| Statement::Reset(Reset { variable })),
    ]
}

fn statement() -> impl Strategy<Value = Statement> {
    let plain = prop_oneof![definition(), work(), query().prop_map(Statement::Query)].boxed();
    let explained = (any::<bool>(), any::<bool>(), proptest::option::of("[a-z]{1,5}"), plain.clone()).prop_map(
        |(analyze, verbose, format, statement)| Statement::Explain(Explain { analyze, verbose, format, statement: Box::new(statement) }),
    );
    prop_oneof![4 => plain, 1 => explained]
}

proptest! {
    /// What is printed reads as the same statement, alone and among others.
    #[test]
    fn printing_and_reading_gives_the_statement_back(left in statement(), right in statement()) {
        let text = format!("{left}; {right};");
        prop_assert_eq!(parse(&text), Ok(vec![left, right]), "{}", text);
    }

    /// No text makes the parser panic, and a place in an error is a place in the text.
    #[test]
    fn any_words_give_statements_or_an_error(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..14)) {
        let text = words.join(" ");
        if let Err(error) = parse(&text) {
            let length = text.chars().count();
            prop_assert!(error.position(&text).is_none_or(|position| (1..=length + 1).contains(&position)), "{}", text);
        }
    }
}

/// Enough to get far into every statement by chance.
const WORDS: &[&str] = &[
    "CREATE", "DROP", "MODEL", "AGENT", "TABLE", "INDEX", "TRAIN", "DPO", "GENERATE", "ROLLOUTS", "INTO", "USING", "FROM", "WITH", "COPY",
    "TO", "SET", "SHOW", "EXPLAIN", "INSERT", "VALUES", "SELECT", "IF", "NOT", "EXISTS", "ON", "AS", "BEGIN", "(", ")", ",", ";", "=",
    "=>", "<=>", "<->", "::", "@", ".", "[", "]", "-", "'x'", "\"X\"", "m", "1", "2.5", "$1", "vector", "NULL", "'", "\n", "é",
];
