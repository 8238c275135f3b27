//! Coined names: pronounceable words from syllables, each word owned by exactly one split.
//!
//! A coined word belongs to the train split when its stable hash is even and to the test split when it is odd, whatever it names
//! (a person, a film, a city). So two worlds of different splits share no coined word at all. The common words beside them
//! ("Harbor", "Works") are shared: alone they name nothing.

use std::collections::BTreeSet;

use super::options::Split;
use super::random::{Random, stable_hash};

const ONSETS: [&str; 22] =
    ["b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "st", "tr", "gl"];
const VOWELS: [&str; 5] = ["a", "e", "i", "o", "u"];
const CODAS: [&str; 6] = ["n", "r", "l", "s", "m", "k"];
const CITY_ENDINGS: [&str; 8] = ["ton", "mar", "burg", "holm", "dale", "port", "ford", "wick"];
const COUNTRY_ENDINGS: [&str; 5] = ["ia", "land", "ova", "istan", "onia"];
const TITLE_WORDS: [&str; 24] = [
    "Harbor", "Rising", "Garden", "Winter", "River", "Shadow", "Crown", "Mirror", "Bridge", "Summer", "Island", "Letter", "Forest",
    "Tower", "Stone", "Promise", "Journey", "Window", "Silence", "Market", "Dawn", "Road", "Song", "Fire",
];
const COMPANY_WORDS: [&str; 6] = ["Works", "Group", "Labs", "Motors", "Foods", "Lines"];

/// How often a name shares its word with an earlier one: relatives, namesakes and similar titles are the confusers of a search.
const SHARED_LAST_NAME: f64 = 0.4;
const SHARED_FIRST_NAME: f64 = 0.25;
const SHARED_TITLE: f64 = 0.35;
/// More titles on one word would push the right one out of a search's first three.
const TITLES_PER_WORD_MAX: usize = 3;

/// Whether `word` may be coined in worlds of `split`.
pub(super) fn owns(split: Split, word: &str) -> bool {
    let even = stable_hash(&word.to_lowercase()).is_multiple_of(2);
    even == (split == Split::Train)
}

/// The common words that stand beside a coined one in a name.
#[cfg(test)]
pub(super) fn is_common(word: &str) -> bool {
    TITLE_WORDS.contains(&word) || COMPANY_WORDS.contains(&word)
}

/// Gives the names of one world; no name and no coined word of one kind comes again for another.
pub(super) struct Namer {
    split: Split,
    random: Random,
    used: BTreeSet<String>,
}

impl Namer {
    pub(super) fn new(seed: u64, split: Split) -> Self {
        Self { split, random: Random::stream(seed, "names"), used: BTreeSet::new() }
    }

    /// "Tessa Orlin": two coined words.
    pub(super) fn people(&mut self, count: usize) -> Vec<String> {
        let (mut first_names, mut last_names) = (Vec::new(), Vec::new());
        let mut people = BTreeSet::new();
        let mut names = Vec::with_capacity(count);
        while names.len() < count {
            let first = self.new_or_shared(&mut first_names, SHARED_FIRST_NAME, first_name);
            let last = self.new_or_shared(&mut last_names, SHARED_LAST_NAME, last_name);
            let name = format!("{first} {last}");
            if people.insert(name.clone()) {
                names.push(name);
            }
        }
        names
    }

    /// "Velmora" or "Velmora Harbor". Films and books draw from one call, so they confuse each other too.
    pub(super) fn titles(&mut self, count: usize) -> Vec<String> {
        let mut words: Vec<(String, usize)> = Vec::new();
        let mut names = Vec::with_capacity(count);
        while names.len() < count {
            let shared = !words.is_empty() && self.random.chance(SHARED_TITLE);
            let index = if shared { self.random.below(words.len()) } else { words.len() };
            if !shared {
                words.push((self.coin(title_word), 0));
            }
            let (word, titles) = &mut words[index];
            if *titles == TITLES_PER_WORD_MAX {
                continue;
            }
            let bare = !shared && self.random.chance(0.4);
            let name = if bare { word.clone() } else { format!("{word} {}", self.random.pick(&TITLE_WORDS)) };
            if self.used.insert(name.clone()) || bare {
                *titles += 1;
                names.push(name);
            }
        }
        names
    }

    /// "Vodek Works".
    pub(super) fn companies(&mut self, count: usize) -> Vec<String> {
        (0..count)
            .map(|_| {
                let word = self.coin(last_name);
                format!("{word} {}", self.random.pick(&COMPANY_WORDS))
            })
            .collect()
    }

    pub(super) fn cities(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.coin(|random| stem(random) + random.pick(&CITY_ENDINGS))).collect()
    }

    pub(super) fn countries(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.coin(|random| stem(random) + random.pick(&COUNTRY_ENDINGS))).collect()
    }

    fn new_or_shared(&mut self, words: &mut Vec<String>, shared: f64, form: fn(&mut Random) -> String) -> String {
        if words.is_empty() || !self.random.chance(shared) {
            words.push(self.coin(form));
            return words[words.len() - 1].clone();
        }
        words[self.random.below(words.len())].clone()
    }

    /// A capitalised word of this split that the world does not have yet. About every second draw fits, and the bounds of
    /// `WorldOptions` stay far below the number of words of each form, so this ends.
    fn coin(&mut self, form: impl Fn(&mut Random) -> String) -> String {
        loop {
            let word = capitalised(&form(&mut self.random));
            if owns(self.split, &word) && self.used.insert(word.clone()) {
                return word;
            }
        }
    }
}

fn open(random: &mut Random) -> String {
    format!("{}{}", random.pick(&ONSETS), random.pick(&VOWELS))
}

/// A closed syllable, "vel".
fn stem(random: &mut Random) -> String {
    open(random) + random.pick(&CODAS)
}

/// "Tavo", "Mirel".
fn first_name(random: &mut Random) -> String {
    let end = if random.chance(0.5) { "" } else { random.pick(&CODAS) };
    open(random) + &open(random) + end
}

/// "Torvan", "Melki".
fn last_name(random: &mut Random) -> String {
    let end = if random.chance(0.4) { "" } else { random.pick(&CODAS) };
    stem(random) + &open(random) + end
}

/// "Velmo", "Velmora".
fn title_word(random: &mut Random) -> String {
    let end = if random.chance(0.75) { String::new() } else { open(random) };
    stem(random) + &open(random) + &end
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
