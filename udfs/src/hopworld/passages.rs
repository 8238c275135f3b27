//! The corpus: one short passage per entity.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::bm25::Index;
use super::options::{Error, Result, WorldOptions};
use super::random::Random;
use super::relations::{OPENING_SENTENCES, Relation, fill};
use super::world::{EntityId, EntityKind, Lookup, World};

const CITY_REMARKS: [&str; 8] = [
    "{s} stands on a wide river.",
    "{s} is known for its old harbor.",
    "{s} has a large university.",
    "{s} is famous for glass and silk.",
    "{s} sits between two hills.",
    "{s} holds a fair every spring.",
    "{s} has a long stone bridge.",
    "{s} is known for its bakers.",
];
const COUNTRY_REMARKS: [&str; 6] = [
    "{s} exports copper and wool.",
    "{s} has high mountains in the north.",
    "{s} is known for its lakes.",
    "{s} has mild winters.",
    "{s} grows tea and barley.",
    "{s} keeps many old forests.",
];

/// Columns of [`passages`]: `id`, `title` (the entity's name) and `contents` (two to four sentences, the first of which opens with
/// the name), all text and never NULL.
pub fn passages_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![text("id"), text("title"), text("contents")]))
}

/// One passage per entity of the world: countries, cities, people, companies, films, books.
///
/// # Errors
/// [`Error::InvalidOption`] for an option out of its range.
pub fn passages(options: &WorldOptions) -> Result<RecordBatch> {
    options.validate()?;
    let corpus = Corpus::new(World::generate(options));
    let (mut id, mut title, mut contents) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
    for passage in &corpus.passages {
        id.append_value(corpus.id(passage.entity));
        title.append_value(corpus.world.name(passage.entity));
        contents.append_value(&passage.contents);
    }
    let columns = vec![Arc::new(id.finish()) as _, Arc::new(title.finish()) as _, Arc::new(contents.finish()) as _];
    RecordBatch::try_new(passages_schema(), columns).map_err(|error| Error::Batch(error.to_string()))
}

/// A world, its passages and a search over them. The passage of an entity has the entity's number.
pub(super) struct Corpus {
    pub(super) world: World,
    pub(super) passages: Vec<Passage>,
    pub(super) index: Index,
}

pub(super) struct Passage {
    pub(super) entity: EntityId,
    /// The sentences with the relation each states; None for a remark that answers nothing.
    sentences: Vec<(Option<Relation>, String)>,
    pub(super) contents: String,
}

impl Corpus {
    pub(super) fn new(world: World) -> Self {
        let mut random = Random::stream(world.seed, "passages");
        let passages: Vec<Passage> = (0..world.entities.len()).map(|entity| Passage::write(&world, entity, &mut random)).collect();
        let index = Index::new(passages.iter().map(|passage| passage.contents.as_str()));
        Self { world, passages, index }
    }

    /// "train-7-film-003": unique over all worlds of default or equal size.
    pub(super) fn id(&self, entity: EntityId) -> String {
        let kind = self.world.entities[entity].kind;
        let number = entity - self.world.of(kind).start;
        format!("{}-{}-{}-{number:03}", self.world.split, self.world.seed, kind.name())
    }

    /// The sentence that states a fact.
    pub(super) fn evidence(&self, lookup: Lookup) -> &str {
        let sentences = &self.passages[lookup.entity].sentences;
        let stated = sentences.iter().find(|(relation, _)| *relation == Some(lookup.relation));
        stated.map(|(_, text)| text.as_str()).expect("a passage states every fact of its entity")
    }
}

impl Passage {
    fn write(world: &World, entity: EntityId, random: &mut Random) -> Self {
        let subject = world.name(entity);
        let mut facts: Vec<Option<Relation>> = world.entities[entity].facts.iter().map(|(relation, _)| Some(*relation)).collect();
        let remarks: &[&str] = match world.entities[entity].kind {
            EntityKind::City => &CITY_REMARKS,
            EntityKind::Country => &COUNTRY_REMARKS,
            _ => &[],
        };
        facts.extend((!remarks.is_empty()).then_some(None));
        random.shuffle(&mut facts);
        let mut sentences = Vec::with_capacity(facts.len());
        for relation in facts {
            let text = match relation {
                Some(relation) => fact_sentence(world, Lookup { entity, relation }, sentences.is_empty(), random),
                None => fill(random.pick(remarks), subject, ""),
            };
            sentences.push((relation, text));
        }
        let contents = sentences.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ");
        Self { entity, sentences, contents }
    }
}

fn fact_sentence(world: &World, lookup: Lookup, opening: bool, random: &mut Random) -> String {
    let templates = &lookup.relation.wording().sentences;
    let choice = if opening { &templates[..OPENING_SENTENCES] } else { &templates[..] };
    let object = world.object(lookup).map(|object| world.text(object)).expect("the relation comes from the entity's own facts");
    fill(random.pick(choice), world.name(lookup.entity), &object)
}
