//! The relations of a world and their wording: in passages, in search queries and in the reasoning of demonstrations.

/// What stands at the end of a relation, as a reader would sort it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Person,
    Place,
    Year,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    Director,
    Star,
    ReleaseYear,
    Author,
    Editor,
    PublicationYear,
    Founder,
    Head,
    Headquarters,
    Spouse,
    Birthplace,
    Residence,
    BirthYear,
    Country,
    Capital,
}

/// How a relation is put into words. In the templates `{s}` is the subject and `{o}` the object.
pub(super) struct Wording {
    /// "director", for reasoning.
    pub(super) phrase: &'static str,
    /// Search queries, the plainest first.
    pub(super) queries: [&'static str; 3],
    /// Sentences of passages. The subject comes before the object in each, as an extractor that copies needs it, and the first
    /// three open with the subject, as the first sentence of a passage must.
    pub(super) sentences: [&'static str; 4],
    pub(super) object: ObjectKind,
    /// The relation of the same subject that is easily taken for this one.
    pub(super) rival: Option<Relation>,
}

/// How many of [`Wording::sentences`] open with the subject.
pub(super) const OPENING_SENTENCES: usize = 3;

/// Puts a subject and an object into a template.
pub(super) fn fill(template: &str, subject: &str, object: &str) -> String {
    template.replace("{s}", subject).replace("{o}", object)
}

impl Relation {
    pub(super) fn phrase(self) -> &'static str {
        self.wording().phrase
    }

    pub(super) fn object(self) -> ObjectKind {
        self.wording().object
    }

    pub(super) fn wording(self) -> &'static Wording {
        match self {
            Relation::Director => &Wording {
                phrase: "director",
                queries: ["director of {s}", "{s} director", "who directed {s}"],
                sentences: [
                    "{s} was directed by {o}.",
                    "{s} is a film directed by {o}.",
                    "{s} had {o} as its director.",
                    "The director of {s} was {o}.",
                ],
                object: ObjectKind::Person,
                rival: Some(Relation::Star),
            },
            Relation::Star => &Wording {
                phrase: "lead actor",
                queries: ["lead actor of {s}", "{s} lead actor", "who stars in {s}"],
                sentences: [
                    "{s} stars {o}.",
                    "{s} has {o} in the lead role.",
                    "{s} features {o} as its lead actor.",
                    "The lead actor of {s} was {o}.",
                ],
                object: ObjectKind::Person,
                rival: Some(Relation::Director),
            },
            Relation::ReleaseYear => &Wording {
                phrase: "release year",
                queries: ["release year of {s}", "{s} release year", "when did {s} come out"],
                sentences: [
                    "{s} came out in {o}.",
                    "{s} was released in {o}.",
                    "{s} reached cinemas in {o}.",
                    "The release year of {s} was {o}.",
                ],
                object: ObjectKind::Year,
                rival: None,
            },
            Relation::Author => &Wording {
                phrase: "author",
                queries: ["author of {s}", "{s} author", "who wrote {s}"],
                sentences: ["{s} was written by {o}.", "{s} is a book by {o}.", "{s} had {o} as its author.", "The author of {s} was {o}."],
                object: ObjectKind::Person,
                rival: Some(Relation::Editor),
            },
            Relation::Editor => &Wording {
                phrase: "editor",
                queries: ["editor of {s}", "{s} editor", "who edited {s}"],
                sentences: [
                    "{s} was edited by {o}.",
                    "{s} is a book edited by {o}.",
                    "{s} had {o} as its editor.",
                    "The editor of {s} was {o}.",
                ],
                object: ObjectKind::Person,
                rival: Some(Relation::Author),
            },
            Relation::PublicationYear => &Wording {
                phrase: "publication year",
                queries: ["publication year of {s}", "{s} publication year", "when was {s} published"],
                sentences: [
                    "{s} was published in {o}.",
                    "{s} first appeared in {o}.",
                    "{s} reached readers in {o}.",
                    "The publication year of {s} was {o}.",
                ],
                object: ObjectKind::Year,
                rival: None,
            },
            Relation::Founder => &Wording {
                phrase: "founder",
                queries: ["founder of {s}", "{s} founder", "who founded {s}"],
                sentences: [
                    "{s} was founded by {o}.",
                    "{s} is a company founded by {o}.",
                    "{s} had {o} as its founder.",
                    "The founder of {s} was {o}.",
                ],
                object: ObjectKind::Person,
                rival: Some(Relation::Head),
            },
            Relation::Head => &Wording {
                phrase: "head",
                queries: ["head of {s}", "{s} head", "who leads {s}"],
                sentences: ["{s} is led by {o}.", "{s} is a company led by {o}.", "{s} has {o} as its head.", "The head of {s} is {o}."],
                object: ObjectKind::Person,
                rival: Some(Relation::Founder),
            },
            Relation::Headquarters => &Wording {
                phrase: "headquarters",
                queries: ["headquarters of {s}", "{s} headquarters", "where is {s} based"],
                sentences: [
                    "{s} is based in {o}.",
                    "{s} has its headquarters in {o}.",
                    "{s} runs its offices from {o}.",
                    "The headquarters of {s} are in {o}.",
                ],
                object: ObjectKind::Place,
                rival: None,
            },
            Relation::Spouse => &Wording {
                phrase: "spouse",
                queries: ["spouse of {s}", "{s} spouse", "who married {s}"],
                sentences: ["{s} is married to {o}.", "{s} married {o}.", "{s} has {o} as spouse.", "The spouse of {s} is {o}."],
                object: ObjectKind::Person,
                rival: None,
            },
            Relation::Birthplace => &Wording {
                phrase: "birthplace",
                queries: ["birthplace of {s}", "{s} birthplace", "where was {s} born"],
                sentences: [
                    "{s} was born in {o}.",
                    "{s} is a native of {o}.",
                    "{s} has {o} as birthplace.",
                    "The birthplace of {s} is {o}.",
                ],
                object: ObjectKind::Place,
                rival: Some(Relation::Residence),
            },
            Relation::Residence => &Wording {
                phrase: "residence",
                queries: ["residence of {s}", "{s} residence", "where does {s} live"],
                sentences: ["{s} lives in {o}.", "{s} is a resident of {o}.", "{s} has a home in {o}.", "The residence of {s} is in {o}."],
                object: ObjectKind::Place,
                rival: Some(Relation::Birthplace),
            },
            Relation::BirthYear => &Wording {
                phrase: "birth year",
                queries: ["birth year of {s}", "{s} birth year", "when was {s} born"],
                sentences: [
                    "{s} was born in the year {o}.",
                    "{s} has {o} as birth year.",
                    "{s} has lived since {o}.",
                    "The birth year of {s} is {o}.",
                ],
                object: ObjectKind::Year,
                rival: None,
            },
            Relation::Country => &Wording {
                phrase: "country",
                queries: ["country of {s}", "{s} country", "where is {s}"],
                sentences: ["{s} is a city in {o}.", "{s} lies in {o}.", "{s} belongs to {o}.", "The country of {s} is {o}."],
                object: ObjectKind::Place,
                rival: None,
            },
            Relation::Capital => &Wording {
                phrase: "capital",
                queries: ["capital of {s}", "{s} capital", "which city governs {s}"],
                sentences: [
                    "{s} is a country with {o} as its capital.",
                    "{s} has its capital in {o}.",
                    "{s} is governed from {o}.",
                    "The capital of {s} is {o}.",
                ],
                object: ObjectKind::Place,
                rival: None,
            },
        }
    }
}
