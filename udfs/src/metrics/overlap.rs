//! Bag-of-words overlap of two normalised answers, under F1, precision and recall.

use std::collections::HashMap;

use super::variant::{Variant, words};

/// Shares of words in common, counting repeats: of the prediction's words, and of the gold answer's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overlap {
    pub precision: f64,
    pub recall: f64,
}

const NOTHING: Overlap = Overlap { precision: 0.0, recall: 0.0 };

/// Where the variant says so, `yes`, `no` and `noanswer` on either side must match exactly.
///
/// Two answers without words have nothing in common, so they score 0 here although they match exactly.
pub(super) fn overlap(variant: Variant, prediction: &str, gold: &str) -> Overlap {
    if variant.has_verdicts() && prediction != gold && (is_verdict(prediction) || is_verdict(gold)) {
        return NOTHING;
    }
    let mut unmatched: HashMap<&str, usize> = HashMap::new();
    words(gold).for_each(|word| *unmatched.entry(word).or_default() += 1);
    let gold_count: usize = unmatched.values().sum();
    let (mut prediction_count, mut common_count) = (0, 0);
    for word in words(prediction) {
        prediction_count += 1;
        if let Some(count) = unmatched.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            common_count += 1;
        }
    }
    if common_count == 0 {
        return NOTHING;
    }
    let common = f64::from(common_count);
    Overlap { precision: common / f64::from(prediction_count), recall: common / gold_count as f64 }
}

fn is_verdict(answer: &str) -> bool {
    matches!(answer, "yes" | "no" | "noanswer")
}

#[cfg(test)]
mod tests {
    use super::super::Variant::{ReasonRag, Squad};
    use super::{NOTHING, Overlap, overlap};

    #[test]
    fn counts_repeats_once_each() {
        assert_eq!(overlap(Squad, "new new york", "new york city"), Overlap { precision: 2.0 / 3.0, recall: 2.0 / 3.0 });
        assert_eq!(overlap(Squad, "york", "new york"), Overlap { precision: 1.0, recall: 0.5 });
    }

    #[test]
    fn verdicts_match_exactly_or_not_at_all() {
        assert_eq!(overlap(Squad, "no idea", "no"), NOTHING);
        assert_eq!(overlap(Squad, "yes", "yes it is"), NOTHING);
        assert_eq!(overlap(Squad, "yes", "yes"), Overlap { precision: 1.0, recall: 1.0 });
        assert_eq!(overlap(ReasonRag, "no idea", "no"), Overlap { precision: 0.5, recall: 1.0 });
    }

    #[test]
    fn empty_answers_have_nothing_in_common() {
        assert_eq!(overlap(Squad, "", ""), NOTHING);
        assert_eq!(overlap(Squad, "paris", ""), NOTHING);
    }
}
