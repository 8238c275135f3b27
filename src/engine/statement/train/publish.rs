//! From trained weights to the next version of a model.

use std::sync::Arc;

use rolloutdb_sql::{Privilege, Train};
use serde_json::Value as Json;

use super::super::name;
use super::checkpoints::Claim;
use crate::engine::privileges::Object;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::models::{Decoder, ModelInfo, Tokenizer};

/// Writes the weights beside the base's tokenizer and publishes them as a new version. Whose the model is, is asked once more: much happens while
/// a training runs. The checkpoints go when the version is there.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501); [`Error::Io`].
pub async fn publish(
    session: &Session,
    train: &Train,
    base: &ModelInfo,
    decoder: Decoder,
    lineage: Json,
    claim: Claim,
) -> Result<ModelInfo> {
    let registry = Arc::clone(&session.database().shared.registry);
    let (new, base) = (train.model.clone(), base.clone());
    let model = Object::model(&new);
    let lock = name::to_make(session, &model).await;
    let notices = session.notices().clone();
    let session = session.clone();
    let written = tokio::task::spawn_blocking(move || {
        // Here, since a statement that is cancelled now ends before this does.
        let _name = lock;
        let is_new = may_publish(&session, &model)?;
        let staged = registry.stage()?;
        decoder.save(staged.path())?;
        Tokenizer::copy_files(&base.directory, staged.path())?;
        let info = registry.publish(&new, staged, &base, lineage)?;
        if is_new {
            session.own(model)?;
        }
        if let Err(error) = claim.clear() {
            // The model is there; an error would say that it is not.
            notices.warning(format!("model {} is trained, but its checkpoints could not be removed: {error}", info.reference()));
        }
        Ok::<_, Error>(info)
    });
    written.await.map_err(|error| Error::Internal(error.to_string()))?
}

/// Whether there is no such model yet.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501) if it is another's by now, or if it is gone and the role may make none.
fn may_publish(session: &Session, model: &Object) -> Result<bool> {
    let access = session.access();
    if !session.database().shared.knows(model) {
        access.require(&Object::Database, Privilege::Create)?;
        return Ok(true);
    }
    if access.owns(model) {
        return Ok(false);
    }
    Err(Error::InsufficientPrivilege(format!(
        "{model} was made by another role while this training ran, and only its owner adds versions; run TRAIN once more with a new name"
    )))
}
