//! Who connects: rules, passwords, certificates, and how many may.

pub(super) mod admission;
mod failures;
mod hba;
pub(super) mod limits;
mod peer;
mod scram;
mod tls;

pub use hba::HbaRules;
pub use tls::ServerTls;
