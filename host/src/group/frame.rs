//! The frame: a blob together with who sends it, in which exchange.

use super::bootstrap::BootstrapError;
use crate::units::Rank;

/// The first bytes of every frame; the digit is the version of this layout.
const MAGIC: [u8; 4] = *b"cpb1";

/// `[magic: 4][rank: u32][sequence: u64][call_bytes: u16]`, little endian; the call and the blob follow.
const HEADER_BYTES: usize = 18;

/// The longest call name a frame carries, in bytes; longer ones are cut.
const MAX_CALL_BYTES: usize = 256;

/// What a frame adds to its blob, at most, in bytes.
#[cfg(feature = "mpi")]
pub(crate) const MAX_OVERHEAD_BYTES: usize = HEADER_BYTES + MAX_CALL_BYTES;

/// One rank's position in its sequence of exchanges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// The exchange.
    pub(crate) call: &'static str,
    /// This rank.
    pub(crate) rank: Rank,
    /// How many exchanges came before.
    pub(crate) sequence: u64,
}

impl Position {
    /// `blob`, framed.
    pub(crate) fn encode(&self, blob: &[u8]) -> Vec<u8> {
        let call = cut(self.call);
        let mut frame = Vec::with_capacity(HEADER_BYTES + call.len() + blob.len());
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&self.rank.0.to_le_bytes());
        frame.extend_from_slice(&self.sequence.to_le_bytes());
        frame.extend_from_slice(&(call.len() as u16).to_le_bytes());
        frame.extend_from_slice(call);
        frame.extend_from_slice(blob);
        frame
    }

    /// The blob in `peer`'s frame, which must come from the same exchange.
    ///
    /// # Errors
    /// [`BootstrapError::BadBlob`], [`BootstrapError::Diverged`].
    pub(crate) fn decode<'frame>(
        &self,
        peer: Rank,
        frame: &'frame [u8],
    ) -> Result<&'frame [u8], BootstrapError> {
        let bad = BootstrapError::BadBlob { call: self.call, rank: self.rank, peer };
        let Some((rank, sequence, call, blob)) = parse(frame) else {
            return Err(bad);
        };
        if rank != peer.0 {
            return Err(bad);
        }
        if call == cut(self.call) && sequence == self.sequence {
            return Ok(blob);
        }
        let mut peer_call = String::from_utf8_lossy(call).into_owned();
        if call == cut(self.call) {
            peer_call = format!("{peer_call}, exchange {sequence} instead of {}", self.sequence);
        }
        Err(BootstrapError::Diverged { call: self.call, rank: self.rank, peer, peer_call })
    }
}

/// The bytes of `call` that a frame carries.
fn cut(call: &str) -> &[u8] {
    &call.as_bytes()[..call.len().min(MAX_CALL_BYTES)]
}

/// (rank, sequence, call, blob).
fn parse(frame: &[u8]) -> Option<(u32, u64, &[u8], &[u8])> {
    let rest = frame.strip_prefix(&MAGIC)?;
    let (rank, rest) = rest.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (call_bytes, rest) = rest.split_first_chunk()?;
    let (call, blob) = rest.split_at_checked(usize::from(u16::from_le_bytes(*call_bytes)))?;
    Some((u32::from_le_bytes(*rank), u64::from_le_bytes(*sequence), call, blob))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Position = Position { call: "register", rank: Rank(3), sequence: 7 };

    fn from_peer(call: &'static str, sequence: u64) -> Vec<u8> {
        Position { call, rank: Rank(1), sequence }.encode(b"blob")
    }

    #[test]
    fn a_frame_gives_its_blob_back() {
        assert_eq!(HERE.decode(Rank(1), &from_peer("register", 7)).unwrap(), b"blob");
    }

    #[test]
    fn another_call_or_sequence_is_a_divergence_that_says_where_the_peer_is() {
        let error = HERE.decode(Rank(1), &from_peer("export", 7)).unwrap_err();
        let expected = BootstrapError::Diverged {
            call: "register",
            rank: Rank(3),
            peer: Rank(1),
            peer_call: "export".into(),
        };
        assert_eq!(error, expected);
        let error = HERE.decode(Rank(1), &from_peer("register", 8)).unwrap_err();
        assert!(error.to_string().contains("exchange 8 instead of 7"), "{error}");
    }

    #[test]
    fn damaged_and_misplaced_frames_are_refused() {
        let frame = from_peer("register", 7);
        for num_bytes in 0..HEADER_BYTES + "register".len() {
            let error = HERE.decode(Rank(1), &frame[..num_bytes]).unwrap_err();
            assert!(
                matches!(error, BootstrapError::BadBlob { peer: Rank(1), .. }),
                "{num_bytes} bytes: {error}"
            );
        }
        assert!(matches!(HERE.decode(Rank(2), &frame), Err(BootstrapError::BadBlob { peer: Rank(2), .. })));
    }
}
