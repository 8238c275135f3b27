//! Options of the three generators, their defaults, their bounds, and the error for a value outside them.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An option outside its range, or two options that do not fit together.
    #[error("{name} = {found} is out of range: expected {expected}")]
    InvalidOption { name: &'static str, found: String, expected: String },

    /// The world is too small for that many different questions.
    #[error("a world of this size gave only {found} different questions of the {requested} asked for; ask for fewer or enlarge it")]
    TooManyQuestions { requested: usize, found: usize },

    /// A list of texts outgrew Arrow's 32-bit offsets, or a batch did not fit its schema.
    #[error("cannot build the record batch: {0}")]
    Batch(String),
}

/// Which half of the name space a world draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    Train,
    Test,
}

impl Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Split::Train => "train",
            Split::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "train" => Ok(Split::Train),
            "test" => Ok(Split::Test),
            _ => Err(Error::InvalidOption { name: "split", found: format!("'{text}'"), expected: "'train' or 'test'".into() }),
        }
    }
}

/// One world: the seed, the half of the name space, and how many entities of each kind. The default has 192 of them.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldOptions {
    /// Any number; another seed is another world.
    pub seed: u64,
    /// Whose half of the coined words it uses.
    pub split: Split,
    /// 8 to 2,000.
    pub num_people: usize,
    /// 4 to 2,000.
    pub num_films: usize,
    /// 4 to 2,000.
    pub num_books: usize,
    /// 2 to 500.
    pub num_companies: usize,
    /// `num_countries` to 1,000, and at least 4: every country has a capital.
    pub num_cities: usize,
    /// 2 to 200.
    pub num_countries: usize,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            split: Split::Train,
            num_people: 60,
            num_films: 40,
            num_books: 30,
            num_companies: 20,
            num_cities: 30,
            num_countries: 12,
        }
    }
}

impl WorldOptions {
    /// # Errors
    /// [`Error::InvalidOption`] for a number outside the range that its field states.
    pub fn validate(&self) -> Result<()> {
        within("num_people", self.num_people, 8..=2_000)?;
        within("num_films", self.num_films, 4..=2_000)?;
        within("num_books", self.num_books, 4..=2_000)?;
        within("num_companies", self.num_companies, 2..=500)?;
        within("num_countries", self.num_countries, 2..=200)?;
        within("num_cities", self.num_cities, self.num_countries.max(4)..=1_000)
    }
}

/// How often each kind of question is drawn; relative weights, not negative, not all zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuestionMix {
    pub one_hop: f64,
    pub two_hop: f64,
    pub three_hop: f64,
    pub comparison: f64,
}

impl Default for QuestionMix {
    fn default() -> Self {
        Self { one_hop: 0.2, two_hop: 0.4, three_hop: 0.2, comparison: 0.2 }
    }
}

impl QuestionMix {
    fn validate(&self) -> Result<()> {
        let named = [("one_hop", self.one_hop), ("two_hop", self.two_hop), ("three_hop", self.three_hop), ("comparison", self.comparison)];
        for (name, weight) in named {
            within_f64(name, weight, 0.0..=1e6)?;
        }
        if named.iter().all(|(_, weight)| *weight == 0.0) {
            return Err(Error::InvalidOption {
                name: "one_hop, two_hop, three_hop, comparison",
                found: "0 for all".into(),
                expected: "at least one positive weight".into(),
            });
        }
        Ok(())
    }
}

/// Questions about one world; `seed` draws other questions about the same world.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionsOptions {
    /// The world asked about.
    pub world: WorldOptions,
    /// 1 to 100,000; all questions of one call differ.
    pub count: usize,
    /// Draws the questions; the world has its own seed.
    pub seed: u64,
    /// How often each kind is drawn.
    pub mix: QuestionMix,
}

impl Default for QuestionsOptions {
    fn default() -> Self {
        Self { world: WorldOptions::default(), count: 200, seed: 0, mix: QuestionMix::default() }
    }
}

impl QuestionsOptions {
    /// # Errors
    /// [`Error::InvalidOption`] for a value outside the range that its field states.
    pub fn validate(&self) -> Result<()> {
        self.world.validate()?;
        self.mix.validate()?;
        within("count", self.count, 1..=100_000)
    }
}

/// Demonstrations over a row of fresh worlds. Rates are probabilities; a zero switches the fault off.
#[derive(Clone, Debug, PartialEq)]
pub struct DemonstrationsOptions {
    /// The first world; the others take the seeds that follow.
    pub world: WorldOptions,
    /// 1 to 100,000; `worlds * questions_per_world * evidence_repeat` is at most 200,000, which keeps a batch below a gigabyte.
    pub worlds: usize,
    /// 1 to 10,000.
    pub questions_per_world: usize,
    /// How often each kind of question is drawn.
    pub mix: QuestionMix,
    /// Passages beside the gold one: uniform in `distractors_min..=distractors_max`, at most 8.
    pub distractors_min: usize,
    /// See `distractors_min`. With 0 no search can miss the gold passage, so `missing_gold` has no effect.
    pub distractors_max: usize,
    /// How many times each evidence step is emitted, each time with distractors and order drawn anew; 1 to 8.
    pub evidence_repeat: usize,
    /// All evidence is there, and the trajectory searches once more before it answers. Above a half this is what greedy decoding does.
    pub wasted: f64,
    /// The first query of a multi-hop question asks for the wrong relation (the lead actor instead of the director), and the chain
    /// then follows the wrong entity.
    pub wrong_bridge: f64,
    /// The trajectory answers with what it holds after a hop that is not the last, where that looks like the kind of thing asked for
    /// (a city where the country is asked). A tenth of it elsewhere.
    pub early_answer: f64,
    /// A search does not find the gold passage; the evidence is None and the next step asks in other words.
    pub missing_gold: f64,
    /// The trajectory ends in the state `answer_generation`, as it does when an agent has used up its steps.
    pub forced_answer: f64,
    /// Column `weight` of the row in which a fault is committed (not of what follows from it); other rows have 1. From 0 to 10.
    pub fault_weight: f64,
}

impl Default for DemonstrationsOptions {
    fn default() -> Self {
        Self {
            world: WorldOptions::default(),
            worlds: 10,
            questions_per_world: 60,
            mix: QuestionMix::default(),
            distractors_min: 1,
            distractors_max: 2,
            evidence_repeat: 1,
            wasted: 0.62,
            wrong_bridge: 0.06,
            early_answer: 0.65,
            missing_gold: 0.06,
            forced_answer: 0.08,
            fault_weight: 1.0,
        }
    }
}

impl DemonstrationsOptions {
    /// # Errors
    /// [`Error::InvalidOption`] for a value outside the range that its field states, or a product or seed beyond its bound.
    pub fn validate(&self) -> Result<()> {
        self.world.validate()?;
        self.mix.validate()?;
        within("worlds", self.worlds, 1..=100_000)?;
        within("questions_per_world", self.questions_per_world, 1..=10_000)?;
        within("distractors_max", self.distractors_max, 0..=8)?;
        within("distractors_min", self.distractors_min, 0..=self.distractors_max)?;
        within("evidence_repeat", self.evidence_repeat, 1..=8)?;
        within(
            "worlds * questions_per_world * evidence_repeat",
            self.worlds * self.questions_per_world * self.evidence_repeat,
            1..=200_000,
        )?;
        if self.world.seed.checked_add(self.worlds as u64).is_none() {
            return Err(Error::InvalidOption {
                name: "seed",
                found: self.world.seed.to_string(),
                expected: "a seed that leaves room for the worlds after it".into(),
            });
        }
        let rates = [
            ("wasted", self.wasted),
            ("wrong_bridge", self.wrong_bridge),
            ("early_answer", self.early_answer),
            ("missing_gold", self.missing_gold),
            ("forced_answer", self.forced_answer),
        ];
        for (name, rate) in rates {
            within_f64(name, rate, 0.0..=1.0)?;
        }
        within_f64("fault_weight", self.fault_weight, 0.0..=10.0)
    }
}

fn within(name: &'static str, found: usize, range: RangeInclusive<usize>) -> Result<()> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(Error::InvalidOption { name, found: found.to_string(), expected: format!("{} to {}", range.start(), range.end()) })
}

/// NaN is outside every range.
fn within_f64(name: &'static str, found: f64, range: RangeInclusive<f64>) -> Result<()> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(Error::InvalidOption { name, found: found.to_string(), expected: format!("{} to {}", range.start(), range.end()) })
}
