// SPDX-License-Identifier: GPL-2.0-only

//! What the kernel tells of its own functions and structures: `/sys/kernel/btf/vmlinux`, in BTF
//! (`Documentation/bpf/btf.rst`).

const MAGIC: u16 = 0xeb9f;
/// Up to the offset and size of the strings; what comes later was added later.
const HEADER: usize = 24;
/// A type without what follows it.
const TYPE: usize = 12;
const MEMBER: usize = 12;

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNC: u32 = 12;

/// All types of a kernel.
pub struct Btf<'a> {
    /// Where each type begins in `types`; type 1 is the first.
    starts: Vec<usize>,
    types: &'a [u8],
    strings: &'a [u8],
}

struct Type {
    name: u32,
    kind: u32,
    /// Of a structure: whether members have the size of their bit field beside their offset.
    bit_fields: bool,
    members: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_ne_bytes(bytes.get(at..end)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Reads it, or says what is wrong with it.
    pub fn parse(file: &'a [u8]) -> Result<Self, String> {
        let magic = file.get(..2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
        if magic != Some(MAGIC) {
            return Err("it is no BTF of this machine".into());
        }
        let word = |n: usize| u32_at(file, n).map_or(0, |n| n as usize);
        let header = word(4);
        let section = |at: usize| {
            let start = header.checked_add(word(at))?;
            file.get(start..start.checked_add(word(at + 4))?)
        };
        let sections = (header >= HEADER).then(|| Some((section(8)?, section(16)?)));
        let (types, strings) = sections.flatten().ok_or("it is cut short")?;
        // How large kinds are that are newer than this program.
        let layout = match header >= HEADER + 8 {
            true => section(24).unwrap_or(&[]),
            false => &[],
        };
        let mut btf = Btf {
            starts: vec![],
            types,
            strings,
        };
        let mut at = 0;
        while at < types.len() {
            let t = btf.read(at).ok_or("it ends within a type")?;
            let size = size(&t, layout).ok_or_else(|| format!("kind {} is unknown", t.kind))?;
            btf.starts.push(at);
            at += TYPE + size;
        }
        Ok(btf)
    }

    fn read(&self, at: usize) -> Option<Type> {
        let info = u32_at(self.types, at + 4)?;
        u32_at(self.types, at + 8)?;
        Some(Type {
            name: u32_at(self.types, at)?,
            kind: (info >> 24) & 0x7f,
            bit_fields: info >> 31 != 0,
            members: (info & 0xff_ffff) as usize,
        })
    }

    fn name(&self, offset: u32) -> &[u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or(&[]);
        rest.split(|&b| b == 0).next().unwrap_or(&[])
    }

    fn find(&self, kind: u32, name: &str) -> Option<(u32, usize)> {
        let types = self.starts.iter().zip(1..);
        let mut found = types.filter(|&(&at, _)| {
            self.read(at)
                .is_some_and(|t| t.kind == kind && self.name(t.name) == name.as_bytes())
        });
        found.next().map(|(&at, id)| (id, at))
    }

    /// The id of a function.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.find(FUNC, name).map(|(id, _)| id)
    }

    /// Where in a structure a member is, in bytes.
    pub fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        let (_, at) = self.find(STRUCT, structure)?;
        self.member(at, member.as_bytes(), 0)
    }

    /// The same, in a structure at this place or in one without a name within that.
    fn member(&self, at: usize, name: &[u8], depth: u32) -> Option<u32> {
        let t = self.read(at)?;
        if (t.kind != STRUCT && t.kind != UNION) || depth > 8 {
            return None;
        }
        for n in 0..t.members {
            let m = at + TYPE + n * MEMBER;
            let (named, id) = (u32_at(self.types, m)?, u32_at(self.types, m + 4)?);
            let place = u32_at(self.types, m + 8)?;
            let bits = match t.bit_fields {
                true => place & 0xff_ffff,
                false => place,
            };
            let inner = match self.name(named) {
                [] => self
                    .starts
                    .get((id as usize).wrapping_sub(1))
                    .and_then(|&at| self.member(at, name, depth + 1)),
                it if it == name => Some(0),
                _ => None,
            };
            if let Some(inner) = inner {
                return (bits % 8 == 0).then_some(bits / 8 + inner);
            }
        }
        None
    }
}

/// How much follows a type.
fn size(t: &Type, layout: &[u8]) -> Option<usize> {
    Some(match t.kind {
        // pointers, forward declarations, names, qualifiers, functions, floats, tags of types
        2 | 7..=12 | 16 | 18 => 0,
        // integers, variables, tags of declarations
        1 | 14 | 17 => 4,
        // arrays
        3 => 12,
        // structures, unions, sections, wide enumerations
        4 | 5 | 15 | 19 => MEMBER * t.members,
        // enumerations, prototypes
        6 | 13 => 8 * t.members,
        kind => {
            let of = layout.get(4 * kind as usize..)?.first_chunk::<2>()?;
            usize::from(of[0]) + usize::from(of[1]) * t.members
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRINGS: &[u8] = b"\0task\0comm\0leader\0create\0";

    fn words(all: &[u32]) -> Vec<u8> {
        all.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn file(types: &[u32], layout: Option<&[u8]>) -> Vec<u8> {
        let types = words(types);
        let header = if layout.is_some() { 32 } else { 24 };
        let mut all = MAGIC.to_ne_bytes().to_vec();
        all.extend([1, 0]);
        let (t, s) = (types.len() as u32, STRINGS.len() as u32);
        all.extend(words(&[header, 0, t, t, s]));
        if let Some(layout) = layout {
            all.extend(words(&[t + s, layout.len() as u32]));
        }
        [&all, &types, STRINGS, layout.unwrap_or(&[])].concat()
    }

    const fn info(kind: u32, members: u32) -> u32 {
        (kind << 24) | members
    }

    /// An int; a union without a name of it and of another; a structure with that; a function.
    #[rustfmt::skip]
    const TYPES: &[u32] = &[
        0, info(1, 0), 4, 32,
        0, info(5, 2), 8, 6, 1, 0, 11, 1, 32,
        1, (1 << 31) | info(4, 2), 16, 6, 1, info(3, 1), 0, 2, 64,
        18, info(12, 0), 1,
    ];

    #[test]
    fn functions_and_members() {
        let file = file(TYPES, None);
        let btf = Btf::parse(&file).unwrap();
        assert_eq!(btf.function("create"), Some(4));
        assert_eq!(btf.function("task"), None, "is no function");
        assert_eq!(btf.offset("task", "leader"), Some(12));
        assert_eq!(btf.offset("task", "comm"), None, "is three bits");
        assert_eq!(btf.offset("create", "comm"), None);
        assert_eq!(btf.offset("task", "create"), None);
    }

    #[test]
    fn newer_kinds() {
        let types = [&[0, info(20, 2), 0, 7, 7, 7][..], TYPES].concat();
        let mut layout = [0; 4 * 21];
        (layout[80], layout[81]) = (4, 4);
        assert!(Btf::parse(&file(&types, None)).is_err());
        let file = file(&types, Some(&layout));
        assert_eq!(Btf::parse(&file).unwrap().function("create"), Some(5));
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let whole = file(TYPES, None);
        for size in 0..whole.len() {
            assert!(Btf::parse(&whole[..size]).is_err(), "{size} bytes");
        }
        let mut other = whole.clone();
        other.swap(0, 1);
        assert!(Btf::parse(&other).is_err());
        // any bytes: an answer or a complaint, and no panic
        for at in 0..whole.len() {
            for value in [0, 1, 4, 5, 12, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                if let Ok(btf) = Btf::parse(&bytes) {
                    btf.function("create");
                    btf.offset("task", "leader");
                }
            }
        }
    }

    #[test]
    fn this_kernel() {
        // where there is one and it may be read
        if let Ok(file) = std::fs::read("/sys/kernel/btf/vmlinux") {
            let btf = Btf::parse(&file).unwrap();
            assert!(btf.function("inet_register_protosw").is_some());
            assert!(btf.offset("task_struct", "comm").is_some());
        }
    }
}
