//! Checks of the generator: what it promises about names, answers, retrieval, trajectories and sizes. `--nocapture` prints the figures.

mod demonstrations;
mod worlds;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::passages::Corpus;
use super::questions::{Question, draw_questions};
use super::random::stable_hash;
use super::world::World;
use super::*;

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    batch[column].as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect()
}

fn text_lists(batch: &RecordBatch, column: &str) -> Vec<Vec<String>> {
    let lists = batch[column].as_list::<i32>();
    (0..lists.len()).map(|row| lists.value(row).as_string::<i32>().iter().map(|text| text.unwrap().to_owned()).collect()).collect()
}

fn world(seed: u64, split: Split) -> WorldOptions {
    WorldOptions { seed, split, ..WorldOptions::default() }
}

fn drawn(seed: u64) -> (Corpus, Vec<Question>) {
    let corpus = Corpus::new(World::generate(&world(seed, Split::Test)));
    let questions = draw_questions(&corpus.world, 300, 0, &QuestionMix::default()).unwrap();
    (corpus, questions)
}

/// A hash of every cell as text.
fn fingerprint(batch: &RecordBatch) -> u64 {
    let options = FormatOptions::new().with_null("NULL");
    let mut all = String::new();
    for column in batch.columns() {
        let formatter = ArrayFormatter::try_new(column, &options).unwrap();
        (0..batch.num_rows()).for_each(|row| all.push_str(&format!("{}\u{1f}", formatter.value(row))));
    }
    stable_hash(&all)
}

/// Models are trained on these bytes: a change here is a change of every published figure, and has to be meant.
#[test]
fn output_is_the_same_on_every_machine() {
    let world = world(7, Split::Train);
    let questions_options = QuestionsOptions { world: world.clone(), ..QuestionsOptions::default() };
    let demonstrations_options =
        DemonstrationsOptions { world: world.clone(), worlds: 2, evidence_repeat: 2, ..DemonstrationsOptions::default() };
    let found = [
        fingerprint(&passages(&world).unwrap()),
        fingerprint(&questions(&questions_options).unwrap()),
        fingerprint(&demonstrations(&demonstrations_options).unwrap()),
    ];
    assert_eq!(found.map(|hash| format!("{hash:016x}")), ["b8c14688076b4fd8", "c6d1511c51188119", "4cd0fb38e932a16a"]);
}

#[test]
fn options_out_of_range_are_named() {
    let bad_world = WorldOptions { num_people: 1, ..WorldOptions::default() };
    assert_eq!(passages(&bad_world).unwrap_err().to_string(), "num_people = 1 is out of range: expected 8 to 2000");
    let bad = |options: DemonstrationsOptions| demonstrations(&options).unwrap_err().to_string();
    let default = DemonstrationsOptions::default;
    assert_eq!(bad(DemonstrationsOptions { wasted: 1.5, ..default() }), "wasted = 1.5 is out of range: expected 0 to 1");
    assert_eq!(bad(DemonstrationsOptions { early_answer: f64::NAN, ..default() }), "early_answer = NaN is out of range: expected 0 to 1");
    assert_eq!(bad(DemonstrationsOptions { distractors_min: 3, ..default() }), "distractors_min = 3 is out of range: expected 0 to 2");
    let last_seed = WorldOptions { seed: u64::MAX, ..WorldOptions::default() };
    assert!(bad(DemonstrationsOptions { world: last_seed, ..default() }).starts_with("seed = "));
    let no_kind = QuestionMix { one_hop: 0.0, two_hop: 0.0, three_hop: 0.0, comparison: 0.0 };
    assert!(matches!(questions(&QuestionsOptions { mix: no_kind, ..Default::default() }), Err(Error::InvalidOption { .. })));
    let tiny =
        WorldOptions { num_people: 8, num_films: 4, num_books: 4, num_companies: 2, num_cities: 4, num_countries: 2, ..Default::default() };
    assert!(matches!(
        questions(&QuestionsOptions { world: tiny, count: 5_000, ..Default::default() }),
        Err(Error::TooManyQuestions { requested: 5_000, .. })
    ));
    assert!("dev".parse::<Split>().is_err());
}
