//! Demonstrations as rows: one per protocol step of one trajectory, world by world, in random order within a world.

use std::sync::Arc;

use arrow::array::{Float32Builder, Int32Builder, ListBuilder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::options::{DemonstrationsOptions, Error, Result, WorldOptions};
use super::passages::Corpus;
use super::questions::{draw_questions, question_id};
use super::random::Random;
use super::trajectories::{Search, Step, Trajectory, sample};
use super::world::{EntityId, World};

/// The gold passage comes first this often, else at any other place. BM25 puts it first more often (0.98 in such a world); the other
/// places are what makes a policy read instead of copying from the first.
const GOLD_FIRST: f64 = 0.6;
/// Distractors are drawn among this many best results beside the gold passage.
const DISTRACTOR_POOL: usize = 5;

/// Columns of [`demonstrations`]; only `query` can be NULL.
///
/// - `id`, `question_id` text; `step` int: from 0, in the trajectory.
/// - `state` text: begin_reasoning, reasoning, evidence_extraction or answer_generation.
/// - `question` text; `thoughts` text: the earlier completions of the trajectory, trimmed, joined by newlines; empty at step 0.
/// - `query` text, `passages` text[]: of an evidence step, the search that it reads and its results in the order shown; else NULL, {}.
/// - `completion` text: what the policy should write, with its leading space.
/// - `quality` text: the gravest fault of the whole trajectory: clean, wasted_query, early_answer or wrong_bridge.
/// - `weight` real: `fault_weight` where the fault is committed, else 1.
pub fn demonstrations_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        text("id"),
        text("question_id"),
        Field::new("step", DataType::Int32, false),
        text("state"),
        text("question"),
        text("thoughts"),
        Field::new("query", DataType::Utf8, true),
        Field::new_list("passages", Field::new_list_field(DataType::Utf8, true), false),
        text("completion"),
        text("quality"),
        Field::new("weight", DataType::Float32, false),
    ]))
}

/// Trajectories of mixed quality over `worlds` fresh worlds (seeds from `world.seed` on), `questions_per_world` each.
///
/// Rows keep the order of the worlds, so a curriculum is a matter of order too; within a world the steps of its trajectories are mixed.
///
/// # Errors
/// [`Error::InvalidOption`] for an option out of its range, [`Error::TooManyQuestions`] if a world does not have that many.
pub fn demonstrations(options: &DemonstrationsOptions) -> Result<RecordBatch> {
    options.validate()?;
    let mut rows = Rows::default();
    for offset in 0..options.worlds as u64 {
        let seed = options.world.seed + offset;
        let corpus = Corpus::new(World::generate(&WorldOptions { seed, ..options.world.clone() }));
        demonstrate(&corpus, options, &mut rows)?;
    }
    rows.finish()
}

fn demonstrate(corpus: &Corpus, options: &DemonstrationsOptions, rows: &mut Rows) -> Result<()> {
    let questions = draw_questions(&corpus.world, options.questions_per_world, DEMONSTRATED, &options.mix)?;
    let mut random = Random::stream(corpus.world.seed, "demonstrations");
    let trajectories: Vec<Trajectory> = questions.iter().map(|question| sample(corpus, question, options, &mut random)).collect();
    for place in mixed_places(&trajectories, options, &mut random) {
        let trajectory = &trajectories[place.trajectory];
        let step = &trajectory.steps[place.step];
        let passages = step.search.as_ref().map_or_else(Vec::new, |search| results(corpus, search, options, &mut random));
        rows.append(Row {
            question_id: question_id(&corpus.world, DEMONSTRATED, place.trajectory),
            place,
            question: &questions[place.trajectory].text,
            step,
            passages: passages.iter().map(|entity| corpus.passages[*entity].contents.as_str()).collect(),
            quality: trajectory.quality.name(),
            weight: if step.fault { options.fault_weight as f32 } else { 1.0 },
        });
    }
    Ok(())
}

/// The question seed of demonstrations, far from the small numbers that people choose.
const DEMONSTRATED: u64 = 1_000_000;

/// One row to be: which step of which trajectory, for which time.
#[derive(Clone, Copy)]
struct Place {
    trajectory: usize,
    step: usize,
    repeat: usize,
}

fn mixed_places(trajectories: &[Trajectory], options: &DemonstrationsOptions, random: &mut Random) -> Vec<Place> {
    let mut places = Vec::new();
    for (trajectory, Trajectory { steps, .. }) in trajectories.iter().enumerate() {
        for (number, step) in steps.iter().enumerate() {
            let repeats = if step.search.is_some() { options.evidence_repeat } else { 1 };
            places.extend((0..repeats).map(|repeat| Place { trajectory, step: number, repeat }));
        }
    }
    random.shuffle(&mut places);
    places
}

/// What a search shows: the gold passage, unless it was not found, among others that share words with the query.
fn results(corpus: &Corpus, search: &Search, options: &DemonstrationsOptions, random: &mut Random) -> Vec<EntityId> {
    let distractors = random.between(options.distractors_min, options.distractors_max);
    if !search.found {
        return confusers(corpus, search, distractors.max(1), random);
    }
    let mut shown = confusers(corpus, search, distractors, random);
    let place = if shown.is_empty() || random.chance(GOLD_FIRST) { 0 } else { random.between(1, shown.len()) };
    shown.insert(place, search.gold);
    shown
}

fn confusers(corpus: &Corpus, search: &Search, count: usize, random: &mut Random) -> Vec<EntityId> {
    let mut pool = corpus.index.search(&search.query);
    pool.retain(|entity| *entity != search.gold);
    pool.truncate(DISTRACTOR_POOL.max(count));
    // A query whose words no other passage has still gets results: any passages.
    while pool.len() < count {
        let entity = random.below(corpus.passages.len());
        if entity != search.gold && !pool.contains(&entity) {
            pool.push(entity);
        }
    }
    random.shuffle(&mut pool);
    pool.truncate(count);
    pool
}

struct Row<'a> {
    question_id: String,
    place: Place,
    question: &'a str,
    step: &'a Step,
    passages: Vec<&'a str>,
    quality: &'static str,
    weight: f32,
}

/// Column builders in the order of the schema.
#[derive(Default)]
struct Rows {
    id: StringBuilder,
    question_id: StringBuilder,
    step: Int32Builder,
    state: StringBuilder,
    question: StringBuilder,
    thoughts: StringBuilder,
    query: StringBuilder,
    passages: ListBuilder<StringBuilder>,
    completion: StringBuilder,
    quality: StringBuilder,
    weight: Float32Builder,
}

impl Rows {
    fn append(&mut self, row: Row) {
        let Row { question_id, place, question, step, passages, quality, weight } = row;
        self.id.append_value(format!("{question_id}-s{}-{}", place.step, place.repeat));
        self.question_id.append_value(question_id);
        self.step.append_value(place.step as i32);
        self.state.append_value(step.state.name());
        self.question.append_value(question);
        self.thoughts.append_value(&step.thoughts);
        self.query.append_option(step.search.as_ref().map(|search| &search.query));
        self.passages.append_value(passages.into_iter().map(Some));
        self.completion.append_value(&step.completion);
        self.quality.append_value(quality);
        self.weight.append_value(weight);
    }

    fn finish(mut self) -> Result<RecordBatch> {
        RecordBatch::try_new(
            demonstrations_schema(),
            vec![
                Arc::new(self.id.finish()),
                Arc::new(self.question_id.finish()),
                Arc::new(self.step.finish()),
                Arc::new(self.state.finish()),
                Arc::new(self.question.finish()),
                Arc::new(self.thoughts.finish()),
                Arc::new(self.query.finish()),
                Arc::new(self.passages.finish()),
                Arc::new(self.completion.finish()),
                Arc::new(self.quality.finish()),
                Arc::new(self.weight.finish()),
            ],
        )
        .map_err(|error| Error::Batch(error.to_string()))
    }
}
