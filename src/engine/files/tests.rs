//! Where records begin and end, whatever the pieces in which a file comes.

use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::json::{elements, members, unquoted};
use super::jsonl::Cutter;
use super::rows::OnError;
use super::{csv, jsonl};

/// Line and text of each record, or the error.
fn records(text: &[u8]) -> Result<Vec<String>, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text).expect("a temporary file is writable");
    let opened = super::open_text(file.path()).expect("it is there");
    let mut found = Vec::new();
    let mut blocks = jsonl::Blocks::new(file.path(), opened, OnError::Stop).map_err(|error| error.to_string())?;
    let result = jsonl::for_each_record(&mut blocks, |record| {
        found.push(record.trim().to_owned());
        Ok(true)
    });
    result.map(|()| found).map_err(|error| error.to_string())
}

/// Any JSON object, with brackets, quotes and line breaks in its strings.
fn objects() -> impl Strategy<Value = Value> {
    let text = r#"[a-zé\[\]{}",:\\ \n]{0,8}"#;
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from), text.prop_map(Value::from)];
    let value = leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map(text, value, 0..4).prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Members and elements are those that serde_json reads, and nothing of them is lost.
    #[test]
    fn values_are_those_of_serde_json(object in objects(), pretty in any::<bool>()) {
        let text = if pretty { format!("{object:#}") } else { object.to_string() };
        let mut read = serde_json::Map::new();
        members(&text, |key, value| {
            read.insert(unquoted(key)?.into_owned(), serde_json::from_str(value).expect("each value is JSON"));
            Ok(())
        }).expect("an object has members");
        prop_assert_eq!(Value::Object(read), object.clone());
        let array = json!([object, object]).to_string();
        let mut count = 0;
        elements(&array, |element| {
            assert_eq!(serde_json::from_str::<Value>(element).expect("each element is JSON"), object);
            count += 1;
            Ok(())
        }).expect("an array has elements");
        prop_assert_eq!(count, 2);
    }

    /// A text with a piece cut out is read as serde_json reads it: as an object or not at all.
    #[test]
    fn broken_text_is_refused(object in objects(), from in 0usize..40, length in 1usize..4) {
        let text: String = object.to_string().chars().enumerate().filter(|(at, _)| !(from..from + length).contains(at)).map(|(_, c)| c).collect();
        let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&text).is_ok();
        prop_assert_eq!(members(&text, |_, _| Ok(())).is_ok(), is_object, "{}", text);
    }

    /// One array, its elements on lines of their own or not, gives the records that one object a line gives.
    #[test]
    fn an_array_has_the_records_of_its_lines(objects in prop::collection::vec(objects(), 0..6), pretty in any::<bool>()) {
        let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let array = Value::from(objects.clone());
        let array = if pretty { format!("{array:#}") } else { array.to_string() };
        let parse = |records: Vec<String>| -> Vec<Value> { records.iter().map(|record| serde_json::from_str(record).expect("JSON")).collect() };
        prop_assert_eq!(parse(records(lines.as_bytes()).expect("lines")), objects.clone());
        prop_assert_eq!(parse(records(array.as_bytes()).expect("array")), objects);
    }

    /// Records come out whole wherever a file is cut into pieces.
    #[test]
    fn pieces_do_not_matter(objects in prop::collection::vec(objects(), 1..5), cuts in prop::collection::vec(0usize..400, 0..6), is_array in any::<bool>()) {
        let text = if is_array { Value::from(objects.clone()).to_string() } else { objects.iter().map(|object| format!("{object}\r\n")).collect() };
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([text.len()]).collect();
        ends.sort_unstable();
        let mut cutter = if is_array { Cutter::array() } else { Cutter::lines() };
        let (mut found, mut consumed) = (Vec::new(), 0);
        for end in ends {
            let piece = &text.as_bytes()[consumed..end];
            let records = cutter.cut(piece, end == text.len()).expect("whole records");
            found.extend(records.into_iter().map(|record| serde_json::from_slice::<Value>(&piece[record.bytes]).expect("JSON")));
            consumed += cutter.take_consumed();
        }
        prop_assert_eq!(found, objects);
    }
}

#[test]
fn csv_records_know_their_lines() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let long = "y".repeat(3 << 20);
    write!(file, "a,b\n\n1,\"x\n\n,\"\n2,{long}\n\r\n3,\"\"\"z\"\"\"").expect("a temporary file is writable");
    let opened = super::open_text(file.path()).expect("it is there");
    let mut blocks = csv::Blocks::new(file.path(), opened, Default::default()).expect("a header");
    assert_eq!(blocks.header(), Some(["a".to_owned(), "b".to_owned()].as_slice()));
    let mut found = Vec::new();
    while let Some(block) = blocks.next().expect("whole records") {
        found.extend(
            block.records().map(|(line, fields)| (line, fields.expect("UTF-8").iter().map(|field| field.len()).collect::<Vec<_>>())),
        );
    }
    assert_eq!(found, [(3, vec![1, 4]), (6, vec![1, 3 << 20]), (8, vec![1, 3])]);
}
