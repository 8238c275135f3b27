//! A world: entities and the facts between them, without any wording.

use std::ops::Range;

use super::names::Namer;
use super::options::{Split, WorldOptions};
use super::random::Random;
use super::relations::Relation;

/// Index into [`World::entities`].
pub(super) type EntityId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntityKind {
    Country,
    City,
    Person,
    Company,
    Film,
    Book,
}

impl EntityKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            EntityKind::Country => "country",
            EntityKind::City => "city",
            EntityKind::Person => "person",
            EntityKind::Company => "company",
            EntityKind::Film => "film",
            EntityKind::Book => "book",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Entity(EntityId),
    Year(u16),
}

#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) kind: EntityKind,
    pub(super) name: String,
    /// At most one per relation.
    pub(super) facts: Vec<(Relation, Object)>,
}

/// One thing to look up: the object of `relation` of `entity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    pub(super) entity: EntityId,
    pub(super) relation: Relation,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) split: Split,
    pub(super) entities: Vec<Entity>,
    ranges: [(EntityKind, Range<EntityId>); 6],
}

/// Everybody is grown up before the first work appears, and all years share a century: what a comparison turns on is the decade.
const BIRTH_YEARS: (usize, usize) = (1900, 1949);
const WORK_YEARS: (usize, usize) = (1970, 1999);

impl World {
    /// The options must have been validated.
    pub(super) fn generate(options: &WorldOptions) -> Self {
        let mut namer = Namer::new(options.seed, options.split);
        let mut titles = namer.titles(options.num_films + options.num_books);
        let books = titles.split_off(options.num_films);
        let named = [
            (EntityKind::Country, namer.countries(options.num_countries)),
            (EntityKind::City, namer.cities(options.num_cities)),
            (EntityKind::Person, namer.people(options.num_people)),
            (EntityKind::Company, namer.companies(options.num_companies)),
            (EntityKind::Film, titles),
            (EntityKind::Book, books),
        ];
        let mut entities = Vec::new();
        let ranges = named.map(|(kind, names)| {
            let start = entities.len();
            entities.extend(names.into_iter().map(|name| Entity { kind, name, facts: Vec::new() }));
            (kind, start..entities.len())
        });
        let mut world = Self { seed: options.seed, split: options.split, entities, ranges };
        world.draw_facts(&mut Random::stream(options.seed, "facts"));
        world
    }

    /// All entities of a kind; they lie side by side.
    pub(super) fn of(&self, kind: EntityKind) -> Range<EntityId> {
        self.ranges.iter().find(|(other, _)| *other == kind).map(|(_, range)| range.clone()).expect("every kind has a range")
    }

    pub(super) fn name(&self, entity: EntityId) -> &str {
        &self.entities[entity].name
    }

    pub(super) fn object(&self, lookup: Lookup) -> Option<Object> {
        let facts = &self.entities[lookup.entity].facts;
        facts.iter().find(|(relation, _)| *relation == lookup.relation).map(|(_, object)| *object)
    }

    /// An object as a reader would write it.
    pub(super) fn text(&self, object: Object) -> String {
        match object {
            Object::Entity(entity) => self.name(entity).to_owned(),
            Object::Year(year) => year.to_string(),
        }
    }

    /// Follows a chain of relations: the lookups in order. None if a fact is missing (one person of an odd number is unmarried).
    pub(super) fn follow(&self, start: EntityId, relations: &[Relation]) -> Option<Vec<Lookup>> {
        let mut lookups: Vec<Lookup> = Vec::with_capacity(relations.len());
        for &relation in relations {
            let entity = match lookups.last() {
                None => start,
                Some(&last) => match self.object(last)? {
                    Object::Entity(entity) => entity,
                    Object::Year(_) => return None,
                },
            };
            let lookup = Lookup { entity, relation };
            self.object(lookup)?;
            lookups.push(lookup);
        }
        Some(lookups)
    }

    fn draw_facts(&mut self, random: &mut Random) {
        self.draw_geography(random);
        self.draw_lives(random);
        self.draw_marriages(random);
        self.draw_works(random);
    }

    /// The first cities are the capitals, one for each country.
    fn draw_geography(&mut self, random: &mut Random) {
        let countries = self.of(EntityKind::Country);
        for (index, city) in self.of(EntityKind::City).enumerate() {
            let capital = index < countries.len();
            let country = if capital { countries.start + index } else { pick(random, &countries) };
            self.state(city, Relation::Country, Object::Entity(country));
            if capital {
                self.state(country, Relation::Capital, Object::Entity(city));
            }
        }
    }

    /// Nobody lives where they were born: the two relations must not give the same answer.
    fn draw_lives(&mut self, random: &mut Random) {
        let cities = self.of(EntityKind::City);
        for person in self.of(EntityKind::Person) {
            let (birthplace, residence) = pick_two(random, &cities);
            self.state(person, Relation::Birthplace, Object::Entity(birthplace));
            self.state(person, Relation::BirthYear, year(random, BIRTH_YEARS));
            self.state(person, Relation::Residence, Object::Entity(residence));
        }
    }

    fn draw_marriages(&mut self, random: &mut Random) {
        let mut people: Vec<EntityId> = self.of(EntityKind::Person).collect();
        random.shuffle(&mut people);
        for couple in people.chunks_exact(2) {
            self.state(couple[0], Relation::Spouse, Object::Entity(couple[1]));
            self.state(couple[1], Relation::Spouse, Object::Entity(couple[0]));
        }
    }

    fn draw_works(&mut self, random: &mut Random) {
        let (people, cities) = (self.of(EntityKind::Person), self.of(EntityKind::City));
        let made = [
            (EntityKind::Film, Relation::Director, Relation::Star, Some(Relation::ReleaseYear)),
            (EntityKind::Book, Relation::Author, Relation::Editor, Some(Relation::PublicationYear)),
            (EntityKind::Company, Relation::Founder, Relation::Head, None),
        ];
        for (kind, maker, other, published) in made {
            for work in self.of(kind) {
                let (first, second) = pick_two(random, &people);
                self.state(work, maker, Object::Entity(first));
                self.state(work, other, Object::Entity(second));
                match published {
                    Some(relation) => self.state(work, relation, year(random, WORK_YEARS)),
                    None => self.state(work, Relation::Headquarters, Object::Entity(pick(random, &cities))),
                }
            }
        }
    }

    fn state(&mut self, entity: EntityId, relation: Relation, object: Object) {
        self.entities[entity].facts.push((relation, object));
    }
}

fn pick(random: &mut Random, range: &Range<EntityId>) -> EntityId {
    range.start + random.below(range.len())
}

/// Two different entities; the range has at least two.
fn pick_two(random: &mut Random, range: &Range<EntityId>) -> (EntityId, EntityId) {
    let first = random.below(range.len());
    let second = (first + 1 + random.below(range.len() - 1)) % range.len();
    (range.start + first, range.start + second)
}

fn year(random: &mut Random, (first, last): (usize, usize)) -> Object {
    Object::Year(random.between(first, last) as u16)
}
