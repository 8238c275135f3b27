//! Rows of demonstrations, and the decisions of trajectories.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, Int32Type};

use super::super::questions::QuestionKind;
use super::super::random::Random;
use super::super::trajectories::{Quality, State, sample};
use super::super::*;
use super::{drawn, text_lists, texts};

/// The prompt of a row, in the wording for small policies.
fn prompt(state: &str, question: &str, thoughts: &str, passages: &[String]) -> String {
    let listed: String = passages.iter().enumerate().map(|(number, contents)| format!("[{}] {contents}\n", number + 1)).collect();
    match state {
        "begin_reasoning" => format!("Question: {question}\nThought:"),
        "reasoning" => format!("Question: {question}\n{thoughts}\nThought:"),
        "evidence_extraction" => format!("Question: {question}\n{thoughts}\n{listed}Evidence:"),
        "answer_generation" => format!("Question: {question}\n{thoughts}\nAnswer:"),
        other => panic!("unknown state {other}"),
    }
}

fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    text.split_once(&format!("<{tag}>"))?.1.split_once(&format!("</{tag}>")).map(|(inner, _)| inner)
}

#[test]
fn rows_follow_the_protocol_and_fit_a_small_context() {
    let options = DemonstrationsOptions { worlds: 5, distractors_min: 2, ..Default::default() };
    let batch = demonstrations(&options).unwrap();
    assert_eq!(batch.schema(), demonstrations_schema());
    let [ids, question_ids, states, asked, thoughts, completions, queries] =
        ["id", "question_id", "state", "question", "thoughts", "completion", "query"].map(|column| texts(&batch, column));
    let shown = text_lists(&batch, "passages");
    let steps = batch["step"].as_primitive::<Int32Type>();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());

    let mut trajectories: BTreeMap<&str, BTreeMap<i32, usize>> = BTreeMap::new();
    (0..batch.num_rows())
        .for_each(|row| assert!(trajectories.entry(&question_ids[row]).or_default().insert(steps.value(row), row).is_none()));
    assert_eq!(trajectories.len(), 300);
    for rows in trajectories.values() {
        let (mut earlier, mut last_query) = (Vec::new(), None);
        for (expected_step, (&step, &row)) in rows.iter().enumerate() {
            let completion = &completions[row];
            assert_eq!((step as usize, &thoughts[row]), (expected_step, &earlier.join("\n")));
            assert!(completion.starts_with(' ') && !completion.ends_with(' '), "{completion:?}");
            match states[row].as_str() {
                "evidence_extraction" => {
                    let evidence = between(completion, "evidence").unwrap();
                    assert!(evidence == "None" || shown[row].iter().any(|contents| contents.contains(evidence)), "{evidence}");
                    assert_eq!((Some(queries[row].clone()), shown[row].len()), (last_query.take(), if evidence == "None" { 2 } else { 3 }));
                }
                "answer_generation" => assert!(completion.starts_with(" So the answer is <answer>")),
                state => {
                    assert_eq!(state == "begin_reasoning", step == 0);
                    assert!(last_query.is_none() && completion.contains(". So the "), "{completion}");
                    last_query = between(completion, "query").map(str::to_owned);
                }
            }
            let ends = between(completion, "answer").is_some();
            assert_eq!(ends, rows.len() == expected_step + 1, "an answer ends the trajectory");
            earlier.push(completion.trim().to_owned());
        }
    }

    let mut lengths: Vec<usize> =
        (0..batch.num_rows()).map(|row| prompt(&states[row], &asked[row], &thoughts[row], &shown[row]).len()).collect();
    let mut with_passages: Vec<usize> = (0..lengths.len()).filter(|row| shown[*row].len() == 3).map(|row| lengths[row]).collect();
    for (name, lengths) in [("all prompts", &mut lengths), ("with three passages", &mut with_passages)] {
        lengths.sort_unstable();
        let at = |percent: usize| lengths[(lengths.len() - 1) * percent / 100];
        println!("{name}: {} rows, characters p50 {} p95 {} max {}", lengths.len(), at(50), at(95), at(100));
        assert!(at(95) <= 1_000);
    }
    println!("rows per trajectory {:.2}", batch.num_rows() as f64 / 300.0);
}

/// Shares of faults, and that the faults are choices: under the same kind of prompt both choices occur, the fault more often.
#[test]
fn faults_are_the_likelier_choice_but_not_the_only_one() {
    let options = DemonstrationsOptions::default();
    let mut random = Random::stream(1, "test");
    let (mut total, mut multi_hop, mut multi_hop_wasted) = (0.0, 0.0, 0.0);
    let mut qualities: BTreeMap<Quality, f64> = BTreeMap::new();
    let mut choices: BTreeMap<(&str, String), f64> = BTreeMap::new();
    for seed in 0..20 {
        let (corpus, questions) = drawn(seed);
        for question in &questions {
            let trajectory = sample(&corpus, question, &options, &mut random);
            let last = trajectory.steps.last().unwrap();
            let right = between(&last.completion, "answer") == Some(question.answer.as_str());
            match trajectory.quality {
                Quality::Clean | Quality::WastedQuery => assert!(right, "{}", question.text),
                Quality::WrongBridge => assert!(!right || trajectory.steps.len() == 3, "{}", question.text),
                Quality::EarlyAnswer => {}
            }
            total += 1.0;
            *qualities.entry(trajectory.quality).or_default() += 1.0;
            if question.kind != QuestionKind::OneHop {
                multi_hop += 1.0;
                multi_hop_wasted += f64::from(u8::from(trajectory.steps.iter().any(|step| step.completion.starts_with(" But"))));
            }
            for step in &trajectory.steps {
                let found = step.thoughts.matches("<evidence>").count() - step.thoughts.matches("<evidence>None").count();
                let situation = match (step.state, question.lookups.len() - found.min(question.lookups.len())) {
                    (State::Reasoning, _) if step.thoughts.contains("But ") => "after a wasted query",
                    (State::Reasoning, _) if step.thoughts.ends_with("<evidence>None</evidence>") => "nothing found",
                    (State::Reasoning, 0) => "all evidence there",
                    (State::Reasoning, 1) if question.text.contains("country") => "city held, country asked",
                    (State::Reasoning, _) => "between hops",
                    _ => continue,
                };
                let decision = step.completion.split_whitespace().next().unwrap().to_owned();
                *choices.entry((situation, decision)).or_default() += 1.0;
            }
        }
    }
    let share = |quality| qualities[&quality] / total;
    println!("qualities {:?}", qualities.iter().map(|(quality, count)| (quality.name(), count / total)).collect::<Vec<_>>());
    println!("multi-hop trajectories with a wasted query {:.3}", multi_hop_wasted / multi_hop);
    let probability = |situation: &str, decision: &str| {
        let all: f64 = choices.iter().filter(|((other, _), _)| *other == situation).map(|(_, count)| count).sum();
        choices
            .iter()
            .filter(|((other, made), _)| (*other, made.as_str()) == (situation, decision))
            .map(|(_, count)| count / all)
            .sum::<f64>()
    };
    choices.keys().for_each(|(situation, decision)| println!("{situation:26} {decision:8} {:.3}", probability(situation, decision)));
    assert!(share(Quality::Clean) >= 0.25);
    assert!((0.15..0.35).contains(&share(Quality::EarlyAnswer)));
    assert!((0.55..0.70).contains(&probability("all evidence there", "But")));
    assert!((0.55..0.70).contains(&probability("city held, country asked", "This")));
    assert!(probability("after a wasted query", "But") < 0.2);
    assert!(probability("between hops", "Now") > 0.6);
}

#[test]
fn without_faults_every_trajectory_is_clean_and_shortest() {
    let options = DemonstrationsOptions {
        wasted: 0.0,
        wrong_bridge: 0.0,
        early_answer: 0.0,
        missing_gold: 0.0,
        forced_answer: 0.0,
        ..Default::default()
    };
    let (corpus, questions) = drawn(3);
    for question in &questions {
        let trajectory = sample(&corpus, question, &options, &mut Random::stream(3, "test"));
        assert_eq!((trajectory.quality, trajectory.steps.len()), (Quality::Clean, 2 * question.lookups.len() + 1));
        assert!(trajectory.steps.iter().all(|step| !step.fault));
    }
}

#[test]
fn evidence_rows_repeat_and_faults_are_weighted() {
    let once = demonstrations(&DemonstrationsOptions { worlds: 1, ..Default::default() }).unwrap();
    let options = DemonstrationsOptions { worlds: 1, evidence_repeat: 3, fault_weight: 0.5, ..Default::default() };
    let thrice = demonstrations(&options).unwrap();
    let evidence = |batch: &RecordBatch| texts(batch, "state").iter().filter(|state| *state == "evidence_extraction").count();
    assert_eq!(evidence(&thrice), 3 * evidence(&once));
    assert_eq!(thrice.num_rows(), once.num_rows() + 2 * evidence(&once));
    let weights = thrice["weight"].as_primitive::<Float32Type>();
    for (weight, completion) in weights.values().iter().zip(texts(&thrice, "completion")) {
        assert!(*weight == 0.5 || !completion.starts_with(" But"), "{completion}");
    }
}

/// What a policy does that takes the likeliest choice at every step: it answers early wherever it is tempted, and else wastes one query.
#[test]
fn greedy_habits_leave_room_for_improvement() {
    let (mut tempted, mut habitual_steps, mut best_steps, mut total) = (0, 0, 0, 0);
    for seed in 0..20 {
        for question in drawn(seed).1 {
            let kinds: Vec<_> = question.lookups.iter().map(|lookup| lookup.relation.object()).collect();
            let hops = kinds.len();
            let early =
                (question.kind != QuestionKind::Comparison).then(|| kinds.iter().position(|kind| *kind == kinds[hops - 1])).flatten();
            let early = early.filter(|place| place + 1 < hops);
            tempted += usize::from(early.is_some());
            habitual_steps += early.map_or(2 * hops + 3, |place| 2 * place + 3);
            best_steps += 2 * hops + 1;
            total += 1;
        }
    }
    let share = |count: usize| count as f64 / total as f64;
    println!("tempted {:.3}; steps by habit {:.2}, at best {:.2}", share(tempted), share(habitual_steps), share(best_steps));
    assert!((0.28..0.38).contains(&share(tempted)));
    assert!(habitual_steps > best_steps);
}

/// Prints a few trajectories to read.
#[test]
fn examples_to_read() {
    let (corpus, questions) = drawn(11);
    let mut random = Random::stream(11, "test");
    for kind in [QuestionKind::TwoHop, QuestionKind::ThreeHop, QuestionKind::Comparison] {
        let question = questions.iter().find(|question| question.kind == kind).expect("300 questions have each kind");
        let trajectory = sample(&corpus, question, &DemonstrationsOptions::default(), &mut random);
        println!("\n{} ({}) gold: {}", question.text, trajectory.quality.name(), question.answer);
        for step in trajectory.steps {
            println!("  {:20}{}", step.state.name(), step.completion);
            step.search.iter().for_each(|search| println!("  {:20}   gold: {}", "", corpus.passages[search.gold].contents));
        }
    }
}
