//! Properties of a table: what its maker wants to know again, as text by name. They are not rows, and survive with the table.

use std::sync::Arc;

use crate::{Error, Result, Table};

const PROPERTY_CONFIG: &str = "rollout.property.";

impl Table {
    /// A property as this version of the table has it.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.dataset.config().get(&format!("{PROPERTY_CONFIG}{name}")).map(String::as_str)
    }

    /// Sets a property of the newest version.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Storage`].
    pub async fn set_property(&self, name: &str, value: &str) -> Result<()> {
        let _writer = self.lock_writer().await;
        let mut dataset = self.state.snapshot(&self.schema_state.storage).await?.as_ref().clone();
        let property = [(format!("{PROPERTY_CONFIG}{name}"), Some(value.to_owned()))];
        dataset.update_config(property).await.map_err(|source| Error::storage(self.name(), source))?;
        self.state.publish(Arc::new(dataset)).await;
        Ok(())
    }
}
