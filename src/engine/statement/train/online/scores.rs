//! What the steps of a trajectory are worth by themselves: by a process reward model, or by a judge of what they found.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::try_join_all;
use rolloutdb_udfs::metrics::{KeptFormat, Outcome, OutcomeReward, prorag_step_reward, relevance_factor};
use rolloutdb_udfs::model::{JudgeOptions, JudgedStep, ModelJudge};

use super::questions::TrainingQuestion;
use super::rewards::golds;
use super::task::StepScores;
use crate::agent::protocol::Protocol;
use crate::agent::{Next, ProcessRewardModel, StepRecord, Trajectory};
use crate::engine::function::judge::model_judge;
use crate::engine::session::Session;
use crate::engine::statement::rollouts::process_reward_model;
use crate::error::Result;
use crate::models::Task;

/// The set of prompts of a judge, and the most tokens of its verdicts, as `judge_relevance` has them by default.
const JUDGE_PROMPTS: &str = "default";
const JUDGE_TOKENS_MAX: usize = 256;

/// A model that scores steps.
pub struct StepScorer {
    model: Scorer,
    /// Steps that it was asked about, and those of them for which it gave no score.
    num_asked: AtomicUsize,
    num_unread: AtomicUsize,
}

enum Scorer {
    Prm { model: Arc<dyn ProcessRewardModel>, has_format: bool },
    Judge { judge: Arc<dyn ModelJudge>, model: String },
}

impl StepScorer {
    /// Opens the model, and puts its version into `scores`, so that a run that goes on asks the same one.
    ///
    /// # Errors
    /// [`crate::Error::UnknownObject`], [`crate::Error::WrongType`] for a model of another task, [`crate::Error::InsufficientPrivilege`]; those of loading it.
    pub async fn open(session: &Session, scores: &mut StepScores) -> Result<Self> {
        let shared = &session.database().shared;
        let model = match scores {
            StepScores::Prm { model, has_format } => {
                let (found, reference) = process_reward_model(session, model).await?;
                *model = reference;
                Scorer::Prm { model: found, has_format: *has_format }
            }
            StepScores::Judge { model } => {
                session.access().require_model(model)?;
                *model = shared.models.find(model, Task::Generate)?.reference();
                Scorer::Judge { judge: model_judge(&shared.catalog, &shared.models), model: model.clone() }
            }
        };
        Ok(Self { model, num_asked: AtomicUsize::new(0), num_unread: AtomicUsize::new(0) })
    }

    /// A score for each step of the trajectory; None where the model has none.
    ///
    /// A process reward model gives a probability, and for the format as ProRAG has it 1 more or 2 less (arXiv:2601.21912). A judge gives R3-RAG's
    /// reward of a step that searched: how relevant is what it found, times a factor for what became of the trajectory (arXiv:2505.23794).
    ///
    /// # Errors
    /// Those of the model.
    pub async fn scores(
        &self,
        protocol: &dyn Protocol,
        question: &TrainingQuestion,
        trajectory: &Trajectory,
        kept: KeptFormat,
    ) -> Result<Vec<Option<f64>>> {
        match &self.model {
            Scorer::Prm { model, has_format } => {
                let values = try_join_all(trajectory.steps.iter().map(|step| model.value(&step.prompt, &step.response))).await?;
                self.count(values.len(), &values);
                let format = |step: &StepRecord| has_format.then(|| protocol.is_well_formed_response(step.state, &step.response));
                let score = |(step, value): (&StepRecord, Option<f64>)| Some(prorag_step_reward(value?, format(step)));
                Ok(trajectory.steps.iter().zip(values).map(score).collect())
            }
            Scorer::Judge { judge, model } => {
                let found: Vec<Vec<&str>> = trajectory.steps.iter().map(contents_found).collect();
                let searched: Vec<usize> = (0..found.len()).filter(|step| !found[*step].is_empty()).collect();
                let case = |step: &usize| JudgedStep {
                    question: &question.question,
                    step: &trajectory.steps[*step].response,
                    passages: &found[*step],
                };
                let cases: Vec<JudgedStep<'_>> = searched.iter().map(case).collect();
                let options = JudgeOptions { prompts: JUDGE_PROMPTS.to_owned(), max_tokens: JUDGE_TOKENS_MAX };
                let rulings = if cases.is_empty() { Vec::new() } else { judge.grade(model, &cases, &options).await? };
                let verdicts: Vec<Option<f64>> = rulings.iter().map(|ruling| ruling.verdict).collect();
                self.count(searched.len(), &verdicts);
                let factor = relevance_factor(is_match(question, trajectory), kept.steps);
                let mut scores = vec![None; found.len()];
                for (step, verdict) in searched.into_iter().zip(verdicts) {
                    scores[step] = verdict.map(|relevance| relevance * factor);
                }
                Ok(scores)
            }
        }
    }

    /// Steps that the model was asked about, and those of them that it gave no score.
    pub fn counts(&self) -> (usize, usize) {
        (self.num_asked.load(Ordering::Relaxed), self.num_unread.load(Ordering::Relaxed))
    }

    fn count(&self, num_asked: usize, scores: &[Option<f64>]) {
        self.num_asked.fetch_add(num_asked, Ordering::Relaxed);
        self.num_unread.fetch_add(scores.iter().filter(|score| score.is_none()).count(), Ordering::Relaxed);
    }
}

/// Checks that the model is there, without loading it.
///
/// # Errors
/// As [`StepScorer::open`].
pub fn check(session: &Session, scores: Option<&StepScores>) -> Result<()> {
    let (model, task) = match scores {
        None => return Ok(()),
        Some(StepScores::Prm { model, .. }) => (model, Task::Rerank),
        Some(StepScores::Judge { model }) => (model, Task::Generate),
    };
    session.access().require_model(model)?;
    session.database().shared.models.find(model, task).map(drop)
}

/// What was found with the step's query.
fn contents_found(step: &StepRecord) -> Vec<&str> {
    let Next::Step(context) = &step.next else { return Vec::new() };
    let retrieved = context.history.last().and_then(|latest| latest.retrieved.as_ref());
    retrieved.map_or_else(Vec::new, |retrieved| retrieved.passages.iter().map(|passage| passage.contents.as_str()).collect())
}

/// Whether the answer is right as R3-RAG compares; None without one.
fn is_match(question: &TrainingQuestion, trajectory: &Trajectory) -> Option<bool> {
    let golds = golds(question);
    let outcome = |answer| Outcome { answer: Some(answer), golds: &golds, well_formed: None, steps: 0.0, alpha: 1.0 };
    trajectory.answer.as_deref().map(|answer| OutcomeReward::R3Rag.of(&outcome(answer)) > 0.0)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use datafusion::error::Result as DataFusionResult;
    use rolloutdb_udfs::model::{JudgedAnswer, Ruling};

    use super::*;
    use crate::agent::testing::{MemoryCorpus, Script, agent_of};
    use crate::agent::{answer, kept_format_of};

    /// Grades a step by the number of passages that it found, none if it asks for nobody; and says of a step how long it is.
    #[derive(Debug)]
    struct Numbers;

    #[async_trait]
    impl ModelJudge for Numbers {
        async fn rule(&self, _: &str, cases: &[JudgedAnswer<'_>], _: &JudgeOptions) -> DataFusionResult<Vec<Ruling>> {
            Ok(vec![Ruling::default(); cases.len()])
        }

        async fn grade(&self, _: &str, cases: &[JudgedStep<'_>], _: &JudgeOptions) -> DataFusionResult<Vec<Ruling>> {
            let verdict = |case: &JudgedStep<'_>| (!case.step.contains("nobody")).then(|| case.passages.len() as f64 / 4.0);
            Ok(cases.iter().map(|case| Ruling { verdict: verdict(case), reply: None }).collect())
        }
    }

    #[async_trait]
    impl ProcessRewardModel for Numbers {
        async fn value(&self, prompt: &str, step: &str) -> Result<Option<f64>> {
            assert!(!prompt.is_empty());
            Ok((!step.contains("nobody")).then_some(0.25))
        }
    }

    async fn scores_of(model: Scorer, protocol: &str, texts: &'static [&'static str]) -> (Vec<Option<f64>>, (usize, usize)) {
        let agent = agent_of(protocol, Script::new(texts), MemoryCorpus::films());
        let question = "When was the director of Jaws born?";
        let trajectory = answer(&agent, Some(question), "q").await.expect("it answers");
        let kept = kept_format_of(&*agent.protocol, &trajectory.steps.iter().collect::<Vec<_>>());
        let question = TrainingQuestion { id: "q".to_owned(), question: question.to_owned(), golden_answers: vec!["1946".to_owned()] };
        let scorer = StepScorer { model, num_asked: AtomicUsize::new(0), num_unread: AtomicUsize::new(0) };
        let scores = scorer.scores(&*agent.protocol, &question, &trajectory, kept).await.expect("no model fails");
        (scores, scorer.counts())
    }

    fn judge() -> Scorer {
        Scorer::Judge { judge: Arc::new(Numbers), model: "judge".to_owned() }
    }

    /// Relevance of what a step found, times 1.6 where the answer is right and 0.8 where it is not (arXiv:2505.23794); a step that searches for nothing has none.
    #[tokio::test]
    async fn a_judge_gives_the_rewards_of_r3rag() {
        const RIGHT: &[&str] = &[
            "Step 1:\nThe problem analysis: Who made it?\nThe retrieval query: Jaws directed",
            "Step 2:\nThe problem analysis: nobody says.\nThe retrieval query: Steven Spielberg born",
            "Step 3:\nThe problem analysis: All is there.\nThe final answer: 1946",
        ];
        const WRONG: &[&str] = &[RIGHT[0], "Step 2:\nThe problem analysis: It says so.\nThe final answer: 1900"];
        let (scores, counts) = scores_of(judge(), "r3rag", RIGHT).await;
        assert_eq!(scores, [Some(2.0 / 4.0 * 1.6), None, None]);
        assert_eq!(counts, (2, 1), "the second verdict could not be read");
        let (scores, _) = scores_of(judge(), "r3rag", WRONG).await;
        assert_eq!(scores, [Some(2.0 / 4.0 * 0.8), None]);
    }

    /// The probability, and 1 more for a step in its format or 2 less (arXiv:2601.21912).
    #[tokio::test]
    async fn a_process_reward_model_and_the_format_give_the_rewards_of_prorag() {
        const TEXTS: &[&str] = &[
            "Who made it?</step>\n<subquery>Jaws directed</subquery>",
            "no step, <subanswer>Steven Spielberg.</subanswer>",
            "nobody knows</step>\n<answer>1946</answer>",
        ];
        for (has_format, expected) in [(true, [Some(1.25), Some(-1.75), None]), (false, [Some(0.25), Some(0.25), None])] {
            let (scores, counts) = scores_of(Scorer::Prm { model: Arc::new(Numbers), has_format }, "prorag", TEXTS).await;
            assert_eq!(scores, expected);
            assert_eq!(counts, (3, 1));
        }
    }
}
