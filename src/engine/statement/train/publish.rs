//! From trained weights to the next version of a model.

use std::sync::Arc;

use rolloutdb_sql::{Privilege, Train};
use serde_json::Value as Json;

use super::super::name;
use super::checkpoints::Claim;
use super::task::{LORA_KEEP, check_models};
use crate::engine::options;
use crate::engine::privileges::Object;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::models::{Decoder, ModelInfo, Registry, StagedModel, Tokenizer};

/// Writes the weights beside the base's tokenizer and publishes them as a new version. Adapters that the decoder has are added to its
/// weights, and kept beside them where `lora_keep` asks for it. Whose the model is, is asked once more: much happens while a training runs.
/// The checkpoints go when the version is there.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501); [`Error::WrongType`] if the name is that of a model of another kind by now; [`Error::Io`], where nothing of the version is left, the checkpoints are, and the error says
/// at which step the training goes on.
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
    let keeps_adapters = options::boolean(&train.options, LORA_KEEP, false)?;
    let model = Object::model(&new);
    let lock = name::to_make(session, &model).await;
    let notices = session.notices().clone();
    let (session, train) = (session.clone(), train.clone());
    let written = tokio::task::spawn_blocking(move || {
        // Here, since a statement that is cancelled now ends before this does.
        let _name = lock;
        let is_new = may_publish(&session, &model)?;
        // A model of another kind may have got the name meanwhile.
        check_models(&train, &base, &registry)?;
        let staged = stage(&registry, decoder, &base, keeps_adapters);
        let info = staged.and_then(|staged| registry.publish(&new, staged, &base, lineage)).map_err(|error| {
            let goes_on = claim.checkpoints().last_step();
            error.advising(&match goes_on {
                Some(step) => format!("there is no new version, and the same statement goes on at its checkpoint of step {step}"),
                None => "there is no new version, and no checkpoint: the same statement begins anew".to_owned(),
            })
        })?;
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

/// The files of the version, but for what the registry writes. Dropped, they are gone.
fn stage(registry: &Registry, mut decoder: Decoder, base: &ModelInfo, keeps_adapters: bool) -> Result<StagedModel> {
    let staged = registry.stage()?;
    if keeps_adapters && decoder.lora().is_some() {
        decoder.save_adapter(&staged.make_adapter_directory()?, Some(&base.reference()))?;
    }
    decoder.merge_lora()?;
    decoder.save(staged.path())?;
    Tokenizer::copy_files(&base.directory, staged.path())?;
    Ok(staged)
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
