//! HopWorld: a seeded, pure generator of a small fictional world for multi-hop question answering.
//!
//! A world is people, films, books, companies, cities and countries with coined names, and the relations between them. From it come
//! a corpus ([`passages`]), questions of one to three hops with their supporting passages ([`questions`]), and demonstrations of the
//! `reasonrag` protocol ([`demonstrations`]) from which a tiny policy learns to search, to copy and to answer.
//!
//! - Everything is a function of its options: the same options give the same bytes on every machine (integer arithmetic, an own
//!   generator of random numbers, no hash-map order).
//! - Worlds of the train split and of the test split share no coined word, whatever their seeds (`names.rs`), so answering an unseen
//!   world takes retrieval and copying, not memory.
//! - Demonstrations are of mixed quality on purpose (`trajectories.rs`), so that process supervision has something to improve.
//!
//! ```text
//! options ─► world ─► passages ─► bm25 ─┐
//!              └────► questions ────────┴─► trajectories ─► demonstrations
//! ```
//!
//! This module knows Arrow, and nothing of DataFusion, SQL, models or files.

mod bm25;
mod completions;
mod demonstrations;
mod names;
mod options;
mod passages;
mod question_forms;
mod questions;
mod random;
mod relations;
mod trajectories;
mod world;

#[cfg(test)]
mod tests;

pub use demonstrations::{demonstrations, demonstrations_schema};
pub use options::{DemonstrationsOptions, Error, QuestionMix, QuestionsOptions, Result, Split, WorldOptions};
pub use passages::{passages, passages_schema};
pub use questions::{questions, questions_schema};
