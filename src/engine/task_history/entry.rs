//! What is kept of a statement.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::LONG;
use crate::engine::roles::Roles;
use crate::engine::session_user::RoleId;
use crate::models::Calls;

/// Kinds of statements that are tasks however short they are.
pub(super) const TASKS: &[&str] = &["GENERATE ROLLOUTS", "TRAIN", "CREATE INDEX", "REINDEX", "COPY"];

/// What became of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Running,
    Done,
    Failed,
    /// By somebody, or by a timeout.
    Cancelled,
    /// The process ended.
    Interrupted,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub task_id: i64,
    /// With whose rights it ran.
    pub role: String,
    /// The number of that role, whatever it is called by now.
    pub role_oid: Option<u32>,
    /// As a command tag: `TRAIN`.
    pub kind: String,
    pub statement: String,
    pub status: Status,
    /// Milliseconds since 1970, as the other time.
    pub started_at_ms: i64,
    /// None while it runs, and if the process died meanwhile.
    pub finished_at_ms: Option<i64>,
    /// From its beginning to its end, or to when it was last heard of, without what passed while its rows were not waited for.
    pub seconds: f64,
    /// That it gave or wrote; None for a statement of another kind.
    pub rows: Option<u64>,
    #[serde(default)]
    pub calls: Calls,
    pub error: Option<String>,
    pub sqlstate: Option<String>,
}

impl Entry {
    /// A statement that called models, and neither took long nor is a task.
    pub fn is_brief(&self) -> bool {
        self.seconds < LONG.as_secs_f64() && !TASKS.contains(&self.kind.as_str())
    }

    /// As another process finds it: what ran then does so no more.
    pub fn without_its_process(mut self) -> Self {
        if self.status == Status::Running {
            self.status = Status::Interrupted;
        }
        self
    }

    /// The name that the role has now.
    pub fn name_role(&mut self, roles: &Roles) {
        self.role = RoleId::kept(roles, &self.role, self.role_oid).current_name(roles);
    }
}

pub(super) fn milliseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
