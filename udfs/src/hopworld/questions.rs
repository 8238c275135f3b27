//! Questions about a world: chains of one to three relations, and comparisons of two entities.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Int32Builder, ListBuilder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::options::{Error, QuestionMix, QuestionsOptions, Result};
use super::passages::Corpus;
use super::question_forms::{COMPARISONS, Chain, ONE_HOP, THREE_HOP, TWO_HOP};
use super::random::Random;
use super::world::{EntityId, EntityKind, Lookup, Object, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionKind {
    OneHop,
    TwoHop,
    ThreeHop,
    Comparison,
}

impl QuestionKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            QuestionKind::OneHop => "one_hop",
            QuestionKind::TwoHop => "two_hop",
            QuestionKind::ThreeHop => "three_hop",
            QuestionKind::Comparison => "comparison",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) kind: QuestionKind,
    pub(super) text: String,
    /// What to look up, in order. In a chain each entity is the object of the lookup before; in a comparison the two are side by side.
    pub(super) lookups: Vec<Lookup>,
    pub(super) answer: String,
}

/// Columns of [`questions`]: `id`; `question`; `golden_answers` (one text); `kind` (one_hop, two_hop, three_hop, comparison); `hops`
/// (passages needed, 1 to 3; 2 for a comparison); `gold_ids` (the supporting passages in hop order). Never NULL.
pub fn questions_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, false);
    let texts = |name| Field::new_list(name, Field::new_list_field(DataType::Utf8, true), false);
    Arc::new(Schema::new(vec![
        text("id"),
        text("question"),
        texts("golden_answers"),
        text("kind"),
        Field::new("hops", DataType::Int32, false),
        texts("gold_ids"),
    ]))
}

/// Different questions about one world, each with one short answer that its last gold passage states (or, for a comparison, one of
/// the two names).
///
/// # Errors
/// [`Error::InvalidOption`] for an option out of its range, [`Error::TooManyQuestions`] if the world does not have `count` of them.
pub fn questions(options: &QuestionsOptions) -> Result<RecordBatch> {
    options.validate()?;
    let corpus = Corpus::new(World::generate(&options.world));
    let (mut id, mut text, mut kind) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
    let (mut golden_answers, mut gold_ids) = (ListBuilder::new(StringBuilder::new()), ListBuilder::new(StringBuilder::new()));
    let mut hops = Int32Builder::new();
    for (number, question) in draw_questions(&corpus.world, options.count, options.seed, &options.mix)?.iter().enumerate() {
        id.append_value(question_id(&corpus.world, options.seed, number));
        text.append_value(&question.text);
        golden_answers.append_value([Some(&question.answer)]);
        kind.append_value(question.kind.name());
        hops.append_value(question.lookups.len() as i32);
        gold_ids.append_value(question.lookups.iter().map(|lookup| Some(corpus.id(lookup.entity))));
    }
    RecordBatch::try_new(
        questions_schema(),
        vec![
            Arc::new(id.finish()),
            Arc::new(text.finish()),
            Arc::new(golden_answers.finish()),
            Arc::new(kind.finish()),
            Arc::new(hops.finish()),
            Arc::new(gold_ids.finish()),
        ],
    )
    .map_err(|error| Error::Batch(error.to_string()))
}

/// "train-7-q0-0012": split, world, question seed, number.
pub(super) fn question_id(world: &World, seed: u64, number: usize) -> String {
    format!("{}-{}-q{seed}-{number:04}", world.split, world.seed)
}

pub(super) fn draw_questions(world: &World, count: usize, seed: u64, mix: &QuestionMix) -> Result<Vec<Question>> {
    let mut random = Random::stream(world.seed, &format!("questions {seed}"));
    let kinds = [
        (QuestionKind::OneHop, mix.one_hop),
        (QuestionKind::TwoHop, mix.two_hop),
        (QuestionKind::ThreeHop, mix.three_hop),
        (QuestionKind::Comparison, mix.comparison),
    ];
    let mut texts = BTreeSet::new();
    let mut drawn = Vec::with_capacity(count);
    // A world that still has new questions soon gives one; the bound ends the search in a world that has not.
    for _ in 0..count * 20 + 1_000 {
        if drawn.len() == count {
            return Ok(drawn);
        }
        let (kind, _) = kinds[random.weighted(kinds.iter().map(|(_, weight)| *weight))];
        let question = draw_question(world, kind, &mut random);
        drawn.extend(question.filter(|question| texts.insert(question.text.clone())));
    }
    if drawn.len() == count { Ok(drawn) } else { Err(Error::TooManyQuestions { requested: count, found: drawn.len() }) }
}

fn draw_question(world: &World, kind: QuestionKind, random: &mut Random) -> Option<Question> {
    match kind {
        QuestionKind::OneHop => draw_chain(world, kind, &ONE_HOP, random),
        QuestionKind::TwoHop => draw_chain(world, kind, &TWO_HOP, random),
        QuestionKind::ThreeHop => draw_chain(world, kind, &THREE_HOP, random),
        QuestionKind::Comparison => draw_comparison(world, random),
    }
}

fn draw_chain(world: &World, kind: QuestionKind, chains: &[Chain], random: &mut Random) -> Option<Question> {
    let chain = &chains[random.weighted(chains.iter().map(|chain| chain.weight))];
    let start = draw_entity(world, chain.start, random);
    let text = random.pick(chain.templates).replace("{s}", world.name(start));
    let lookups = world.follow(start, chain.relations)?;
    let answer = world.text(world.object(*lookups.last()?)?);
    Some(Question { kind, text, lookups, answer })
}

/// None where the two lie in one decade: the years should decide clearly.
fn draw_comparison(world: &World, random: &mut Random) -> Option<Question> {
    let comparison = &COMPARISONS[random.below(COMPARISONS.len())];
    let [a, b] = [(); 2].map(|()| Lookup { entity: draw_entity(world, comparison.kind, random), relation: comparison.relation });
    let template = random.pick(comparison.templates);
    let (Object::Year(year_a), Object::Year(year_b)) = (world.object(a)?, world.object(b)?) else { return None };
    if year_a / 10 == year_b / 10 {
        return None;
    }
    let first = if year_a < year_b { a } else { b };
    Some(Question {
        kind: QuestionKind::Comparison,
        text: template.replace("{a}", world.name(a.entity)).replace("{b}", world.name(b.entity)),
        lookups: vec![a, b],
        answer: world.name(first.entity).to_owned(),
    })
}

fn draw_entity(world: &World, kind: EntityKind, random: &mut Random) -> EntityId {
    let range = world.of(kind);
    range.start + random.below(range.len())
}
