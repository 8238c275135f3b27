//! The reference of a DPO: the base, before its first step, and what the query gave of it.
//!
//! Numbers that a query gives are sums over tokens. Where it does not give the tokens too, they may be of other ones: a response that was cut has no
//! end-of-text token, and a text that is learned has one. So the base is asked for a few pairs, and says whose numbers they are and what they are of.

use std::cell::Cell;

use super::input::Given;
use super::run::Event;
use crate::error::{Error, Result};
use crate::models::Decoder;
use crate::training::{DpoExample, DpoOptions, ReferenceLogps, RunOptions, Stop, keep_reference, kept_reference, reference_logps};

/// Pairs that the base is asked for.
const NUM_PROBES: usize = 8;
/// What rounding, and processors with other arithmetic, may make of a log-probability: in nats, and as a share of it.
const SAME_NATS: f64 = 0.05;
const SAME_SHARE: f64 = 0.01;

/// Makes the log-probabilities of the reference.
pub struct Reference<'a> {
    pub options: &'a DpoOptions,
    /// In both queries.
    pub num_pairs: usize,
    /// Of the base.
    pub eos_token_id: Option<u32>,
    /// Pairs whose numbers are not taken, though the query gave some.
    pub num_set_aside: &'a Cell<usize>,
    pub stop: &'a Stop,
    pub tell: &'a dyn Fn(Event),
}

/// Pairs, and what the query gave of their reference.
pub type Pairs<'a> = (&'a [DpoExample], Vec<Option<Given>>);

impl Reference<'_> {
    /// Of the pairs that are learned, and then of those that are measured. A run that goes on finds what it kept when it began.
    ///
    /// # Errors
    /// As [`reference_logps`].
    pub fn of_run(
        &self,
        decoder: &Decoder,
        (pairs, mut given): Pairs<'_>,
        (validation, mut validation_given): Pairs<'_>,
    ) -> Result<Vec<ReferenceLogps>> {
        if !self.options.preference.loss.needs_reference() {
            return Ok(vec![ReferenceLogps { chosen: 0.0, rejected: 0.0 }; self.num_pairs]);
        }
        let RunOptions { checkpoints, warnings, .. } = &self.options.run;
        if let Some(kept) = checkpoints.as_ref().and_then(|checkpoints| kept_reference(checkpoints, self.num_pairs, warnings)) {
            return Ok(kept);
        }
        let unsaid = |pairs: &[DpoExample], given: &[Option<Given>]| -> Vec<(DpoExample, Given)> {
            let both = pairs.iter().zip(given).filter_map(|(pair, given)| Some((pair, given.filter(|given| !given.is_of_learned)?)));
            both.map(|(pair, given)| (pair.clone(), given)).collect()
        };
        let all = [unsaid(pairs, &given), unsaid(validation, &validation_given)].concat();
        if let Some(reason) = self.reason_against(decoder, &all)? {
            self.num_set_aside.set(all.len());
            for given in given.iter_mut().chain(&mut validation_given) {
                *given = given.filter(|given| given.is_of_learned);
            }
            warnings.say(reason.to_owned());
        }
        let is_given = given.iter().chain(&validation_given).all(Option::is_some);
        let mut logps = self.logps(decoder, pairs, given, 0)?;
        logps.extend(self.logps(decoder, validation, validation_given, pairs.len())?);
        if let Some(checkpoints) = checkpoints.as_ref().filter(|_| !is_given) {
            keep_reference(checkpoints, &logps, warnings);
        }
        Ok(logps)
    }

    /// Why numbers whose tokens nobody tells are not taken; None if they are.
    fn reason_against(&self, decoder: &Decoder, all: &[(DpoExample, Given)]) -> Result<Option<&'static str>> {
        let probes: Vec<&(DpoExample, Given)> = all.iter().step_by(all.len().div_ceil(NUM_PROBES).max(1)).collect();
        if probes.is_empty() {
            return Ok(None);
        }
        let (mut num_learned, mut num_cut, mut num_sides) = (0, 0, 0);
        for (pair, given) in probes {
            let learned = self.asked(decoder, pair)?;
            let cut = self.without_end(pair).map(|pair| self.asked(decoder, &pair)).transpose()?;
            for side in [|logps: ReferenceLogps| logps.chosen, |logps: ReferenceLogps| logps.rejected] {
                let is_learned = is_same(side(given.logps), side(learned));
                num_sides += 1;
                num_learned += usize::from(is_learned);
                num_cut += usize::from(!is_learned && cut.is_some_and(|cut| is_same(side(given.logps), side(cut))));
            }
        }
        let is_of_base = all.iter().all(|(_, given)| given.is_of_base) || num_learned + num_cut > 0;
        if num_learned == num_sides || !is_of_base {
            return Ok(None);
        }
        Ok(Some(if num_cut > 0 {
            "the reference columns are not taken: they are what the base says of responses without the end-of-text token that a text ends with when it is \
             learned; they were computed with the base. Learn chosen_ids and rejected_ids, without the texts, to take what was sampled"
        } else {
            "the reference columns are not taken: they are of other tokens than those that are learned; they were computed with the base. \
             chosen_ids and rejected_ids beside them say what they are of"
        }))
    }

    /// What the decoder says of a pair.
    fn asked(&self, decoder: &Decoder, pair: &DpoExample) -> Result<ReferenceLogps> {
        let logps = reference_logps(decoder, std::slice::from_ref(pair), self.options, &mut |_, _| self.stop.check())?;
        logps.first().copied().ok_or_else(missing)
    }

    /// The pair without the tokens that end its texts; None if there is nothing to take away, or too little would be left.
    fn without_end(&self, pair: &DpoExample) -> Option<DpoExample> {
        let cut = |ids: &[u32]| match ids {
            [rest @ .., last] if Some(*last) == self.eos_token_id && !rest.is_empty() => rest.to_vec(),
            _ => ids.to_vec(),
        };
        let cut = DpoExample { prompt: pair.prompt.clone(), chosen: cut(&pair.chosen), rejected: cut(&pair.rejected) };
        let can_be_asked = cut.chosen != cut.rejected && cut.chosen.len().min(cut.rejected.len()) + pair.prompt.len().min(1) > 1;
        (can_be_asked && cut != *pair).then_some(cut)
    }

    /// Those that the query gave, and of the other pairs those of the decoder as it is. `num_before`: pairs that are done already.
    fn logps(&self, decoder: &Decoder, pairs: &[DpoExample], given: Vec<Option<Given>>, num_before: usize) -> Result<Vec<ReferenceLogps>> {
        let unknown: Vec<DpoExample> =
            pairs.iter().zip(&given).filter(|(_, given)| given.is_none()).map(|(pair, _)| pair.clone()).collect();
        let num_before = num_before + pairs.len() - unknown.len();
        let computed = match unknown.is_empty() {
            true => Vec::new(),
            false => reference_logps(decoder, &unknown, self.options, &mut |done, _| {
                (self.tell)(Event::Reference(num_before + done, self.num_pairs));
                self.stop.check()
            })?,
        };
        let mut computed = computed.into_iter();
        let all: Option<Vec<_>> = given.into_iter().map(|given| given.map(|given| given.logps).or_else(|| computed.next())).collect();
        all.ok_or_else(missing)
    }
}

fn is_same(given: f64, asked: f64) -> bool {
    (given - asked).abs() <= SAME_NATS + SAME_SHARE * asked.abs()
}

fn missing() -> Error {
    Error::Internal("a pair has no log-probabilities of its reference".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::examples::BaseTokenizer;
    use super::*;
    use crate::fixtures::fixture;
    use crate::training::Warnings;

    const TEXTS: [(&str, &str); 3] = [(" He went to", " She"), (" It is", " It was not"), (" one", " two three")];

    /// The pairs of [`TEXTS`], and what the base says of them with and without their last token.
    struct World {
        decoder: Decoder,
        eos_token_id: Option<u32>,
        pairs: Vec<DpoExample>,
        learned: Vec<ReferenceLogps>,
        cut: Vec<ReferenceLogps>,
    }

    fn world() -> World {
        let directory = fixture("../../src/models/builtin/tinyhop");
        let tokenizer = BaseTokenizer::load(&directory).expect("the built-in model has one").tokenizer;
        let decoder = Decoder::load_trainable(&directory).expect("the built-in model is one");
        let ids = |text: &str| tokenizer.encode(text).expect("it is encoded");
        let ended = |text: &str| [ids(text), tokenizer.eos_token_id().into_iter().collect()].concat();
        let pair = |(chosen, rejected): &(&str, &str)| DpoExample { prompt: ids("Who?"), chosen: ended(chosen), rejected: ended(rejected) };
        let cut = |(chosen, rejected): &(&str, &str)| DpoExample { prompt: ids("Who?"), chosen: ids(chosen), rejected: ids(rejected) };
        let asked = |pairs: &[DpoExample]| reference_logps(&decoder, pairs, &DpoOptions::default(), &mut |_, _| Ok(())).expect("numbers");
        let (pairs, cut): (Vec<_>, Vec<_>) = (TEXTS.iter().map(pair).collect(), TEXTS.iter().map(cut).collect());
        let (learned, cut) = (asked(&pairs), asked(&cut));
        World { eos_token_id: tokenizer.eos_token_id(), decoder, pairs, learned, cut }
    }

    /// What becomes of given numbers, and what is said.
    fn reference(world: &World, given: &[ReferenceLogps], is_of_base: bool) -> (Vec<ReferenceLogps>, usize, Vec<String>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&said);
        let warnings = Warnings::new(move |warning| hear.lock().expect("nobody panicked").push(warning));
        let mut options = DpoOptions::default();
        options.run.warnings = warnings;
        let (num_set_aside, stop) = (Cell::new(0), Stop::default());
        let eos_token_id = world.eos_token_id;
        let reference =
            Reference { options: &options, num_pairs: 3, eos_token_id, num_set_aside: &num_set_aside, stop: &stop, tell: &|_| {} };
        let given = given.iter().map(|logps| Some(Given { logps: *logps, is_of_base, is_of_learned: false })).collect();
        let found = reference.of_run(&world.decoder, (&world.pairs, given), (&[], vec![])).expect("numbers");
        let said = said.lock().expect("nobody panicked").clone();
        (found, num_set_aside.get(), said)
    }

    #[test]
    fn numbers_are_taken_for_the_tokens_that_they_are_of() {
        let world = world();
        for is_of_base in [true, false] {
            assert_eq!(reference(&world, &world.learned, is_of_base), (world.learned.clone(), 0, vec![]));
            let (found, num_set_aside, said) = reference(&world, &world.cut, is_of_base);
            assert_eq!((&found, num_set_aside), (&world.learned, 3));
            assert!(said.len() == 1 && said[0].contains("without the end-of-text token"), "{said:?}");
            // One of them is enough.
            let mixed = [world.learned[0], world.cut[1], world.learned[2]];
            assert_eq!(reference(&world, &mixed, is_of_base).0, world.learned);
        }
        // Of another model nobody can tell.
        let other = world.learned.iter().map(|logps| ReferenceLogps { chosen: logps.chosen - 3.0, rejected: logps.rejected - 5.0 });
        let other: Vec<ReferenceLogps> = other.collect();
        assert_eq!(reference(&world, &other, false), (other.clone(), 0, vec![]));
        let (found, num_set_aside, said) = reference(&world, &other, true);
        assert_eq!((&found, num_set_aside), (&world.learned, 3));
        assert!(said.len() == 1 && said[0].contains("other tokens"), "{said:?}");
    }
}
