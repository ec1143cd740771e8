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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_do_not_overlap() {
        let mut header = [0u8; 16];
        U8::<0>.put(&mut header, 0xfe);
        U16::<2>.put(&mut header, 0x0102);
        U32::<4>.put(&mut header, 0x0304_0506);
        U64::<8>.put(&mut header, 0x0708_090a_0b0c_0d0e);
        assert_eq!(
            header,
            [0xfe, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
        );
        assert_eq!(U8::<0>.get(&header), 0xfe);
        assert_eq!(U16::<2>.get(&header), 0x0102);
        assert_eq!(U32::<4>.get(&header), 0x0304_0506);
        assert_eq!(U64::<8>.get(&header), 0x0708_090a_0b0c_0d0e);
        assert_eq!(Bytes::<14, 2>.get(&header), [13, 14]);
    }
}
