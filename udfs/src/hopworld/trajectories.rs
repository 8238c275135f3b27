//! Trajectories of mixed quality: what a searcher with known habits does with a question.
//!
//! Each decision is sampled at its step from what the prompt of that step shows, so under the same prompt the better choice has its
//! own probability, and a policy trained on these can be improved by preferring it. Three faults:
//!
//! - **wasted query**: all evidence is there, and one more search comes before the answer. At the default rate this is the likeliest
//!   choice, so greedy decoding does it; having done it once, the answer is the likeliest.
//! - **early answer**: the answer is given after a hop that is not the last. Where what is held looks like the kind of thing asked
//!   for (a city for "in which country", the director for "who is the spouse of the director") it is the likeliest choice, else rare.
//! - **wrong bridge**: the first query asks for the rival relation, and the chain goes on from the wrong entity. Rare.

use super::completions::{self, Motive};
use super::options::DemonstrationsOptions;
use super::passages::Corpus;
use super::questions::{Question, QuestionKind};
use super::random::Random;
use super::world::{EntityId, Lookup, Object};

/// Rates of the rarer habits, as shares of the option they belong to.
const EARLY_UNTEMPTED: f64 = 0.1;
const WASTED_BETWEEN_HOPS: f64 = 0.1;
const WASTED_AGAIN: f64 = 0.2;
/// A wasted query repeats the last one word for word, else asks for another fact of the same entity.
const WASTED_REPEATS: f64 = 0.7;
/// Weights of a relation's three query wordings, and which one a search that found nothing tries next.
const QUERY_WEIGHTS: [f64; 3] = [0.6, 0.2, 0.2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quality {
    Clean,
    WastedQuery,
    EarlyAnswer,
    WrongBridge,
}

impl Quality {
    pub(super) fn name(self) -> &'static str {
        match self {
            Quality::Clean => "clean",
            Quality::WastedQuery => "wasted_query",
            Quality::EarlyAnswer => "early_answer",
            Quality::WrongBridge => "wrong_bridge",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    BeginReasoning,
    Reasoning,
    EvidenceExtraction,
    AnswerGeneration,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::BeginReasoning => "begin_reasoning",
            State::Reasoning => "reasoning",
            State::EvidenceExtraction => "evidence_extraction",
            State::AnswerGeneration => "answer_generation",
        }
    }
}

/// A search whose result an evidence step reads.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pub(super) query: String,
    /// The entity whose passage answers the query.
    pub(super) gold: EntityId,
    /// Whether that passage is among the results.
    pub(super) found: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) state: State,
    /// The earlier completions, trimmed and joined by newlines.
    pub(super) thoughts: String,
    /// Of an evidence step.
    pub(super) search: Option<Search>,
    pub(super) completion: String,
    /// Whether this step is where a fault is committed.
    pub(super) fault: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Trajectory {
    pub(super) steps: Vec<Step>,
    /// The gravest fault committed.
    pub(super) quality: Quality,
}

/// Samples one trajectory.
pub(super) fn sample(corpus: &Corpus, question: &Question, options: &DemonstrationsOptions, random: &mut Random) -> Trajectory {
    let walk = Walk { corpus, question, options, random, thoughts: String::new(), steps: Vec::new(), quality: Quality::Clean };
    walk.run()
}

struct Walk<'a> {
    corpus: &'a Corpus,
    question: &'a Question,
    options: &'a DemonstrationsOptions,
    random: &'a mut Random,
    thoughts: String,
    steps: Vec<Step>,
    quality: Quality,
}

/// What to do when evidence for a hop that is not the last is there.
enum Decision {
    GoOn,
    Waste,
    AnswerEarly,
}

impl Walk<'_> {
    fn run(mut self) -> Trajectory {
        let lookups = self.choose_bridge();
        let mut last_query = self.look_up(lookups[0], Motive::Start);
        for pair in lookups.windows(2) {
            match self.decide(pair[0]) {
                Decision::GoOn => {}
                Decision::Waste => self.waste(pair[0], &last_query),
                Decision::AnswerEarly => {
                    self.answer_early(pair[0]);
                    return self.finish();
                }
            }
            let motive = if self.is_comparison() { Motive::OtherEntity } else { Motive::NextHop };
            last_query = self.look_up(pair[1], motive);
        }
        self.conclude(&lookups, &last_query);
        self.finish()
    }

    fn finish(self) -> Trajectory {
        Trajectory { steps: self.steps, quality: self.quality }
    }

    fn is_comparison(&self) -> bool {
        self.question.kind == QuestionKind::Comparison
    }

    /// The question's lookups, or those from the wrong bridge. A wrong bridge that happens to lead to the right answer is no fault
    /// to learn from, so it is not taken.
    fn choose_bridge(&mut self) -> Vec<Lookup> {
        let gold = &self.question.lookups;
        match self.wrong_lookups() {
            Some(lookups) if self.random.chance(self.options.wrong_bridge) => {
                self.quality = Quality::WrongBridge;
                lookups
            }
            _ => gold.clone(),
        }
    }

    fn wrong_lookups(&self) -> Option<Vec<Lookup>> {
        if !matches!(self.question.kind, QuestionKind::TwoHop | QuestionKind::ThreeHop) {
            return None;
        }
        let world = &self.corpus.world;
        let gold = &self.question.lookups;
        let mut relations: Vec<_> = gold.iter().map(|lookup| lookup.relation).collect();
        relations[0] = relations[0].wording().rival?;
        let lookups = world.follow(gold[0].entity, &relations)?;
        (self.text(*lookups.last()?) != self.question.answer).then_some(lookups)
    }

    fn decide(&mut self, held: Lookup) -> Decision {
        let early = if self.is_tempting(held) { self.options.early_answer } else { self.options.early_answer * EARLY_UNTEMPTED };
        if self.random.chance(early) {
            Decision::AnswerEarly
        } else if self.random.chance(self.options.wasted * WASTED_BETWEEN_HOPS) {
            Decision::Waste
        } else {
            Decision::GoOn
        }
    }

    /// Whether what is held is of the kind that the question asks for. In a comparison it never is: a year is held, a name is asked.
    fn is_tempting(&self, held: Lookup) -> bool {
        let asked = self.question.lookups.last().map(|lookup| lookup.relation.object());
        !self.is_comparison() && asked == Some(held.relation.object())
    }

    /// The bridge instead of the answer; in a comparison, the name that was looked up first, a guess.
    fn answer_early(&mut self, held: Lookup) {
        let text = if self.is_comparison() { self.corpus.world.name(held.entity).to_owned() } else { self.text(held) };
        let completion = completions::answer(&text, self.random);
        self.quality = self.quality.max(Quality::EarlyAnswer);
        self.push(State::Reasoning, completion, None, true);
    }

    /// All evidence is there: perhaps waste a query or two, then answer.
    fn conclude(&mut self, lookups: &[Lookup], last_query: &str) {
        let forced = self.random.chance(self.options.forced_answer);
        let mut rate = self.options.wasted;
        while self.random.chance(rate) {
            let (lookup, search) = self.ask_in_vain(lookups[lookups.len() - 1], last_query);
            // An agent can run out of steps between a query and its evidence.
            if forced && self.random.chance(0.5) {
                break;
            }
            self.read(lookup, search);
            rate *= WASTED_AGAIN;
        }
        self.answer(lookups, forced);
    }

    fn answer(&mut self, lookups: &[Lookup], forced: bool) {
        let last = lookups[lookups.len() - 1];
        let answer = if self.is_comparison() { self.question.answer.clone() } else { self.text(last) };
        if forced {
            self.push(State::AnswerGeneration, completions::forced_answer(&answer), None, false);
            return;
        }
        let completion = if self.is_comparison() {
            let mut years = [self.text(lookups[0]), self.text(last)];
            years.sort();
            completions::compared_answer(&answer, &years[0], &years[1], self.random)
        } else {
            completions::answer(&answer, self.random)
        };
        self.push(State::Reasoning, completion, None, false);
    }

    /// One search and its evidence; a search that finds nothing is put in other words, which then find. Returns the last query.
    fn look_up(&mut self, lookup: Lookup, motive: Motive) -> String {
        let wording = self.random.weighted(QUERY_WEIGHTS.iter().copied());
        let mut query = self.query(lookup, wording);
        let fault = self.steps.is_empty() && self.quality == Quality::WrongBridge;
        self.ask(lookup, motive, &query, fault);
        // With the gold passage absent there must be another one to show.
        if self.options.distractors_max > 0 && self.random.chance(self.options.missing_gold) {
            self.read(lookup, Search { query, gold: lookup.entity, found: false });
            let other_wording = (wording + 1 + self.random.below(2)) % QUERY_WEIGHTS.len();
            query = self.query(lookup, other_wording);
            self.ask(lookup, Motive::Retry, &query, false);
        }
        self.read(lookup, Search { query: query.clone(), gold: lookup.entity, found: true });
        query
    }

    fn waste(&mut self, last: Lookup, last_query: &str) {
        let (lookup, search) = self.ask_in_vain(last, last_query);
        self.read(lookup, search);
    }

    /// The last query once more, or a query for a fact of its entity that was not asked for; and what to read in its result.
    fn ask_in_vain(&mut self, last: Lookup, last_query: &str) -> (Lookup, Search) {
        let facts = &self.corpus.world.entities[last.entity].facts;
        let others: Vec<_> = facts.iter().map(|(relation, _)| *relation).filter(|relation| *relation != last.relation).collect();
        self.quality = self.quality.max(Quality::WastedQuery);
        let (lookup, motive, query) = if others.is_empty() || self.random.chance(WASTED_REPEATS) {
            (last, Motive::CheckAgain, last_query.to_owned())
        } else {
            let lookup = Lookup { relation: self.random.pick(&others), ..last };
            (lookup, Motive::Curiosity, self.query(lookup, 0))
        };
        self.ask(lookup, motive, &query, true);
        (lookup, Search { query, gold: lookup.entity, found: true })
    }

    fn ask(&mut self, lookup: Lookup, motive: Motive, query: &str, fault: bool) {
        let completion = completions::ask(motive, lookup.relation, query, self.random);
        let state = if self.steps.is_empty() { State::BeginReasoning } else { State::Reasoning };
        self.push(state, completion, None, fault);
    }

    fn read(&mut self, lookup: Lookup, search: Search) {
        let sentence = search.found.then(|| self.corpus.evidence(lookup));
        self.push(State::EvidenceExtraction, completions::extract(sentence), Some(search), false);
    }

    fn push(&mut self, state: State, completion: String, search: Option<Search>, fault: bool) {
        let thoughts = self.thoughts.clone();
        if !self.thoughts.is_empty() {
            self.thoughts.push('\n');
        }
        self.thoughts.push_str(completion.trim());
        self.steps.push(Step { state, thoughts, search, completion, fault });
    }

    fn query(&self, lookup: Lookup, wording: usize) -> String {
        lookup.relation.wording().queries[wording].replace("{s}", self.corpus.world.name(lookup.entity))
    }

    fn text(&self, lookup: Lookup) -> String {
        let object: Option<Object> = self.corpus.world.object(lookup);
        object.map(|object| self.corpus.world.text(object)).expect("lookups are made of facts that the world has")
    }
}
