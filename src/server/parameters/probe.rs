//! One parameter by itself, for tests that throw bytes at the decoder.

use bytes::Bytes;
use pgwire::api::Type;
use pgwire::api::portal::Format;

use super::decode;

/// Whether these bytes are a value of the type with this number.
#[doc(hidden)]
#[must_use]
pub fn reads_parameter(bytes: &[u8], type_oid: u32, is_binary: bool) -> bool {
    let format = if is_binary { Format::UnifiedBinary } else { Format::UnifiedText };
    let declared = Type::from_oid(type_oid);
    declared.is_some() && decode(&[Some(Bytes::copy_from_slice(bytes))], &format, &[declared], &[None]).is_ok()
}
