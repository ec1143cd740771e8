// SPDX-License-Identifier: GPL-2.0-only

//! The calls of bpf(2) that a mapping takes, each with the part of `union bpf_attr` that it reads.

use std::ffi::CStr;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub const TRACE_FENTRY: u32 = 24;
pub const TRACE_FEXIT: u32 = 25;
pub const MODIFY_RETURN: u32 = 26;
const LINK_TRACING: u32 = 2;
const PROG_TRACING: u32 = 26;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const OBJ_PIN: u32 = 6;
const OBJ_GET: u32 = 7;
const PROG_GET_FD_BY_ID: u32 = 13;
const MAP_GET_FD_BY_ID: u32 = 14;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;
const LINK_GET_FD_BY_ID: u32 = 30;
const LINK_GET_NEXT_ID: u32 = 31;

/// The arguments of a command: plain numbers without gaps, and addresses that are good for the
/// call.
///
/// # Safety
///
/// Every byte of the type has a value, and its addresses are those of live memory of the size
/// that the command reads or writes.
unsafe trait Arguments {}

fn call<A: Arguments>(command: u32, mut arguments: A) -> io::Result<(i32, A)> {
    // SAFETY: by the trait's promise the kernel finds what it looks for, and writes to nothing else.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            &raw mut arguments,
            size_of::<A>() as u32,
        )
    };
    match i32::try_from(done) {
        Ok(n) if n >= 0 => Ok((n, arguments)),
        _ => Err(Error::last_os_error()),
    }
}

/// A command that gives a descriptor.
fn open<A: Arguments>(command: u32, arguments: A) -> io::Result<OwnedFd> {
    let (fd, _) = call(command, arguments)?;
    // SAFETY: the kernel has just made it, for us; it is closed on exec(2).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd() as u32
}

/// A name of the kernel's: 15 bytes and a zero.
fn named(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

pub enum Kind {
    Array = 2,
    Cgroups = 8,
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

// SAFETY: eleven words of 32 bits, and no address.
unsafe impl Arguments for MapCreate {}

/// A map whose keys are the numbers below `entries`.
pub fn create_map(kind: Kind, name: &str, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    open(
        MAP_CREATE,
        MapCreate {
            kind: kind as u32,
            key_size: 4,
            value_size,
            entries,
            flags: 0,
            inner: 0,
            node: 0,
            name: named(name),
        },
    )
}

#[repr(C)]
struct MapElement {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: no gaps; key and value are of the sizes of their map, as the two functions below see to.
unsafe impl Arguments for MapElement {}

/// Sets an element, whose value is of the map's size.
pub fn update(map: &OwnedFd, key: u32, value: &[u8]) -> io::Result<()> {
    let info = map_info(map)?;
    assert_eq!((info.key_size, info.value_size as usize), (4, value.len()));
    let arguments = MapElement {
        map: number(map),
        zero: 0,
        key: &raw const key as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    call(MAP_UPDATE_ELEM, arguments).map(|_| ())
}

/// An element of an array.
pub fn lookup(map: &OwnedFd, key: u32) -> io::Result<Vec<u8>> {
    let info = map_info(map)?;
    if info.kind != Kind::Array as u32 {
        return Err(Error::from_raw_os_error(libc::EINVAL));
    }
    let mut value = vec![0; info.value_size as usize];
    let arguments = MapElement {
        map: number(map),
        zero: 0,
        key: &raw const key as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    call(MAP_LOOKUP_ELEM, arguments)?;
    Ok(value)
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    btf: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    attach_id: u32,
    attach_to: u32,
    relocations: u32,
}

// SAFETY: no gaps; the addresses are those of `load`'s arguments, with their sizes.
unsafe impl Arguments for ProgramLoad {}

/// Gives the kernel a program, to be attached to one of its functions. On failure also what the
/// kernel says of the program.
pub fn load(
    name: &str,
    instructions: &[u64],
    attach_type: u32,
    function: u32,
) -> Result<OwnedFd, (Error, String)> {
    let attempt = |log: &mut [u8]| {
        open(
            PROG_LOAD,
            ProgramLoad {
                kind: PROG_TRACING,
                count: instructions.len() as u32,
                instructions: instructions.as_ptr() as u64,
                licence: c"GPL".as_ptr() as u64,
                log_level: (!log.is_empty()).into(),
                log_size: log.len() as u32,
                log: match log.is_empty() {
                    true => 0,
                    false => log.as_mut_ptr() as u64,
                },
                kernel_version: 0,
                flags: 0,
                name: named(name),
                interface: 0,
                attach_type,
                btf: 0,
                function_size: 0,
                functions: 0,
                function_count: 0,
                line_size: 0,
                lines: 0,
                line_count: 0,
                attach_id: function,
                attach_to: 0,
                relocations: 0,
            },
        )
    };
    attempt(&mut []).map_err(|e| {
        let mut log = vec![0; 1 << 20];
        let _ = attempt(&mut log);
        let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
        (e, String::from_utf8_lossy(&log[..end]).trim().to_string())
    })
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

// SAFETY: four words of 32 bits, and no address.
unsafe impl Arguments for LinkCreate {}

/// Attaches a program where it was made for; it runs as long as the link is held or pinned.
pub fn attach(program: &OwnedFd, attach_type: u32) -> io::Result<OwnedFd> {
    open(
        LINK_CREATE,
        LinkCreate {
            program: number(program),
            target: 0,
            attach_type,
            flags: 0,
        },
    )
}

#[repr(C)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

// SAFETY: no gaps; the path ends with a zero, as the type CStr has it.
unsafe impl Arguments for Object {}

pub fn pin(object: &OwnedFd, path: &CStr) -> io::Result<()> {
    let arguments = Object {
        path: path.as_ptr() as u64,
        fd: number(object),
        flags: 0,
    };
    call(OBJ_PIN, arguments).map(|_| ())
}

pub fn pinned(path: &CStr) -> io::Result<OwnedFd> {
    open(
        OBJ_GET,
        Object {
            path: path.as_ptr() as u64,
            fd: 0,
            flags: 0,
        },
    )
}

#[repr(C)]
struct Id {
    id: u32,
    next: u32,
    flags: u32,
}

// SAFETY: three words of 32 bits, and no address.
unsafe impl Arguments for Id {}

fn by_id(command: u32, id: u32) -> io::Result<OwnedFd> {
    open(
        command,
        Id {
            id,
            next: 0,
            flags: 0,
        },
    )
}

pub fn program(id: u32) -> io::Result<OwnedFd> {
    by_id(PROG_GET_FD_BY_ID, id)
}

pub fn map(id: u32) -> io::Result<OwnedFd> {
    by_id(MAP_GET_FD_BY_ID, id)
}

pub fn link(id: u32) -> io::Result<OwnedFd> {
    by_id(LINK_GET_FD_BY_ID, id)
}

/// The id of the link after this one, if there is any.
pub fn next_link(id: u32) -> io::Result<Option<u32>> {
    let arguments = Id {
        id,
        next: 0,
        flags: 0,
    };
    match call(LINK_GET_NEXT_ID, arguments) {
        Ok((_, Id { next, .. })) => Ok(Some(next)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

#[repr(C)]
struct GetInfo {
    fd: u32,
    size: u32,
    info: u64,
}

// SAFETY: no gaps; `info_of` gives the address and the size of the same memory.
unsafe impl Arguments for GetInfo {}

/// Something that the kernel fills with what it knows of an object.
///
/// # Safety
///
/// Any bytes are a value of the type, and what addresses it has are those of live memory.
unsafe trait Info {}

fn info_of<I: Info>(object: &OwnedFd, info: &mut I) -> io::Result<()> {
    let arguments = GetInfo {
        fd: number(object),
        size: size_of::<I>() as u32,
        info: info as *mut I as u64,
    };
    call(OBJ_GET_INFO_BY_FD, arguments).map(|_| ())
}

#[derive(Default)]
#[repr(C)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    zero: u32,
    attach_type: u32,
    /// What other kinds of links have there; no addresses, so that they give none.
    rest: [u32; 27],
}

// SAFETY: numbers only.
unsafe impl Info for LinkInfo {}

/// A program that is attached to a function of the kernel's.
pub struct Link {
    pub id: u32,
    pub program: u32,
    pub attach_type: u32,
}

/// What a link is, if it is of that kind.
pub fn link_info(link: &OwnedFd) -> io::Result<Option<Link>> {
    let mut info = LinkInfo::default();
    info_of(link, &mut info)?;
    Ok((info.kind == LINK_TRACING).then_some(Link {
        id: info.id,
        program: info.program,
        attach_type: info.attach_type,
    }))
}

#[derive(Default)]
#[repr(C)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    sizes: [u32; 2],
    code: [u64; 2],
    loaded: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

// SAFETY: numbers, and the address of as many map ids as `map_count` says.
unsafe impl Info for ProgramInfo {}

/// A program's name and the ids of its maps.
pub fn program_info(program: &OwnedFd) -> io::Result<(String, Vec<u32>)> {
    let mut maps = [0u32; 8];
    let mut info = ProgramInfo {
        map_count: maps.len() as u32,
        maps: maps.as_mut_ptr() as u64,
        ..ProgramInfo::default()
    };
    info_of(program, &mut info)?;
    let count = maps.len().min(info.map_count as usize);
    Ok((text(&info.name), maps[..count].to_vec()))
}

#[derive(Default)]
#[repr(C)]
pub struct MapInfo {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    name: [u8; 16],
}

// SAFETY: numbers only.
unsafe impl Info for MapInfo {}

fn map_info(map: &OwnedFd) -> io::Result<MapInfo> {
    let mut info = MapInfo::default();
    info_of(map, &mut info)?;
    Ok(info)
}

pub fn map_name(map: &OwnedFd) -> io::Result<String> {
    map_info(map).map(|info| text(&info.name))
}

fn text(name: &[u8; 16]) -> String {
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}
