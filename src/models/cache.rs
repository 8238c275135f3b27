//! Answers of models, kept: a model version never changes, so that the same input has the same answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::registry::ModelInfo;

/// Bytes of inputs and answers that one cache holds, give or take one answer.
const BYTES_MAX: usize = 64 << 20;

/// What a model was asked: its version, the input, and all that its answer depends on besides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// `name@version` and when that was made: the name of a dropped model may be taken again.
    model: Arc<(String, i64)>,
    input: String,
}

/// The answers of the last questions, by two generations: a full new one becomes the old one, which is forgotten, and an answer that is asked for
/// again moves to the new one.
#[derive(Debug)]
pub struct Cache<T> {
    generations: Mutex<Generations<T>>,
    bytes_max: usize,
}

#[derive(Debug)]
struct Generations<T> {
    new: HashMap<Question, T>,
    old: HashMap<Question, T>,
    new_bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self::with_bytes(BYTES_MAX)
    }
}

impl<T> Cache<T> {
    fn with_bytes(bytes_max: usize) -> Self {
        Self { generations: Mutex::new(Generations { new: HashMap::new(), old: HashMap::new(), new_bytes: 0 }), bytes_max }
    }
}

impl Question {
    /// One question per input, in order.
    pub fn all(info: &ModelInfo, inputs: impl Iterator<Item = String>) -> Vec<Self> {
        let model = Arc::new((info.reference(), info.created_at_ms));
        inputs.map(|input| Self { model: Arc::clone(&model), input }).collect()
    }
}

impl<T: Clone> Cache<T> {
    /// The answers that are there.
    pub fn get(&self, questions: &[Question], bytes: impl Fn(&T) -> usize) -> Vec<Option<T>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut get = |question: &Question| match generations.new.get(question) {
            Some(answer) => Some(answer.clone()),
            None => {
                let (question, answer) = generations.old.remove_entry(question)?;
                self.insert(&mut generations, question, answer.clone(), &bytes);
                Some(answer)
            }
        };
        questions.iter().map(&mut get).collect()
    }

    pub fn put(&self, answers: impl Iterator<Item = (Question, T)>, bytes: impl Fn(&T) -> usize) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        answers.for_each(|(question, answer)| self.insert(&mut generations, question, answer, &bytes));
    }

    /// Forgets the answers of models, `name@version`. They go on counting as bytes till the next generation.
    pub fn forget(&self, models: &[String]) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |question: &Question, _: &mut T| !models.contains(&question.model.0);
        generations.new.retain(stays);
        generations.old.retain(stays);
    }

    fn insert(&self, generations: &mut Generations<T>, question: Question, answer: T, bytes: impl Fn(&T) -> usize) {
        generations.new_bytes += size_of::<(Question, T)>() + question.input.len() + bytes(&answer);
        generations.new.insert(question, answer);
        if generations.new_bytes * 2 > self.bytes_max {
            generations.old = std::mem::take(&mut generations.new);
            generations.new_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(input: &str) -> Question {
        Question { model: Arc::new(("m@1".to_owned(), 7)), input: input.to_owned() }
    }

    #[test]
    fn what_is_asked_again_stays_and_the_rest_is_forgotten() {
        let cache = Cache::with_bytes(4_000);
        let get = |input: &str| cache.get(&[question(input)], |_| 100).remove(0);
        cache.put([(question("kept"), 1), (question("lost"), 2)].into_iter(), |_| 100);
        for number in 0..200 {
            cache.put([(question(&number.to_string()), number)].into_iter(), |_| 100);
            assert_eq!(get("kept"), Some(1), "{number}");
        }
        assert_eq!((get("lost"), get("199"), get("0")), (None, Some(199), None));
        let another = Question { model: Arc::new(("m@1".to_owned(), 8)), input: "kept".to_owned() };
        assert_eq!(cache.get(&[another], |_| 100), [None]);
        cache.forget(&["n@1".to_owned()]);
        assert_eq!(get("kept"), Some(1));
        cache.forget(&["n@1".to_owned(), "m@1".to_owned()]);
        assert_eq!((get("kept"), get("199")), (None, None));
    }
}
