//! `chat_content(prompt [, written])`: what the user says in a prompt, without the chat template round it.
//!
//! An agent writes its prompts by the chat template of its policy. Trainers of conversations write every turn by that template too, so that rows
//! for them must not have it already.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};

use crate::error::Error;

pub const NAME: &str = "chat_content";
/// What a user says in the `written` of a call: what stands before and after it is the template's.
pub const MARK: &str = "rolloutdb-content";

/// Marks of the chat templates in use: ChatML, Llama 3 and others; DeepSeek; Gemma; Llama 2 and Mistral. In questions, queries and passages of a
/// prompt they are other characters.
const TEMPLATE_MARKS: [&str; 6] = ["<|", "<\u{ff5c}", "<start_of_turn>", "[INST]", "<<SYS>>", "[SYSTEM_PROMPT]"];

pub fn function() -> ScalarUDF {
    let variants = (1..=2).map(|count| TypeSignature::Exact(vec![DataType::Utf8; count])).collect();
    ScalarUDF::new_from_impl(ChatContent { signature: Signature::one_of(variants, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ChatContent {
    signature: Signature,
}

impl ScalarUDFImpl for ChatContent {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    /// NULL for no prompt. `written`: what the policy's template makes of [`MARK`]; without it, prompts are those of a policy that has no template.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = args.args.iter().map(|value| value.clone().into_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let prompts = arrays[0].as_string::<i32>();
        let templates = arrays.get(1).map(|templates| templates.as_string::<i32>());
        let mut contents = Vec::with_capacity(args.number_rows);
        for (row, prompt) in prompts.iter().enumerate() {
            let written = templates.filter(|templates| templates.is_valid(row)).map(|templates| templates.value(row));
            contents.push(match (prompt, written) {
                (None, _) => None,
                (Some(prompt), None) => Some(unwritten(prompt)?),
                (Some(prompt), Some(written)) => Some(content(prompt, written)?),
            });
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(contents))))
    }
}

/// A prompt that no template has written.
///
/// # Errors
/// [`Error::InvalidParameter`] for one that has marks of a template.
fn unwritten(prompt: &str) -> crate::error::Result<&str> {
    match TEMPLATE_MARKS.iter().find(|mark| prompt.contains(**mark)) {
        None => Ok(prompt),
        Some(mark) => Err(Error::InvalidParameter {
            name: "policy".to_owned(),
            found: format!("none, of prompts that a chat template has written (they have '{mark}')"),
            expected: "the model of the run, as in policy => 'name@version': its template is taken off, since trainers write by it again"
                .to_owned(),
        }),
    }
}

/// What stands in a prompt where `written` has [`MARK`].
///
/// # Errors
/// [`Error::InvalidParameter`] for a prompt that the template does not write.
fn content<'a>(prompt: &'a str, written: &str) -> crate::error::Result<&'a str> {
    let (before, after) = written.split_once(MARK).unwrap_or((written, ""));
    prompt.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).ok_or_else(|| Error::InvalidParameter {
        name: "policy".to_owned(),
        found: "a model with another chat template than that of the prompts".to_owned(),
        expected: "the model of the run, by its columns policy and policy_version, as in policy => 'name@version'".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "<|im_start|>user\nrolloutdb-content<|im_end|>\n<|im_start|>assistant\n";

    #[test]
    fn the_template_is_taken_off_and_nothing_else() {
        let prompt = "<|im_start|>user\nWho?\n<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(content(prompt, WRITTEN).expect("the template wrote it"), "Who?\n");
        assert_eq!(content("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n", WRITTEN).expect("an empty turn"), "");
        let told = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n";
        for other in ["Who?", "<|im_start|>user\nWho?", told] {
            let error = content(other, WRITTEN).expect_err(other).to_string();
            assert!(error.contains("another chat template") && error.contains("name@version"), "{error}");
        }
        // Before and after do not overlap.
        assert!(content("ab", "ab rolloutdb-contentb").is_err());
        assert!(content("aba", "abrolloutdb-contentba").is_err());
    }

    #[test]
    fn a_prompt_that_a_template_has_written_is_told_from_others() {
        for prompt in ["", "Question: who?\n", "Q: <s>a</s>[1] a < b | c", "<search>a</search>"] {
            assert_eq!(unwritten(prompt).expect("no template wrote it"), prompt);
        }
        for prompt in [
            "<|im_start|>user\nWho?<|im_end|>\n",
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>",
            "<\u{ff5c}User\u{ff5c}>Who?<\u{ff5c}Assistant\u{ff5c}>",
            "<bos><start_of_turn>user\nWho?<end_of_turn>\n",
            "<s>[INST] Who? [/INST]",
        ] {
            let error = unwritten(prompt).expect_err(prompt).to_string();
            assert!(error.contains("policy => 'name@version'"), "{error}");
        }
    }
}
