//! Sequences that are refused at their limit while they are decoded.
//!
//! Two bytes on the wire may be fifty in memory: a later count would come too late.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use serde::Serializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Decodes at most `MAX` elements.
pub(crate) fn at_most<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    weighed(deserializer, MAX, |_| 1)
}

/// Elements that together weigh at most `max`.
pub(crate) fn weighed<'de, D, T>(deserializer: D, max: usize, weight: fn(&T) -> usize) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Weighed { max, weight, element: PhantomData })
}

/// Encodes bytes as one piece.
pub(crate) fn write_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Decodes at most `MAX` bytes as one piece, not byte by byte.
pub(crate) fn bytes<'de, D: Deserializer<'de>, const MAX: usize>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    struct Piece<const MAX: usize>;
    impl<const MAX: usize> Visitor<'_> for Piece<MAX> {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX} bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            if bytes.len() <= MAX { Ok(bytes.to_vec()) } else { Err(E::invalid_length(bytes.len(), &self)) }
        }
    }
    deserializer.deserialize_bytes(Piece::<MAX>)
}

struct Weighed<T> {
    max: usize,
    weight: fn(&T) -> usize,
    element: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Weighed<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a sequence within its limit of {}", self.max)
    }

    /// Reserves nothing for a peer's announced length.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        let mut left = self.max;
        while let Some(element) = sequence.next_element()? {
            left =
                left.checked_sub((self.weight)(&element)).ok_or_else(|| A::Error::invalid_length(self.max, &"less"))?;
            elements.push(element);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn decoded<'a, T>(
        bytes: &'a [u8],
        decode: impl FnOnce(&mut postcard::Deserializer<'a, postcard::de_flavors::Slice<'a>>) -> postcard::Result<T>,
    ) -> (Option<T>, usize) {
        let mut deserializer = postcard::Deserializer::from_bytes(bytes);
        let result = decode(&mut deserializer).ok();
        (result, deserializer.finalize().unwrap().len())
    }

    #[test]
    fn a_sequence_is_read_to_its_limit_and_no_further() {
        let bytes = postcard::to_allocvec(&vec![7u8; 1000]).unwrap();
        assert_eq!(decoded(&bytes, |from| at_most::<_, u8, 1000>(from)), (Some(vec![7; 1000]), 0));
        assert_eq!(decoded(&bytes, |from| at_most::<_, u8, 10>(from)), (None, 1000 - 11));
    }

    #[test]
    fn elements_count_by_their_weight() {
        let bytes = postcard::to_allocvec(&vec![2u8, 3, 4, 5]).unwrap();
        let weighed_to = |max| decoded(&bytes, move |from| weighed(from, max, |element: &u8| usize::from(*element)));
        assert_eq!(weighed_to(14), (Some(vec![2, 3, 4, 5]), 0));
        assert_eq!(weighed_to(8), (None, 1));
    }
}
