use super::*;

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// A word of fifty, the first ones far more often.
    fn word(&mut self) -> String {
        let bound = [2, 6, 50][self.below(3)];
        format!("word{}", self.below(bound))
    }

    fn document(&mut self) -> Vec<String> {
        let length = [0, 3, 3, 10, 40][self.below(5)];
        (0..length).map(|_| self.word()).collect()
    }

    fn bits(&mut self, len: usize, one_in: usize) -> Vec<bool> {
        (0..len).map(|_| self.below(one_in) == 0).collect()
    }
}

fn words(bits: &[bool]) -> Vec<u64> {
    bits.chunks(64).map(|chunk| chunk.iter().rev().fold(0, |word, bit| word << 1 | u64::from(*bit))).collect()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn of<'a>(terms: &[&'a str]) -> Vec<Term<'a>> {
    terms.iter().copied().map(Term::from).collect()
}

fn builder(documents: &[Vec<String>], segment_documents: usize) -> PostingsBuilder {
    let mut builder = PostingsBuilder::with_segments_of(segment_documents);
    documents.iter().for_each(|document| {
        document.iter().for_each(|token| builder.push_token(token));
        builder.end_document();
    });
    builder
}

/// The formula of the module, word by word.
fn naive(documents: &[Vec<String>], live: &[bool], terms: &[&str], k: usize, accept: &[bool]) -> Vec<(f32, u32)> {
    let counted: Vec<_> = documents.iter().zip(live).filter(|(d, live)| **live && !d.is_empty()).map(|(d, _)| d).collect();
    let total_tokens: usize = counted.iter().map(|document| document.len()).sum();
    let average = total_tokens as f32 / counted.len() as f32;
    let holders = |term| counted.iter().filter(|document| document.iter().any(|word| word == term)).count() as f32;
    let idf = |holders: f32| ((counted.len() as f32 - holders + 0.5) / (holders + 0.5) + 1.0).ln();
    let idfs: Vec<f32> = terms.iter().map(|term| idf(holders(*term))).collect();
    let mut hits = Vec::new();
    for (number, document) in documents.iter().enumerate().filter(|(number, _)| live[*number] && accept[*number]) {
        let norm = 1.2_f32 * (1.0 - 0.75 + 0.75 * document.len() as f32 / average);
        let mut score = 0.0_f32;
        for (term, idf) in terms.iter().zip(&idfs) {
            let frequency = document.iter().filter(|word| word == term).count() as f32;
            score += idf * ((1.2 + 1.0) * frequency / (frequency + norm));
        }
        if document.iter().any(|word| terms.contains(&word.as_str())) {
            hits.push((score, number as u32));
        }
    }
    hits.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let least = k.checked_sub(1).map_or(f32::INFINITY, |last| hits.get(last).map_or(0.0, |hit| hit.0));
    hits.into_iter().filter(|hit| hit.0 >= least).collect()
}

fn assert_same_bits(found: &[(f32, u32)], expected: &[(f32, u32)], what: &str) {
    let bits = |hits: &[(f32, u32)]| hits.iter().map(|(score, document)| (score.to_bits(), *document)).collect::<Vec<_>>();
    assert_eq!(bits(found), bits(expected), "{what}\nfound {found:?}\nexpected {expected:?}");
}

/// Random queries: pruned or not, the results are those of `naive`.
fn check_queries(random: &mut Random, postings: &Postings, documents: &[Vec<String>], live: &[bool], what: &str) {
    assert_eq!(postings.num_documents(), documents.len());
    for _ in 0..8 {
        let num_terms = [0, 1, 2, 5, 12][random.below(5)];
        let mut terms: Vec<String> = (0..num_terms).map(|_| random.word()).collect();
        if random.below(4) == 0 {
            terms.insert(0, "unknown".to_owned());
        }
        let terms = strs(&terms);
        let k = [0, 1, 3, 10, 1000, usize::MAX][random.below(6)];
        let one_in = [1, 2, 50][random.below(3)];
        let accept = random.bits(documents.len(), one_in);
        let filter = (one_in > 1).then(|| words(&accept));
        let expected = naive(documents, live, &terms, k, &accept);
        for may_prune in [true, false] {
            let found = postings.search_with(&of(&terms), k, filter.as_deref(), may_prune);
            assert_same_bits(&found, &expected, &format!("{what}, {terms:?}, k {k}, one in {one_in}, may_prune {may_prune}"));
        }
    }
}

#[test]
fn as_the_naive_implementation() {
    for seed in 1..40 {
        let mut random = Random(seed * 0x9e37_79b9);
        let segment_documents = [5, 64, 100, SEGMENT_DOCUMENTS][random.below(4)];
        let mut documents: Vec<Vec<String>> = (0..random.below(300)).map(|_| random.document()).collect();
        let mut live = vec![true; documents.len()];
        let mut postings = builder(&documents, segment_documents).finish();
        for step in 0..4 {
            check_queries(&mut random, &postings, &documents, &live, &format!("seed {seed}, step {step}"));
            if step % 2 == 0 {
                let one_in = [3, 100][random.below(2)];
                let dead = random.bits(documents.len(), one_in);
                live = dead.iter().map(|dead| !dead).collect();
                postings.set_live(&words(&live));
                check_queries(&mut random, &postings, &documents, &live, &format!("seed {seed}, step {step}, deleted"));
            }
            let num_more = [0, 1, 70][random.below(3)];
            let more: Vec<Vec<String>> = (0..num_more).map(|_| random.document()).collect();
            postings.append(builder(&more, segment_documents));
            documents.extend(more);
            live.resize(documents.len(), true);
        }
    }
}

/// Appending one by one keeps few segments, and leaves earlier clones as they were.
#[test]
fn appended_one_by_one() {
    let mut random = Random(7);
    let documents: Vec<Vec<String>> = (0..150).map(|_| random.document()).collect();
    let mut postings = builder(&[], 100).finish();
    let mut earlier = postings.clone();
    for (number, document) in documents.iter().enumerate() {
        postings.append(builder(std::slice::from_ref(document), 100));
        if number == 99 {
            earlier = postings.clone();
        }
    }
    assert!(postings.parts.len() <= 8, "{} segments", postings.parts.len());
    let whole = builder(&documents, 100).finish();
    let first = builder(&documents[..100], 100).finish();
    let terms = ["word1", "word5", "word20"];
    assert_same_bits(&postings.search(&of(&terms), 10, None), &whole.search(&of(&terms), 10, None), "all");
    assert_same_bits(&earlier.search(&of(&terms), 10, None), &first.search(&of(&terms), 10, None), "the first hundred");
}

/// A rare word decides, and the list of the frequent one is left out of all segments but the first.
#[test]
fn leaves_long_lists_out() {
    let mut random = Random(11);
    let mut documents: Vec<Vec<String>> = (0..2000).map(|_| vec!["frequent".to_owned(); 1 + random.below(5)]).collect();
    for number in (3..2000).step_by(50) {
        documents[number].extend(["rare".to_owned(), random.word()]);
    }
    let postings = builder(&documents, 500).finish();
    let terms = ["frequent", "rare", "frequent"];
    let lists = postings.lists(&of(&terms));
    let part = &postings.parts[0];
    let search = PartSearch { part, lists: &lists[..3], accept: None, may_prune: true };
    let hits = postings.search(&of(&terms), 10, None);
    let optional = search.optional(f64::from(hits[9].0) / search.margin());
    assert_eq!(optional.iter().map(|bounded| bounded.list.place).collect::<Vec<_>>(), [0, 2]);
    let live = vec![true; documents.len()];
    assert_same_bits(&hits, &naive(&documents, &live, &terms, 10, &live), "rare and frequent");
}

/// Equal documents all tie with the k-th, over the bounds of segments.
#[test]
fn ties_are_complete() {
    let documents: Vec<Vec<String>> = (0..1000).map(|number| vec!["same".to_owned(), format!("own{number}")]).collect();
    let postings = builder(&documents, 300).finish();
    let found = postings.search(&of(&["same"]), 1, None);
    assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
    let found = postings.search(&of(&["same", "own500"]), 1, None);
    assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), [500]);
    assert!(postings.memory_bytes() > 1000 * 2 * 4);
}

/// Without a document there is nothing to find. A score of 0, which f32 gives to a term that tens of millions of documents
/// all hold, is a match too.
#[test]
fn extremes() {
    let mut postings = PostingsBuilder::new().finish();
    assert_eq!(postings.search(&of(&["word"]), 10, None), []);
    postings.append(builder(&[vec!["word".to_owned()], vec![]], 10));
    postings.set_live(&[0]);
    assert_eq!(postings.search(&of(&["word"]), 10, None), []);
    postings.set_live(&[]);
    postings.parts[0].weights = [0.0].into();
    assert_eq!(postings.search(&of(&["word"]), 10, None), [(0.0, 0)]);
}

/// `tomx` counts as much as `tom`, times its boost; without a group it would count more, being rarer.
#[test]
fn a_group_shares_the_frequency_of_its_most_frequent_term() {
    let texts = ["tom", "tom", "tomx", "other"];
    let documents: Vec<Vec<String>> = texts.iter().map(|text| vec![(*text).to_owned()]).collect();
    let postings = builder(&documents, 3).finish();
    let term = |text, boost| Term { text, boost, group: Some(7) };
    let found = postings.search(&[term("tom", 1.0), term("tomx", 0.5)], 10, None);
    assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(found[2].0, found[0].0 * 0.5);
    assert!(postings.search(&of(&["tom", "tomx"]), 10, None)[0].1 == 2);
    let mut holders = Vec::new();
    postings.for_each_holder(&of(&["tomx", "other", "none"]), |document| holders.push(document));
    assert_eq!(holders, [2, 3]);
    assert_eq!(postings.terms().collect::<Vec<_>>(), ["tom", "tomx", "other"]);
}

/// Computed in Python with f64: `idf * 2.2 * f / (f + 1.2 * (0.25 + 0.75 * length / average))`.
#[test]
fn a_known_score() {
    let texts = ["a b b c", "a c c", "b d", ""];
    let documents: Vec<Vec<String>> = texts.iter().map(|text| text.split_whitespace().map(str::to_owned).collect()).collect();
    let found = builder(&documents, 10).finish().search(&of(&["b", "d", "b"]), 2, None);
    assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), [2, 0]);
    assert!((found[0].0 - 2.224_126_5).abs() < 1e-6 && (found[1].0 - 1.181_723_4).abs() < 1e-6, "{found:?}");
}
