//! Rejection sampling: which rows TRAIN RFT learns from.

use std::collections::HashMap;

use super::{Content, Row};
use crate::error::{Error, Result};
use crate::training::RftOptions;

/// Rewards that an error names, the largest first.
const REWARDS_SHOWN: usize = 5;

/// The rows that RFT learns from: of reward and score enough, and of each prompt the best.
///
/// # Errors
/// [`Error::NotReady`] if there are none, with the rewards that there are.
pub fn good_enough(rows: Vec<Row>, options: &RftOptions) -> Result<Vec<Row>> {
    let is_kept = kept(&rows, options);
    if !is_kept.contains(&true) {
        return Err(Error::NotReady(none_is_good(&rows, options)));
    }
    Ok(rows.into_iter().zip(is_kept).filter_map(|(row, is_kept)| is_kept.then_some(row)).collect())
}

fn kept(rows: &[Row], options: &RftOptions) -> Vec<bool> {
    let is_good = |row: &Row| row.reward >= options.min_reward && options.min_score.is_none_or(|least| row.score >= least);
    let mut by_prompt: HashMap<&Content, Vec<usize>> = HashMap::new();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| is_good(row)) {
        by_prompt.entry(&row.prompt).or_default().push(index);
    }
    let mut is_kept = vec![false; rows.len()];
    for mut indices in by_prompt.into_values() {
        // Stable: of equals the first in the order of the rows.
        indices.sort_by(|a, b| rows[*b].reward.total_cmp(&rows[*a].reward).then(rows[*b].score.total_cmp(&rows[*a].score)));
        indices.iter().take(options.per_prompt.unwrap_or(usize::MAX)).for_each(|index| is_kept[*index] = true);
    }
    is_kept
}

fn none_is_good(rows: &[Row], options: &RftOptions) -> String {
    let mut counts: Vec<(f64, usize)> = Vec::new();
    let mut rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    rewards.sort_by(|a, b| b.total_cmp(a));
    for reward in rewards {
        match counts.last_mut() {
            Some((last, count)) if *last == reward => *count += 1,
            _ => counts.push((reward, 1)),
        }
    }
    let mut found: Vec<String> = counts.iter().take(REWARDS_SHOWN).map(|(reward, count)| format!("{count} with {reward}")).collect();
    if counts.len() > REWARDS_SHOWN {
        found.push("the others with less".to_owned());
    }
    let score = options.min_score.map(|least| format!(" and a score of at least {least}")).unwrap_or_default();
    let advice = if options.min_score.is_some() { "lower min_reward or min_score" } else { "lower min_reward" };
    format!(
        "TRAIN RFT needs rows with a reward of at least {}{score}; its query gives {} rows: {}; {advice}, or sample more",
        options.min_reward,
        rows.len(),
        found.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{completions, sample};
    use super::*;

    #[test]
    fn rejection_sampling_keeps_the_best_of_each_prompt() {
        let rows = vec![
            sample("p", "a", 1.0, 0.1),
            sample("q", "b", 0.5, 0.9),
            sample("p", "c", 1.0, 0.7),
            sample("q", "d", 1.0, 0.2),
            sample("p", "e", 2.0, 0.0),
        ];
        let kept = |options: RftOptions| good_enough(rows.clone(), &options).expect("some rows are good enough");
        assert_eq!(completions(&kept(RftOptions::default())), ["a", "c", "d", "e"]);
        assert_eq!(completions(&kept(RftOptions { min_reward: 0.5, ..RftOptions::default() })), ["a", "b", "c", "d", "e"]);
        // The larger reward first, then the larger score; what is left stands in the order of the rows.
        assert_eq!(completions(&kept(RftOptions { per_prompt: Some(2), ..RftOptions::default() })), ["c", "d", "e"]);
        assert_eq!(completions(&kept(RftOptions { min_score: Some(0.2), ..RftOptions::default() })), ["c", "d"]);
    }

    #[test]
    fn where_no_sample_is_good_enough_the_error_tells_the_rewards() {
        let rewards = [0.0, 0.5, 0.0, 0.75, 0.1, 0.2, 0.3];
        let rows: Vec<Row> = rewards.iter().map(|reward| sample("p", "a", *reward, 0.0)).collect();
        let error = good_enough(rows, &RftOptions::default()).expect_err("no reward is 1");
        assert_eq!(
            error.to_string(),
            "TRAIN RFT needs rows with a reward of at least 1; its query gives 7 rows: 1 with 0.75, 1 with 0.5, 1 with 0.3, 1 with 0.2, 1 with 0.1, \
             the others with less; lower min_reward, or sample more"
        );
    }
}
