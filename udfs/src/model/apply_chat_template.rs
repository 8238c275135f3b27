//! `apply_chat_template(model, messages [, add_generation_prompt])`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;

use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};

use super::ModelRuntime;
use super::call::{ModelCall, required_model, udf};
use super::distinct::Distinct;

pub(crate) static INTERFACE: Interface = Interface {
    name: "apply_chat_template",
    section: super::SECTION,
    description: "A conversation as the model was trained to read it, by the chat template among its files: the text that transformers' \
        `apply_chat_template` gives, with the model's `chat_template_kwargs`. NULL for NULL messages. `strftime_now` is not defined, so that a prompt does not change from day to day.",
    parameters: &[
        Parameter { name: "model", kind: Kind::Text, description: "Name of a generating model, `name` or `name@version`; a constant." },
        Parameter {
            name: "messages",
            kind: Kind::Text,
            description: "A JSON array of objects with `role` (system, user, assistant) and `content`; what else they have, as `reasoning_content` or \
                `tool_calls`, is for the template.",
        },
        Parameter {
            name: "add_generation_prompt",
            kind: Kind::Boolean,
            description: "Whether the beginning of the model's answer follows; true unless given.",
        },
    ],
    required: 2,
    example: (r#"SELECT apply_chat_template('instruct', '[{"role": "user", "content": "Who wrote Emma?"}]')"#, "a text"),
};

pub(crate) fn function(runtime: Arc<dyn ModelRuntime>) -> ScalarUDF {
    udf(ApplyChatTemplate, runtime)
}

#[derive(Debug)]
struct ApplyChatTemplate;

#[async_trait]
impl ModelCall for ApplyChatTemplate {
    fn interface(&self) -> &'static Interface {
        &INTERFACE
    }

    fn return_type(&self, _: &dyn ModelRuntime, _: &str, _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef> {
        let messages = arguments.text(1)?;
        let endings = if arguments.has(2) { Some(arguments.boolean(2)?) } else { None };
        let ending = |row| endings.as_ref().and_then(|endings| endings.get(row)).unwrap_or(true);
        let mut texts = vec![None; arguments.num_rows()];
        for add_generation_prompt in [true, false] {
            let wanted = |row: usize| messages.get(row).filter(|_| ending(row) == add_generation_prompt);
            let distinct = Distinct::new((0..arguments.num_rows()).map(wanted));
            if distinct.inputs.is_empty() {
                continue;
            }
            let model = required_model(arguments)?;
            let inputs = StringArray::from_iter_values(&distinct.inputs);
            let rendered = runtime.apply_chat_template(&model, &inputs, add_generation_prompt).await?;
            let rendered = distinct.scatter(INTERFACE.name, &rendered)?;
            for (text, rendered) in texts.iter_mut().zip(rendered.as_string::<i32>()) {
                *text = text.take().or_else(|| rendered.map(str::to_owned));
            }
        }
        Ok(Arc::new(StringArray::from(texts)))
    }
}
