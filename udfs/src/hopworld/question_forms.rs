//! The forms of questions: which chains of relations are asked for, which comparisons are made, and in which words.
//!
//! In the templates `{s}` is the start of a chain, `{a}` and `{b}` are the two compared.

use super::relations::Relation::{self, *};
use super::world::EntityKind;

/// A chain of relations from one kind of entity, how often it is drawn among those of its length, and its wordings.
pub(super) struct Chain {
    pub(super) start: EntityKind,
    pub(super) relations: &'static [Relation],
    pub(super) weight: f64,
    pub(super) templates: &'static [&'static str],
}

const fn chain(start: EntityKind, relations: &'static [Relation], weight: f64, templates: &'static [&'static str]) -> Chain {
    Chain { start, relations, weight, templates }
}

pub(super) const ONE_HOP: [Chain; 15] = [
    chain(
        EntityKind::Film,
        &[Director],
        1.0,
        &["Who directed {s}?", "Who is the director of {s}?", "Which person directed {s}?", "By whom was {s} directed?"],
    ),
    chain(
        EntityKind::Film,
        &[Star],
        1.0,
        &["Who stars in {s}?", "Who is the lead actor of {s}?", "Who plays the lead role in {s}?", "Which actor leads {s}?"],
    ),
    chain(
        EntityKind::Film,
        &[ReleaseYear],
        1.0,
        &["When did {s} come out?", "In which year was {s} released?", "What is the release year of {s}?"],
    ),
    chain(
        EntityKind::Book,
        &[Author],
        1.0,
        &["Who wrote {s}?", "Who is the author of {s}?", "Which person wrote {s}?", "By whom was {s} written?"],
    ),
    chain(EntityKind::Book, &[Editor], 1.0, &["Who edited {s}?", "Who is the editor of {s}?", "By whom was {s} edited?"]),
    chain(
        EntityKind::Book,
        &[PublicationYear],
        1.0,
        &["When was {s} published?", "In which year was {s} published?", "What is the publication year of {s}?"],
    ),
    chain(EntityKind::Company, &[Founder], 1.0, &["Who founded {s}?", "Who is the founder of {s}?", "By whom was {s} founded?"]),
    chain(EntityKind::Company, &[Head], 1.0, &["Who leads {s}?", "Who is the head of {s}?", "Which person leads {s}?"]),
    chain(
        EntityKind::Company,
        &[Headquarters],
        1.0,
        &["Where is {s} based?", "In which city is {s} based?", "Where are the headquarters of {s}?"],
    ),
    chain(
        EntityKind::Person,
        &[Birthplace],
        1.0,
        &["Where was {s} born?", "In which city was {s} born?", "What is the birthplace of {s}?"],
    ),
    chain(
        EntityKind::Person,
        &[Residence],
        1.0,
        &["Where does {s} live?", "In which city does {s} live?", "What is the residence of {s}?"],
    ),
    chain(EntityKind::Person, &[BirthYear], 1.0, &["When was {s} born?", "In which year was {s} born?", "What is the birth year of {s}?"]),
    chain(EntityKind::Person, &[Spouse], 1.0, &["Who is the spouse of {s}?", "Who is married to {s}?", "Whom did {s} marry?"]),
    chain(
        EntityKind::City,
        &[Country],
        1.0,
        &["In which country is {s}?", "Which country does {s} belong to?", "What is the country of {s}?"],
    ),
    chain(
        EntityKind::Country,
        &[Capital],
        1.0,
        &["What is the capital of {s}?", "Which city is the capital of {s}?", "From which city is {s} governed?"],
    ),
];

pub(super) const TWO_HOP: [Chain; 14] = [
    chain(
        EntityKind::Film,
        &[Director, Birthplace],
        3.0,
        &[
            "Where was the director of {s} born?",
            "In which city was the director of {s} born?",
            "What is the birthplace of the person who directed {s}?",
            "Where was the person who directed {s} born?",
        ],
    ),
    chain(
        EntityKind::Film,
        &[Star, Birthplace],
        2.0,
        &[
            "Where was the lead actor of {s} born?",
            "What is the birthplace of the person who stars in {s}?",
            "In which city was the lead actor of {s} born?",
        ],
    ),
    chain(
        EntityKind::Film,
        &[Director, BirthYear],
        2.0,
        &[
            "When was the director of {s} born?",
            "In which year was the director of {s} born?",
            "What is the birth year of the person who directed {s}?",
        ],
    ),
    chain(
        EntityKind::Film,
        &[Star, Residence],
        1.0,
        &[
            "Where does the lead actor of {s} live?",
            "In which city does the lead actor of {s} live?",
            "What is the residence of the person who stars in {s}?",
        ],
    ),
    chain(
        EntityKind::Book,
        &[Author, Birthplace],
        2.0,
        &[
            "Where was the author of {s} born?",
            "In which city was the author of {s} born?",
            "What is the birthplace of the person who wrote {s}?",
        ],
    ),
    chain(
        EntityKind::Book,
        &[Author, BirthYear],
        2.0,
        &[
            "When was the author of {s} born?",
            "In which year was the author of {s} born?",
            "What is the birth year of the person who wrote {s}?",
        ],
    ),
    chain(
        EntityKind::Book,
        &[Editor, Residence],
        1.0,
        &[
            "Where does the editor of {s} live?",
            "In which city does the editor of {s} live?",
            "What is the residence of the person who edited {s}?",
        ],
    ),
    chain(
        EntityKind::Company,
        &[Founder, Birthplace],
        2.0,
        &[
            "Where was the founder of {s} born?",
            "In which city was the founder of {s} born?",
            "What is the birthplace of the person who founded {s}?",
        ],
    ),
    chain(
        EntityKind::Company,
        &[Head, Residence],
        1.0,
        &[
            "Where does the head of {s} live?",
            "In which city does the head of {s} live?",
            "What is the residence of the person who leads {s}?",
        ],
    ),
    chain(
        EntityKind::Film,
        &[Director, Spouse],
        2.0,
        &[
            "Who is the spouse of the director of {s}?",
            "Who is married to the director of {s}?",
            "Whom did the person who directed {s} marry?",
        ],
    ),
    chain(
        EntityKind::Book,
        &[Author, Spouse],
        1.0,
        &["Who is the spouse of the author of {s}?", "Who is married to the author of {s}?", "Whom did the person who wrote {s} marry?"],
    ),
    chain(
        EntityKind::Person,
        &[Birthplace, Country],
        2.0,
        &["In which country was {s} born?", "What is the country of the birthplace of {s}?", "Which country was {s} born in?"],
    ),
    chain(
        EntityKind::Person,
        &[Residence, Country],
        1.5,
        &["In which country does {s} live?", "What is the country of the residence of {s}?", "Which country does {s} live in?"],
    ),
    chain(
        EntityKind::Company,
        &[Headquarters, Country],
        1.5,
        &["In which country is {s} based?", "What is the country of the headquarters of {s}?", "Which country is {s} based in?"],
    ),
];

pub(super) const THREE_HOP: [Chain; 6] = [
    chain(
        EntityKind::Film,
        &[Director, Birthplace, Country],
        3.0,
        &[
            "In which country was the director of {s} born?",
            "Which country was the director of {s} born in?",
            "In which country was the person who directed {s} born?",
        ],
    ),
    chain(
        EntityKind::Book,
        &[Author, Birthplace, Country],
        2.0,
        &[
            "In which country was the author of {s} born?",
            "Which country was the author of {s} born in?",
            "In which country was the person who wrote {s} born?",
        ],
    ),
    chain(
        EntityKind::Company,
        &[Founder, Birthplace, Country],
        2.0,
        &[
            "In which country was the founder of {s} born?",
            "Which country was the founder of {s} born in?",
            "In which country was the person who founded {s} born?",
        ],
    ),
    chain(
        EntityKind::Film,
        &[Star, Residence, Country],
        1.0,
        &[
            "In which country does the lead actor of {s} live?",
            "Which country does the lead actor of {s} live in?",
            "In which country does the person who stars in {s} live?",
        ],
    ),
    chain(
        EntityKind::Film,
        &[Director, Spouse, Birthplace],
        1.5,
        &[
            "Where was the spouse of the director of {s} born?",
            "In which city was the spouse of the director of {s} born?",
            "What is the birthplace of the spouse of the director of {s}?",
        ],
    ),
    chain(
        EntityKind::Book,
        &[Author, Spouse, BirthYear],
        1.0,
        &[
            "When was the spouse of the author of {s} born?",
            "In which year was the spouse of the author of {s} born?",
            "What is the birth year of the spouse of the author of {s}?",
        ],
    ),
];

/// Which of two came first: the kind, the relation that decides, and the wordings.
pub(super) struct Comparison {
    pub(super) kind: EntityKind,
    pub(super) relation: Relation,
    pub(super) templates: &'static [&'static str],
}

pub(super) const COMPARISONS: [Comparison; 3] = [
    Comparison {
        kind: EntityKind::Person,
        relation: BirthYear,
        templates: &[
            "Who was born earlier, {a} or {b}?",
            "Who was born first, {a} or {b}?",
            "Who is older, {a} or {b}?",
            "Of {a} and {b}, who was born first?",
        ],
    },
    Comparison {
        kind: EntityKind::Film,
        relation: ReleaseYear,
        templates: &[
            "Which film came out first, {a} or {b}?",
            "Which film was released earlier, {a} or {b}?",
            "Which film is older, {a} or {b}?",
            "Of {a} and {b}, which film came out first?",
        ],
    },
    Comparison {
        kind: EntityKind::Book,
        relation: PublicationYear,
        templates: &[
            "Which book was published first, {a} or {b}?",
            "Which book appeared earlier, {a} or {b}?",
            "Which book is older, {a} or {b}?",
            "Of {a} and {b}, which book was published first?",
        ],
    },
];
