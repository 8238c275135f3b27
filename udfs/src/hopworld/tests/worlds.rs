//! Names, passages, questions and retrieval.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;

use super::super::names::{is_common, owns};
use super::super::questions::{Question, QuestionKind, draw_questions};
use super::super::relations::{OPENING_SENTENCES, Relation, fill};
use super::super::world::World;
use super::super::*;
use super::{drawn, text_lists, texts, world};

#[test]
fn train_and_test_worlds_share_no_name_and_no_coined_word() {
    let mut names = [Split::Train, Split::Test].map(|_| BTreeSet::new());
    let mut words = [Split::Train, Split::Test].map(|_| BTreeSet::new());
    for (side, split) in [Split::Train, Split::Test].into_iter().enumerate() {
        for seed in 0..60 {
            let world = World::generate(&world(seed * 7919, split));
            for entity in world.entities {
                let coined = entity.name.split(' ').filter(|word| !is_common(word)).map(str::to_owned);
                words[side].extend(coined.inspect(|word| assert!(owns(split, word), "{word} in {split}")));
                names[side].insert(entity.name);
            }
        }
    }
    assert!(names.iter().all(|names| names.len() > 8_000), "the worlds of a split differ");
    assert_eq!(names[0].intersection(&names[1]).next(), None);
    assert_eq!(words[0].intersection(&words[1]).next(), None);
}

#[test]
fn names_of_one_world_are_unique() {
    for seed in 0..20 {
        let names: Vec<String> = World::generate(&world(seed, Split::Train)).entities.into_iter().map(|entity| entity.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "seed {seed}");
    }
    let large = WorldOptions {
        num_people: 2_000,
        num_films: 2_000,
        num_books: 2_000,
        num_companies: 500,
        num_cities: 1_000,
        num_countries: 200,
        ..world(3, Split::Test)
    };
    assert_eq!(passages(&large).unwrap().num_rows(), 7_700);
}

#[test]
fn passages_are_short_and_open_with_their_title() {
    let batch = passages(&world(1, Split::Train)).unwrap();
    assert_eq!(batch.num_rows(), 192);
    assert_eq!(batch.schema(), passages_schema());
    let mut words = Vec::new();
    for (title, contents) in texts(&batch, "title").iter().zip(texts(&batch, "contents")) {
        assert!(contents.starts_with(title.as_str()), "{contents}");
        assert!((2..=4).contains(&contents.matches(". ").count().saturating_add(1)), "{contents}");
        words.push(contents.split(' ').count());
    }
    words.sort_unstable();
    println!("words per passage: p50 {} max {}", words[words.len() / 2], words[words.len() - 1]);
    assert!(words[words.len() - 1] <= 60);
}

const RELATIONS: [Relation; 15] = [
    Relation::Director,
    Relation::Star,
    Relation::ReleaseYear,
    Relation::Author,
    Relation::Editor,
    Relation::PublicationYear,
    Relation::Founder,
    Relation::Head,
    Relation::Headquarters,
    Relation::Spouse,
    Relation::Birthplace,
    Relation::Residence,
    Relation::BirthYear,
    Relation::Country,
    Relation::Capital,
];

#[test]
fn sentences_name_the_subject_before_the_object() {
    for relation in RELATIONS {
        let wording = relation.wording();
        for (number, sentence) in wording.sentences.iter().enumerate() {
            assert!(sentence.find("{s}").unwrap() < sentence.find("{o}").unwrap(), "{sentence}");
            assert_eq!(sentence.starts_with("{s}"), number < OPENING_SENTENCES, "{sentence}");
        }
        assert!(wording.rival.is_none_or(|rival| rival.wording().rival == Some(relation) && rival.object() == relation.object()));
    }
}

/// Reads the object of a relation out of a passage, knowing only the sentence templates.
fn read(contents: &str, relation: Relation, subject: &str) -> Option<String> {
    let sentences = contents.split_inclusive('.').map(str::trim);
    let templates = relation.wording().sentences.map(|template| fill(template, subject, "{o}"));
    sentences.into_iter().find_map(|sentence| {
        templates.iter().find_map(|template| {
            let (before, after) = template.split_once("{o}")?;
            let object = sentence.strip_prefix(before)?.strip_suffix(after)?;
            // "X was born in the year 1950." also fits "X was born in {o}."; names are at most two capitalised words.
            (object.split(' ').count() <= 2 && object.starts_with(|first: char| first.is_uppercase() || first.is_ascii_digit()))
                .then(|| object.to_owned())
        })
    })
}

/// Follows the gold passages of a question as text: the answer comes from reading, not from the world's facts.
fn oracle(question: &Question, golds: &[&str]) -> String {
    let mut subject = String::new();
    let mut read_values = Vec::new();
    for (lookup, (title, contents)) in question.lookups.iter().zip(golds.iter().map(|gold| gold.split_once('\t').unwrap())) {
        if question.kind != QuestionKind::Comparison && !subject.is_empty() {
            assert_eq!(subject, title, "the chain leads to the next gold passage");
        }
        assert!(question.text.contains(title) || !subject.is_empty(), "the question names its start");
        subject = read(contents, lookup.relation, title).unwrap_or_else(|| panic!("{:?} not in {contents}", lookup.relation));
        read_values.push((subject.clone(), title.to_owned()));
    }
    if question.kind == QuestionKind::Comparison { read_values.into_iter().min().unwrap().1 } else { subject }
}

#[test]
fn an_oracle_over_the_gold_passages_answers_every_question() {
    for seed in 0..5 {
        let options = QuestionsOptions { world: world(seed, Split::Test), count: 300, seed, ..QuestionsOptions::default() };
        let (asked, corpus) = (questions(&options).unwrap(), passages(&options.world).unwrap());
        let shown: BTreeMap<String, String> = texts(&corpus, "id")
            .into_iter()
            .zip(
                texts(&corpus, "title").into_iter().zip(texts(&corpus, "contents")).map(|(title, contents)| format!("{title}\t{contents}")),
            )
            .collect();
        let known = draw_questions(&World::generate(&options.world), 300, seed, &options.mix).unwrap();
        assert_eq!(texts(&asked, "question").into_iter().collect::<BTreeSet<_>>().len(), 300);
        for (row, question) in known.iter().enumerate() {
            let gold_ids = &text_lists(&asked.slice(row, 1), "gold_ids")[0];
            let golds: Vec<&str> = gold_ids.iter().map(|id| shown[id].as_str()).collect();
            assert_eq!(asked["hops"].as_primitive::<Int32Type>().value(row) as usize, golds.len());
            let golden = &text_lists(&asked.slice(row, 1), "golden_answers")[0];
            assert_eq!(golden, &[oracle(question, &golds)], "{}", question.text);
            let stated = golds[golds.len() - 1].contains(&golden[0]);
            assert!(stated || (question.kind == QuestionKind::Comparison && question.text.contains(&golden[0])));
        }
    }
}

/// BM25's first three results hold the gold passage for almost every query that a trajectory may ask, with confusers beside it.
#[test]
fn search_finds_the_gold_passage_among_confusers() {
    let (mut asked, mut first, mut in_three) = (0, 0, 0);
    for seed in 0..5 {
        let (corpus, questions) = drawn(seed);
        for lookup in questions.iter().flat_map(|question| &question.lookups) {
            for query in lookup.relation.wording().queries {
                let found = corpus.index.search(&query.replace("{s}", corpus.world.name(lookup.entity)));
                let place = found.iter().position(|entity| *entity == lookup.entity).expect("the passage has the name");
                asked += 1;
                first += usize::from(place == 0);
                in_three += usize::from(place < 3);
            }
        }
    }
    println!("BM25: gold first {:.3}, in the first three {:.3} of {asked}", first as f64 / asked as f64, in_three as f64 / asked as f64);
    assert!(in_three * 1000 >= asked * 985, "{in_three} of {asked}");
}
