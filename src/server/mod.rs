//! The Postgres wire: clients in, `RecordBatch` streams out.
//!
//! A connection has one [`Session`](crate::engine::Session). Text goes to `Session::parse`, statements to `Session::execute`; what
//! comes back is encoded row by row while it is being computed, so a result is never held in memory, progress reaches the client
//! as notices, and a cancelled statement is a dropped stream.
//!
//! Deliberately absent: how anything is computed. This module knows the protocol (`pgwire`), Postgres' types and SQLSTATEs.

mod columns;
mod connection;
mod deallocate;
mod extended;
mod interrupt;
mod json;
mod listener;
mod numeric;
mod parameters;
mod response;
mod rows;
mod running;
mod simple;
pub mod sqlstate;
mod startup;
mod vector;

pub use listener::{require_loopback, serve};
pub use sqlstate::sqlstate;
