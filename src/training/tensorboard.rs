//! Scalars for TensorBoard: the bytes of its event files.
//!
//! A file is TFRecords, one message `Event` in each (`tensorflow/core/util/event.proto`, `summary.proto`, `record_writer.h`). Four small
//! messages are written by hand here: a protobuf field is its number and wire type, then its value; fields stand in the order of their
//! numbers. Where files are is the caller's business.

use std::io::{Result, Write};

/// What every file begins with; older forms know no [`EventWriter::restart`].
const FILE_VERSION: &str = "brain.Event:2";
/// `SessionLog.SessionStatus.START`.
const SESSION_START: u64 = 1;
/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const CRC_TABLE: [u32; 256] = crc_table();
/// Added to a rotated checksum, so that the checksum of data that hold one is no fixed point.
const CRC_MASK: u32 = 0xa282_ead8;

/// Metrics whose names begin so are measured on validation rows.
const VALIDATION_PREFIX: &str = "validation_";

/// Wire types of protobuf.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// Writes the events of one file. `wall_time` is always seconds since 1970.
#[derive(Debug)]
pub struct EventWriter<W> {
    output: W,
}

impl<W: Write> EventWriter<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// Of the output.
    pub fn new(output: W, wall_time: f64) -> Result<Self> {
        let mut writer = Self { output };
        let mut event = event(wall_time, 0);
        put_bytes(&mut event, 3, FILE_VERSION.as_bytes());
        writer.write(&event)?;
        Ok(writer)
    }

    /// What other files of the folder have of `step` and later ones is to be forgotten: a run that goes on writes them again.
    ///
    /// # Errors
    /// Of the output.
    pub fn restart(&mut self, wall_time: f64, step: usize) -> Result<()> {
        let mut log = Vec::new();
        put_varint(&mut log, 1, SESSION_START);
        let mut event = event(wall_time, step);
        put_bytes(&mut event, 7, &log);
        self.write(&event)
    }

    /// The metrics of a step, as f32, which is what the format has. Those of a validation stand under `validation/`, the others under
    /// `train/`.
    ///
    /// # Errors
    /// Of the output.
    pub fn step(&mut self, wall_time: f64, step: usize, metrics: &[(&'static str, f64)]) -> Result<()> {
        let mut summary = Vec::new();
        for (name, metric) in metrics {
            let mut value = Vec::new();
            put_bytes(&mut value, 1, tag(name).as_bytes());
            put_key(&mut value, 2, FIXED_32);
            value.extend((*metric as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &value);
        }
        let mut event = event(wall_time, step);
        put_bytes(&mut event, 5, &summary);
        self.write(&event)
    }

    /// # Errors
    /// Of the output.
    pub fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }

    /// One TFRecord: the length and its masked checksum, the data and theirs, all little-endian.
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        self.output.write_all(&length)?;
        self.output.write_all(&masked_crc(&length).to_le_bytes())?;
        self.output.write_all(data)?;
        self.output.write_all(&masked_crc(data).to_le_bytes())
    }
}

/// The name of a curve.
fn tag(metric: &str) -> String {
    match metric.strip_prefix(VALIDATION_PREFIX) {
        Some(of_validation) => format!("validation/{of_validation}"),
        None => format!("train/{metric}"),
    }
}

/// An `Event` with its time and its step, which stands there unless it is 0.
fn event(wall_time: f64, step: usize) -> Vec<u8> {
    let mut event = Vec::new();
    put_key(&mut event, 1, FIXED_64);
    event.extend(wall_time.to_le_bytes());
    if step > 0 {
        put_varint(&mut event, 2, step as u64);
    }
    event
}

fn put_key(message: &mut Vec<u8>, field: u64, wire_type: u64) {
    put_number(message, (field << 3) | wire_type);
}

fn put_varint(message: &mut Vec<u8>, field: u64, value: u64) {
    put_key(message, field, VARINT);
    put_number(message, value);
}

fn put_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(message, field, BYTES);
    put_number(message, bytes.len() as u64);
    message.extend(bytes);
}

/// Seven bits to a byte, the lowest first; the eighth says that more follow.
fn put_number(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

fn masked_crc(data: &[u8]) -> u32 {
    let crc = crc32c(data);
    crc.rotate_right(15).wrapping_add(CRC_MASK)
}

/// CRC-32C (RFC 3720, appendix B.4).
fn crc32c(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !data.iter().fold(!0, step)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::fixture;

    fn written(write: impl FnOnce(&mut EventWriter<&mut Vec<u8>>) -> Result<()>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = EventWriter::new(&mut bytes, 1_700_000_000.0).expect("memory takes it");
        write(&mut writer).and_then(|()| writer.flush()).expect("memory takes it");
        bytes
    }

    /// The data of all records, whose checksums are right.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(12);
            let length: [u8; 8] = head[..8].try_into().expect("eight bytes");
            assert_eq!(masked_crc(&length).to_le_bytes(), head[8..]);
            let (data, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(length)).expect("a small file"));
            let (crc, rest) = rest.split_at(4);
            assert_eq!(masked_crc(data).to_le_bytes(), crc);
            found.push(data.to_vec());
            bytes = rest;
        }
        found
    }

    /// The golden file is by `tests/fixtures/make_tensorboard_goldens.py`.
    #[test]
    fn the_bytes_are_those_that_tensorboard_writes() {
        let bytes = written(|writer| {
            writer.restart(1_700_000_000.0, 1)?;
            writer.step(1_700_000_001.25, 1, &[("loss", std::f64::consts::LN_2), ("grad_norm", 12.5), ("tokens", 4096.0)])?;
            writer.step(1_700_000_300.5, 300, &[("loss", 0.0), ("validation_loss", -1e-3)])
        });
        let golden = std::fs::read(fixture("training/events.tfevents")).expect("it is committed");
        assert_eq!(bytes, golden);
        assert_eq!(records(&golden).len(), 4);
    }

    /// RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_those_of_the_standard() {
        let ascending: Vec<u8> = (0..32).collect();
        for (data, crc) in [(vec![0; 32], 0x8a91_36aa), (vec![0xff; 32], 0x62a8_ab43), (ascending, 0x46dd_794e), (vec![], 0)] {
            assert_eq!(crc32c(&data), crc, "{data:?}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(number: u64) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let read = bytes.iter().rev().fold(0_u64, |read, byte| (read << 7) | u64::from(byte & 0x7f));
            prop_assert_eq!(read, number);
            let (last, others) = bytes.split_last().expect("at least one byte");
            prop_assert!(*last < 0x80 && others.iter().all(|byte| *byte >= 0x80));
        }

        #[test]
        fn every_step_is_a_record_of_its_own(steps in proptest::collection::vec((1_usize..1_000_000, any::<f32>()), 0..20)) {
            let bytes = written(|writer| {
                steps.iter().try_for_each(|(step, loss)| writer.step(0.0, *step, &[("loss", f64::from(*loss))]))
            });
            let records = records(&bytes);
            prop_assert_eq!(records.len(), steps.len() + 1);
            for (record, (_, loss)) in records[1..].iter().zip(&steps) {
                // The value is the last field of the last message.
                prop_assert_eq!(&record[record.len() - 4..], loss.to_le_bytes());
            }
        }
    }
}
