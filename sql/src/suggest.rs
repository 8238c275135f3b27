//! The nearest known word to a misspelt one.

/// The candidate that the fewest typing slips turn `word` into, if these are at most a third of its letters (and at least 1).
/// Case does not matter.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .iter()
        .map(|candidate| (edit_distance(&word.to_ascii_uppercase(), &candidate.to_ascii_uppercase()), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean X?`, or nothing.
pub(crate) fn did_you_mean(word: &str, candidates: &[&str]) -> String {
    nearest(word, candidates).map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment): `MODLE` is one slip from `MODEL`,
/// where plain Levenshtein counts two.
fn edit_distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut rows = vec![(0..=right.len()).collect::<Vec<_>>()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut distance = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                distance = distance.min(rows[i - 2][j - 2] + 1);
            }
            row.push(distance);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}
