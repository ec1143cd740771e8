// SPDX-License-Identifier: GPL-2.0-only

//! Big-endian fields at fixed offsets of fixed-size headers.
//!
//! The offset of a field is a type parameter, and a header is an array. The compiler checks that
//! the field lies inside the header: no accessor can panic, and a wrong offset does not build.

/// One byte at offset `AT`.
pub(super) struct U8<const AT: usize>;

/// Two bytes, big-endian, at offset `AT`.
pub(super) struct U16<const AT: usize>;

/// Four bytes, big-endian, at offset `AT`.
pub(super) struct U32<const AT: usize>;

/// Eight bytes, big-endian, at offset `AT`.
pub(super) struct U64<const AT: usize>;

/// `LEN` bytes without conversion, at offset `AT`.
pub(super) struct Bytes<const AT: usize, const LEN: usize>;

impl<const AT: usize, const LEN: usize> Bytes<AT, LEN> {
    pub(super) fn get<const N: usize>(&self, header: &[u8; N]) -> [u8; LEN] {
        const { assert!(AT + LEN <= N) }
        let mut value = [0; LEN];
        for (to, from) in value.iter_mut().zip(header.iter().skip(AT)) {
            *to = *from;
        }
        value
    }

    pub(super) fn put<const N: usize>(&self, header: &mut [u8; N], value: [u8; LEN]) {
        const { assert!(AT + LEN <= N) }
        for (to, from) in header.iter_mut().skip(AT).zip(value) {
            *to = from;
        }
    }
}

macro_rules! integer_field {
    ($field:ident, $int:ty, $size:literal) => {
        impl<const AT: usize> $field<AT> {
            pub(super) fn get<const N: usize>(&self, header: &[u8; N]) -> $int {
                <$int>::from_be_bytes(Bytes::<AT, $size>.get(header))
            }

            pub(super) fn put<const N: usize>(&self, header: &mut [u8; N], value: $int) {
                Bytes::<AT, $size>.put(header, value.to_be_bytes());
            }
        }
    };
}

integer_field!(U8, u8, 1);
integer_field!(U16, u16, 2);
integer_field!(U32, u32, 4);
integer_field!(U64, u64, 8);
