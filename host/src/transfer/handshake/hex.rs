//! Bytes in JSON: two hexadecimal digits each.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: String = digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect();
    serializer.serialize_str(&text)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(text.as_bytes()).ok_or_else(|| D::Error::custom("not an even number of hexadecimal digits"))
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |&c: &u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back_and_other_text_is_refused() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut json = Vec::new();
        serialize(&bytes, &mut serde_json::Serializer::new(&mut json)).unwrap();
        assert!(json.starts_with(b"\"000102") && json.ends_with(b"feff\""));
        let back = deserialize(&mut serde_json::Deserializer::from_slice(&json)).unwrap();
        assert_eq!(back, bytes);
        for text in ["f", "0g", "00 0", "+1"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(b""), Some(Vec::new()));
    }
}
