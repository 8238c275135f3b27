//! What PostgreSQL shows of sessions, of running statements and of settings: views of schema `rollout` under the names that clients know.

use std::sync::Arc;

use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::Result;

use crate::engine::{SessionSettings, activity_view_names, is_activity_view};

/// The views that `pg_catalog` has from schema `rollout`.
pub(super) fn names() -> impl Iterator<Item = String> {
    activity_view_names().map(str::to_owned)
}

pub(super) fn is_here(name: &str) -> bool {
    is_activity_view(name)
}

/// `pg_settings` with what the session has set.
pub(super) fn settings_table(settings: &SessionSettings) -> Result<Arc<dyn TableProvider>> {
    let batch = settings.rows()?;
    Ok(Arc::new(MemTable::try_new(SessionSettings::schema(), vec![vec![batch]])?))
}
