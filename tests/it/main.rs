//! The integration tests, one binary: SQL scripts, the server, durability, documents and real data.

mod architecture;
mod real_data;
mod resume;
mod script;
mod server;
