//! Options of the tree search and of plain sampling: what `GENERATE ROLLOUTS ... WITH (...)` says.

use rolloutdb_udfs::metrics::Variant;
use serde::{Deserialize, Serialize};

use super::judging::{self, Subject};
use super::options::{
    at_least_zero, choice, count, fraction, integer, out_of_range, penalty, share, temperature, text, top_k, unknown_option,
};
use super::reward::{AnswerReward, RewardOptions};
use crate::error::Result;
use crate::value::Value;

/// How trajectories are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Monte Carlo tree search.
    Mcts,
    /// Independent trajectories: groups for a policy gradient.
    Sample,
    /// Independent trajectories, of which the best is marked.
    #[serde(rename = "best_of_n")]
    BestOfN,
}

/// By which score a child is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selection {
    Uct,
    Puct,
}

/// Who says what a node is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueSource {
    /// The policy runs to the end, and its answer is scored.
    Simulate,
    /// A model's critique of the steps so far.
    Judge,
    /// A trained process reward model.
    Prm,
}

/// What a trajectory's score is worth at the nodes on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Returns {
    /// `score · alpha ^ steps of the whole trajectory`, the same at each of its nodes.
    Spre,
    /// `score · gamma ^ steps from the node to the end`.
    Discounted,
}

/// The tree search: what `GENERATE ROLLOUTS ... WITH (...)` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchOptions {
    pub method: Method,
    /// Simulations per question: walks from the root to a leaf, or sampled trajectories.
    pub simulations: usize,
    /// Actions sampled at a node; equal ones become one child.
    pub children: usize,
    pub selection: Selection,
    /// The constant c of UCT and PUCT.
    pub exploration: f64,
    /// What a trajectory earns at its end.
    #[serde(flatten)]
    pub reward: RewardOptions,
    pub returns: Returns,
    /// Step-length decay α of SPRE, in (0, 1]: 1 does not care how long a trajectory is.
    pub alpha: f64,
    /// Discount γ of discounted returns, in (0, 1].
    pub gamma: f64,
    /// Nodes at this depth get no children.
    pub max_depth: usize,
    /// Completions that value a node in one simulation.
    pub rollouts_per_node: usize,
    pub value: ValueSource,
    /// Model that judges, `name` or `name@version`.
    pub judge: Option<String>,
    /// Template that it is asked by; that of `rollout.prompts` if None.
    pub judge_prompt: Option<String>,
    /// Process reward model, `name` or `name@version`.
    pub prm: Option<String>,
    /// Simulations of one tree that run at the same time, kept apart by virtual losses. Part of what makes a tree, unlike `concurrency`.
    pub parallel: usize,
    /// Of children and completions alike; with 0 all children of a node are the same one.
    pub temperature: f64,
    /// Of completions, if another; 0 is greedy.
    pub rollout_temperature: Option<f64>,
    /// Of sampled trajectories, one after the other, again from the first; empty: `temperature`.
    pub temperatures: Vec<f64>,
    pub top_p: f64,
    /// The most probable tokens to sample from, 0 for all; the agent's unless given. So are the next two.
    pub top_k: Option<usize>,
    pub min_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub seed: i64,
    /// Questions in flight.
    pub concurrency: usize,
}

impl Default for SearchOptions {
    /// Simulations, children, exploration and alpha as in ReasonRAG (arXiv 2505.14069) and its code; temperature, top_p and gamma
    /// as in ProRAG's search (arXiv 2601.21912).
    fn default() -> Self {
        Self {
            method: Method::Mcts,
            simulations: 64,
            children: 2,
            selection: Selection::Uct,
            exploration: std::f64::consts::SQRT_2,
            reward: RewardOptions::default(),
            returns: Returns::Spre,
            alpha: 0.9,
            gamma: 0.99,
            max_depth: 8,
            rollouts_per_node: 1,
            value: ValueSource::Simulate,
            judge: None,
            judge_prompt: None,
            prm: None,
            parallel: 1,
            temperature: 0.9,
            rollout_temperature: None,
            temperatures: Vec::new(),
            top_p: 0.95,
            top_k: None,
            min_p: None,
            repetition_penalty: None,
            seed: 0,
            concurrency: 16,
        }
    }
}

/// PUCT's constant in ProRAG's search.
const PUCT_EXPLORATION: f64 = 2.5;

/// Temperatures that a schedule may have.
const TEMPERATURES_MAX: usize = 64;

/// All options at once.
type Preset = fn() -> SearchOptions;

const METHODS: &[(&str, Method)] = &[("mcts", Method::Mcts), ("sample", Method::Sample), ("best_of_n", Method::BestOfN)];
const SELECTIONS: &[(&str, Selection)] = &[("uct", Selection::Uct), ("puct", Selection::Puct)];
const VALUES: &[(&str, ValueSource)] = &[("simulate", ValueSource::Simulate), ("judge", ValueSource::Judge), ("prm", ValueSource::Prm)];
const RETURNS: &[(&str, Returns)] = &[("spre", Returns::Spre), ("discounted", Returns::Discounted)];
const PRESETS: &[(&str, Preset)] =
    &[("reasonrag", SearchOptions::default), ("prorag", SearchOptions::prorag), ("r3rag", SearchOptions::r3rag)];

impl SearchOptions {
    pub const NAMES: &'static [&'static str] = &[
        "preset",
        "method",
        "simulations",
        "children",
        "selection",
        "exploration",
        "reward",
        "reward_variant",
        "format_reward",
        "redundant_search_penalty",
        "empty_search_penalty",
        "returns",
        "alpha",
        "gamma",
        "max_depth",
        "rollouts_per_node",
        "value",
        "judge",
        "judge_prompt",
        "prm",
        "parallel",
        "temperature",
        "rollout_temperature",
        "temperatures",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "seed",
        "concurrency",
    ];

    /// The options that a statement gives, in any order: a preset is the ground for all others, a selection for its constant.
    ///
    /// # Errors
    /// As [`Self::set`] and [`Self::check`]; [`crate::error::Error::InvalidParameter`] for an option that would have no effect beside the others.
    pub fn of<'a>(values: impl IntoIterator<Item = (&'a str, Value)>) -> Result<Self> {
        let mut values: Vec<(&str, Value)> = values.into_iter().collect();
        values.sort_by_key(|(name, _)| match *name {
            "preset" => 0,
            "selection" | "method" | "temperature" => 1,
            _ => 2,
        });
        let mut options = Self::default();
        for (name, value) in &values {
            options.set(name, value)?;
        }
        options.check()?;
        match values.iter().find_map(|(name, value)| Some((name, value, options.missing_for(name)?))) {
            Some((name, value, expected)) => Err(out_of_range(name, value, expected)),
            None => Ok(Self { reward: options.reward.settled(), ..options }),
        }
    }

    /// What an option that is given must have beside it to have an effect; None if it has one.
    fn missing_for(&self, name: &str) -> Option<&'static str> {
        let searches = self.method == Method::Mcts;
        match name {
            "children" | "selection" | "exploration" | "max_depth" | "parallel" if !searches => Some(
                "method = 'mcts' beside it: trajectories of 'sample' and 'best_of_n' are not searched, and end where the policy ends them",
            ),
            "rollouts_per_node" | "rollout_temperature" if !searches => {
                Some("method = 'mcts' beside it: of 'sample' and 'best_of_n' no node is completed")
            }
            "rollouts_per_node" | "rollout_temperature" if self.value != ValueSource::Simulate => {
                Some("value = 'simulate' beside it: where a model values nodes, none is completed")
            }
            "alpha" if self.returns != Returns::Spre => Some("returns = 'spre' beside it; 'discounted' has gamma"),
            "gamma" if self.returns != Returns::Discounted => Some("returns = 'discounted' beside it; 'spre' has alpha"),
            "temperature" if !self.temperatures.is_empty() => Some("no temperatures beside it, which say it of every trajectory"),
            _ => self.reward.missing_for(name),
        }
    }

    /// A preset sets all options, a selection its usual `exploration` too; a temperature takes the place of a schedule.
    ///
    /// # Errors
    /// As [`super::AgentOptions::set`]; nothing changes then.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "preset" => *self = choice(name, value, PRESETS)?(),
            "method" => {
                self.method = choice(name, value, METHODS)?;
                if self.method == Method::Mcts {
                    self.temperatures.clear();
                }
            }
            "simulations" => self.simulations = count(name, value, 1..=1_000_000)?,
            "children" => self.children = count(name, value, 1..=64)?,
            "selection" => {
                self.selection = choice(name, value, SELECTIONS)?;
                self.exploration = self.selection.usual_exploration();
            }
            "exploration" => self.exploration = at_least_zero(name, value)?,
            "returns" => self.returns = choice(name, value, RETURNS)?,
            "alpha" => self.alpha = share(name, value)?,
            "gamma" => self.gamma = share(name, value)?,
            "max_depth" => self.max_depth = count(name, value, 1..=64)?,
            "rollouts_per_node" => self.rollouts_per_node = count(name, value, 1..=64)?,
            "value" => self.value = choice(name, value, VALUES)?,
            "judge" => self.judge = Some(text(name, value)?),
            "judge_prompt" => self.judge_prompt = Some(judge_template(name, value)?),
            "prm" => self.prm = Some(text(name, value)?),
            "parallel" => self.parallel = count(name, value, 1..=256)?,
            "temperature" => {
                self.temperature = temperature(name, value)?;
                self.temperatures.clear();
            }
            "rollout_temperature" => self.rollout_temperature = Some(temperature(name, value)?),
            "temperatures" => self.temperatures = schedule(name, value)?,
            "top_p" => self.top_p = share(name, value)?,
            "top_k" => self.top_k = Some(top_k(name, value)?),
            "min_p" => self.min_p = Some(fraction(name, value)?),
            "repetition_penalty" => self.repetition_penalty = Some(penalty(name, value)?),
            "seed" => self.seed = integer(name, value)?,
            "concurrency" => self.concurrency = count(name, value, 1..=1024)?,
            _ if self.reward.set(name, value)? => {}
            _ => return Err(unknown_option(name, "GENERATE ROLLOUTS", Self::NAMES)),
        }
        Ok(())
    }

    /// Checks that the options fit together: each model with its source of values, a schedule with sampling, a reward with the returns.
    ///
    /// # Errors
    /// [`crate::error::Error::InvalidParameter`] naming what is missing or would have no effect.
    pub fn check(&self) -> Result<()> {
        if self.method == Method::Sample && self.value != ValueSource::Simulate {
            let expected = "'simulate' with method = 'sample', whose trajectories all end: their answers are scored";
            return Err(out_of_range("value", format!("'{}'", self.value.as_str()), expected));
        }
        if self.reward.reward == AnswerReward::ReasonRag {
            let expected = "'f1' with reward_variant = 'reasonrag' and returns = 'spre' for ReasonRAG's reward: the decay by the steps is the returns', and would count twice";
            return Err(out_of_range("reward", "'reasonrag'", expected));
        }
        let models = [
            ("judge", &self.judge, ValueSource::Judge, "the name of a model with task = 'generate', for value = 'judge'"),
            ("prm", &self.prm, ValueSource::Prm, "the name of a model with task = 'rerank', for value = 'prm'"),
        ];
        for (name, model, source, expected) in models {
            match model {
                None if self.value == source => return Err(out_of_range(name, "(not set)", expected)),
                Some(model) if self.value != source => {
                    return Err(out_of_range(name, format!("'{model}'"), &format!("value = '{name}' beside it")));
                }
                _ => {}
            }
        }
        if self.judge_prompt.is_some() && self.value != ValueSource::Judge {
            return Err(out_of_range("judge_prompt", "a text", "value = 'judge' beside it"));
        }
        if !self.temperatures.is_empty() && self.method == Method::Mcts {
            return Err(out_of_range(
                "temperatures",
                "a schedule",
                "method = 'sample' or 'best_of_n' beside it; a tree search has one temperature",
            ));
        }
        Ok(())
    }

    /// ProRAG's search (arXiv 2601.21912): wide trees by PUCT, discounted returns, greedy completions, answers compared as ProRAG does.
    fn prorag() -> Self {
        Self {
            simulations: 200,
            children: 5,
            selection: Selection::Puct,
            exploration: PUCT_EXPLORATION,
            reward: RewardOptions { reward_variant: Variant::ProRag, ..RewardOptions::default() },
            returns: Returns::Discounted,
            gamma: 0.99,
            max_depth: 10,
            temperature: 0.9,
            top_p: 0.95,
            rollout_temperature: Some(0.0),
            ..Self::default()
        }
    }

    /// The samples of R3-RAG's training (arXiv 2505.23794): four trajectories, from nearly greedy to hot.
    fn r3rag() -> Self {
        Self { method: Method::Sample, simulations: 4, temperatures: vec![0.1, 0.4, 0.7, 1.0], top_p: 1.0, ..Self::default() }
    }

    /// Temperature of the `index`-th sampled trajectory.
    pub(super) fn sample_temperature(&self, index: usize) -> f64 {
        match self.temperatures.len() {
            0 => self.temperature,
            length => self.temperatures[index % length],
        }
    }
}

impl Selection {
    fn usual_exploration(self) -> f64 {
        match self {
            Self::Uct => std::f64::consts::SQRT_2,
            Self::Puct => PUCT_EXPLORATION,
        }
    }
}

impl ValueSource {
    fn as_str(self) -> &'static str {
        match self {
            Self::Simulate => "simulate",
            Self::Judge => "judge",
            Self::Prm => "prm",
        }
    }
}

/// Numbers with commas between them.
fn schedule(name: &str, value: &Value) -> Result<Vec<f64>> {
    let found = text(name, value)?;
    let wrong = || out_of_range(name, format!("'{found}'"), &format!("1 to {TEMPERATURES_MAX} numbers from 0 to 100: '0.1,0.4,0.7,1.0'"));
    let parse = |item: &str| item.trim().parse().ok().filter(|number| (0.0..=100.0).contains(number));
    let schedule: Vec<f64> = found.split(',').map(parse).collect::<Option<_>>().ok_or_else(wrong)?;
    if schedule.len() > TEMPERATURES_MAX { Err(wrong()) } else { Ok(schedule) }
}

fn judge_template(name: &str, value: &Value) -> Result<String> {
    let template = text(name, value)?;
    judging::check(&template, Subject::Steps.placeholders(), name)?;
    Ok(template)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use Value::{Float, Int};

    fn word(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    fn error(values: &[(&str, Value)], expected: Expect) {
        expected.assert_eq(&SearchOptions::of(values.iter().cloned()).unwrap_err().to_string());
    }

    #[test]
    fn errors_say_what_would_be_right() {
        error(&[("alpha", Int(0))], expect!["alpha = 0: expected a number above 0 and at most 1"]);
        error(&[("gamma", Float(1.01))], expect!["gamma = 1.01: expected a number above 0 and at most 1"]);
        error(&[("exploration", Float(-1.0))], expect!["exploration = -1: expected a number of at least 0"]);
        error(&[("simulations", Int(0))], expect!["simulations = 0: expected an integer from 1 to 1000000"]);
        error(&[("parallel", Int(0))], expect!["parallel = 0: expected an integer from 1 to 256"]);
        error(&[("min_p", Float(-0.1))], expect!["min_p = -0.1: expected a number from 0 to 1"]);
        error(&[("method", word("mtcs"))], expect!["method = 'mtcs': expected 'mcts', 'sample' or 'best_of_n'; did you mean 'mcts'?"]);
        error(&[("selection", word("greedy"))], expect!["selection = 'greedy': expected 'uct' or 'puct'"]);
        error(
            &[("returns", word("discount"))],
            expect!["returns = 'discount': expected 'spre' or 'discounted'; did you mean 'discounted'?"],
        );
        error(
            &[("preset", word("prorga"))],
            expect!["preset = 'prorga': expected 'reasonrag', 'prorag' or 'r3rag'; did you mean 'prorag'?"],
        );
        error(
            &[("method", word("sample")), ("temperatures", word("0.1;0.4"))],
            expect!["temperatures = '0.1;0.4': expected 1 to 64 numbers from 0 to 100: '0.1,0.4,0.7,1.0'"],
        );
        error(
            &[("judge_prompt", word("{qestion} {steps}"))],
            expect![[
                r#"unknown placeholder "qestion" of judge_prompt; did you mean "question"?; it has: question, golden_answers, steps"#
            ]],
        );
        error(
            &[("judge_prompt", word("{question} {steps}"))],
            expect!["judge_prompt = a text without {golden_answers}: expected a text with {question}, {golden_answers} and {steps}"],
        );
    }

    #[test]
    fn options_that_do_not_fit_together() {
        error(
            &[("value", word("judge"))],
            expect!["judge = (not set): expected the name of a model with task = 'generate', for value = 'judge'"],
        );
        error(&[("prm", word("m"))], expect!["prm = 'm': expected value = 'prm' beside it"]);
        error(
            &[("method", word("sample")), ("value", word("prm")), ("prm", word("m"))],
            expect!["value = 'prm': expected 'simulate' with method = 'sample', whose trajectories all end: their answers are scored"],
        );
        error(
            &[("reward", word("reasonrag"))],
            expect![
                "reward = 'reasonrag': expected 'f1' with reward_variant = 'reasonrag' and returns = 'spre' for ReasonRAG's reward: the decay by the steps is the returns', and would count twice"
            ],
        );
        error(
            &[("temperatures", word("1,2"))],
            expect!["temperatures = a schedule: expected method = 'sample' or 'best_of_n' beside it; a tree search has one temperature"],
        );
    }

    #[test]
    fn options_without_effect() {
        for method in ["sample", "best_of_n"] {
            let options = [("children", Int(3)), ("selection", word("puct")), ("exploration", Int(1)), ("max_depth", Int(3))];
            let more = [("parallel", Int(2)), ("rollouts_per_node", Int(2)), ("rollout_temperature", Int(0))];
            for (name, value) in options.into_iter().chain(more) {
                let error = SearchOptions::of([("method", word(method)), (name, value.clone())]).unwrap_err().to_string();
                assert!(error.starts_with(&format!("{name} = {value}: expected method = 'mcts' beside it: ")), "{error}");
            }
        }
        error(
            &[("exploration", Float(0.5)), ("method", word("best_of_n"))],
            expect![
                "exploration = 0.5: expected method = 'mcts' beside it: trajectories of 'sample' and 'best_of_n' are not searched, and end where the policy ends them"
            ],
        );
        error(
            &[("value", word("prm")), ("prm", word("m")), ("rollouts_per_node", Int(2))],
            expect!["rollouts_per_node = 2: expected value = 'simulate' beside it: where a model values nodes, none is completed"],
        );
        error(
            &[("format_reward", Value::Bool(true))],
            expect!["format_reward = true: expected reward = 'prorag', 'search_r1' or 'r3rag' beside it"],
        );
        error(
            &[("reward", word("r3rag")), ("reward_variant", word("squad"))],
            expect!["reward_variant = 'squad': expected reward = 'f1' or 'em' beside it: a published reward compares as its system does"],
        );
        error(&[("gamma", Float(0.5))], expect!["gamma = 0.5: expected returns = 'discounted' beside it; 'spre' has alpha"]);
        error(
            &[("preset", word("prorag")), ("alpha", Float(0.5))],
            expect!["alpha = 0.5: expected returns = 'spre' beside it; 'discounted' has gamma"],
        );
        error(
            &[("method", word("sample")), ("temperature", Int(1)), ("temperatures", word("0,1"))],
            expect!["temperature = 1: expected no temperatures beside it, which say it of every trajectory"],
        );
        // What a preset says is no word of the statement's.
        assert!(SearchOptions::of([("preset", word("prorag")), ("method", word("sample")), ("gamma", Float(0.5))]).is_ok());
    }

    #[test]
    fn presets_and_selections_come_first_wherever_they_stand() {
        let options = |values: &[(&str, Value)]| SearchOptions::of(values.iter().cloned()).unwrap();
        assert_eq!(options(&[("preset", word("reasonrag"))]), SearchOptions::default());
        let prorag = options(&[("simulations", Int(16)), ("preset", word("prorag"))]);
        assert_eq!((prorag.simulations, prorag.children, prorag.exploration, prorag.selection), (16, 5, 2.5, Selection::Puct));
        assert_eq!((prorag.returns, prorag.gamma, prorag.rollout_temperature), (Returns::Discounted, 0.99, Some(0.0)));
        let puct = options(&[("exploration", Float(0.5)), ("selection", word("puct"))]);
        assert_eq!((puct.exploration, options(&[("selection", word("puct"))]).exploration), (0.5, 2.5));
        let sample = options(&[("preset", word("r3rag")), ("simulations", Int(6))]);
        let temperatures: Vec<f64> = (0..6).map(|index| sample.sample_temperature(index)).collect();
        assert_eq!(temperatures, [0.1, 0.4, 0.7, 1.0, 0.1, 0.4]);
        assert_eq!(options(&[("method", word("best_of_n")), ("value", word("prm")), ("prm", word("p"))]).method, Method::BestOfN);
    }

    /// An option that says what holds without it makes the same trees.
    #[test]
    fn a_format_that_counts_as_published_is_no_other_option() {
        let options = |values: &[(&str, Value)]| SearchOptions::of(values.iter().cloned()).unwrap();
        let prorag = options(&[("reward", word("prorag"))]);
        assert_eq!(options(&[("reward", word("prorag")), ("format_reward", Value::Bool(true))]), prorag);
        assert_eq!(options(&[("reward", word("prorag")), ("format_reward", word("on"))]), prorag);
        let without = options(&[("format_reward", Int(0)), ("reward", word("prorag"))]);
        assert!(without != prorag && !without.reward.has_format() && prorag.reward.has_format());
    }

    #[test]
    fn every_listed_name_can_be_set() {
        let mut words = vec![Int(1)];
        words.push(Value::Bool(true));
        words.extend(["prorag", "em", "sample", "puct", "discounted", "judge", "0.1,1", "{question} {golden_answers} {steps}"].map(word));
        for name in SearchOptions::NAMES {
            assert!(words.iter().any(|value| SearchOptions::default().set(name, value).is_ok()), "{name}");
        }
    }

    /// The table keeps them as JSON; one that an older version wrote has fewer.
    #[test]
    fn options_are_stored_as_json() {
        let options = SearchOptions { judge: Some("j@2".to_owned()), value: ValueSource::Judge, ..SearchOptions::prorag() };
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<SearchOptions>(&json).unwrap(), options);
        assert_eq!(serde_json::to_value(&options).unwrap()["reward_variant"], "prorag", "all stand side by side");
        let older: SearchOptions = serde_json::from_str(r#"{"simulations":8,"exploration":1.0}"#).unwrap();
        assert_eq!(older, SearchOptions { simulations: 8, exploration: 1.0, ..SearchOptions::default() });
    }
}
