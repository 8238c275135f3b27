//! The words of a text column, split as its index splits them.

use arrow::array::{Array, ArrayRef, AsArray};
use lance_index::scalar::inverted::InvertedIndexParams;
use lance_index::scalar::inverted::tokenizer::document_tokenizer::LanceTokenizer;
use lance_tokenizer::TokenStream;

use super::Bits;
use super::postings::{Postings, PostingsBuilder};
use crate::{Error, Result};

/// Postings of one column and the tokenizer of its index.
#[derive(Debug)]
pub(crate) struct Words {
    tokenizer: Box<dyn LanceTokenizer>,
    postings: Postings,
    /// The rows that the statistics count.
    live: Option<Bits>,
}

impl Words {
    /// # Errors
    /// [`Error::Storage`] when the index has no tokenizer here.
    pub(crate) fn new(table: &str, params: &InvertedIndexParams) -> Result<Self> {
        let tokenizer = params.build().map_err(|source| Error::storage(table, source))?;
        Ok(Self { tokenizer, postings: PostingsBuilder::new().finish(), live: None })
    }

    /// Rows whose words are here.
    pub(crate) fn num_rows(&self) -> usize {
        self.postings.num_documents()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.postings.memory_bytes()
    }

    /// Appends the texts of a segment; a NULL is a document without words.
    pub(crate) fn push_segment(&mut self, texts: &ArrayRef) {
        let texts = texts.as_string::<i32>();
        let mut builder = PostingsBuilder::new();
        let mut tokens: Vec<String> = Vec::new();
        for row in 0..texts.len() {
            tokens.clear();
            if texts.is_valid(row) {
                let mut stream = self.tokenizer.token_stream_for_doc(texts.value(row));
                while let Some(token) = stream.next() {
                    tokens.push(token.text.clone());
                }
            }
            builder.push(tokens.iter().map(String::as_str));
        }
        self.postings.append(builder);
        self.live = None;
    }

    /// Says which rows there are.
    pub(crate) fn set_live(&mut self, live: &Bits) {
        if self.live.as_ref() != Some(live) {
            self.postings.set_live(live.words());
            self.live = Some(live.clone());
        }
    }

    /// The best rows as score and row, and all that tie with the k-th.
    pub(crate) fn search(&self, query: &str, k: usize, accepted: Option<&Bits>) -> Vec<(f32, u32)> {
        let mut tokenizer = self.tokenizer.clone();
        let mut terms: Vec<String> = Vec::new();
        let mut stream = tokenizer.token_stream_for_search(query);
        while let Some(token) = stream.next() {
            terms.push(token.text.clone());
        }
        let terms: Vec<&str> = terms.iter().map(String::as_str).collect();
        self.postings.search(&terms, k, accepted.map(Bits::words))
    }
}
