// SPDX-License-Identifier: GPL-2.0-only

//! The programs of a mapping. One runs in each socket(2) and gives the protocol anew (the kernel
//! calls `update_socket_protocol` for that); four others run when a protocol comes or goes.

use super::bpf;
use super::btf::Btf;
use super::code::{Code, Helper, Reg::*, Size};
use super::state::{State, MAPPED, THERE};
use super::whose::Whose;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const SOCK_TYPE_MASK: i32 = 0xf;

/// The name of the program in socket(2), by which mappings are found again.
pub const NAME: &str = "sdp_map";

/// Where the kernel's structures have what the programs read.
pub struct Places {
    group_leader: i16,
    comm: i16,
    kind: i16,
    protocol: i16,
}

impl Places {
    pub fn find(btf: &Btf<'_>) -> Result<Self, String> {
        let place = |structure, member| {
            btf.offset(structure, member)
                .and_then(|at| i16::try_from(at).ok())
                .ok_or_else(|| format!("this kernel has no {structure}.{member}"))
        };
        Ok(Places {
            group_leader: place("task_struct", "group_leader")?,
            comm: place("task_struct", "comm")?,
            kind: place("inet_protosw", "type")?,
            protocol: place("inet_protosw", "protocol")?,
        })
    }
}

/// The cgroups of a mapping, as a program can ask for them.
pub fn cgroups(whose: &Whose) -> Result<Option<OwnedFd>, String> {
    if whose.cgroups.is_empty() {
        return Ok(None);
    }
    let what = |e: io::Error| format!("a map of cgroups: {e}");
    let count = whose.cgroups.len() as u32;
    let map = bpf::create_map(bpf::Kind::Cgroups, "sdp_map_cgroups", 4, count).map_err(what)?;
    for (n, (_, directory)) in (0..).zip(&whose.cgroups) {
        bpf::update(&map, n, &directory.as_raw_fd().to_ne_bytes()).map_err(what)?;
    }
    Ok(Some(map))
}

/// The program in socket(2): gives `protocol` for a TCP socket of whose sockets are mapped, while
/// there is such a protocol, else 0, by which the kernel goes on as without it.
pub fn mapping(
    state: &OwnedFd,
    protocol: u16,
    whose: &Whose,
    cgroups: Option<&OwnedFd>,
    at: &Places,
) -> Option<Vec<u64>> {
    let mut c = Code::default();
    let (out, v4, family) = (c.label(), c.label(), c.label());
    c.copy(R6, R1);
    c.value(R9, state);
    // socket(family, type, protocol), of 64 bits each of which 32 count
    c.load(R2, Size::U64, R6, 0);
    c.jump_if(R2, libc::AF_INET, v4);
    c.jump_unless(R2, libc::AF_INET6, out);
    c.load(R3, Size::U32, R9, THERE[1]);
    c.jump(family);
    c.place(v4);
    c.load(R3, Size::U32, R9, THERE[0]);
    c.place(family);
    c.jump_if(R3, 0, out);
    c.load(R2, Size::U64, R6, 8);
    c.and_number(R2, SOCK_TYPE_MASK);
    c.jump_unless(R2, libc::SOCK_STREAM, out);
    let tcp = c.label();
    c.load(R2, Size::U64, R6, 16);
    c.jump_if(R2, 0, tcp);
    // what listens for it takes TCP as well; Go's listeners are such
    c.jump_if(R2, libc::IPPROTO_MPTCP, tcp);
    c.jump_unless(R2, libc::IPPROTO_TCP, out);
    c.place(tcp);

    if !whose.users.is_empty() {
        let good = c.label();
        c.call(Helper::GetCurrentUidGid);
        for &user in &whose.users {
            c.jump_if(R0, user as i32, good);
        }
        c.jump(out);
        c.place(good);
    }
    if !whose.programs.is_empty() {
        let good = c.label();
        // the name of the process, whatever its threads call themselves
        c.call(Helper::GetCurrentTaskBtf);
        c.load(R1, Size::U64, R0, at.group_leader);
        c.load(R7, Size::U64, R1, at.comm);
        c.load(R8, Size::U64, R1, at.comm.checked_add(8)?);
        for program in &whose.programs {
            let next = c.label();
            let (name, mask) = program.pattern();
            for (half, comm) in [(0..8, R7), (8..16, R8)] {
                let word = |bytes: &[u8; 16]| {
                    let half = bytes[half.clone()].first_chunk().copied();
                    u64::from_ne_bytes(half.unwrap_or_default())
                };
                c.copy(R2, comm);
                c.wide_number(R3, word(&mask));
                c.and(R2, R3);
                c.wide_number(R3, word(&name));
                c.jump_unless_equal(R2, R3, next);
            }
            c.jump(good);
            c.place(next);
        }
        c.jump(out);
        c.place(good);
    }
    if let Some(map) = cgroups {
        let good = c.label();
        for n in 0..whose.cgroups.len() {
            c.map(R1, map);
            c.number(R2, n as i32);
            c.call(Helper::CurrentTaskUnderCgroup);
            c.jump_if(R0, 1, good);
        }
        c.jump(out);
        c.place(good);
    }

    c.number(R1, 1);
    c.add(R9, MAPPED, R1);
    c.number(R0, protocol.into());
    c.exit();
    c.place(out);
    c.number(R0, 0);
    c.exit();
    c.finish()
}

/// A program in the kernel's registration of a protocol.
pub struct Watch {
    pub name: &'static str,
    pub function: &'static str,
    pub attach_type: u32,
    six: bool,
    comes: bool,
}

const fn watch(function: &'static str, six: bool, comes: bool) -> Watch {
    Watch {
        name: if comes {
            "sdp_map_comes"
        } else {
            "sdp_map_goes"
        },
        function,
        // It is there when the function has done its work, and not any more when that begins.
        attach_type: if comes {
            bpf::TRACE_FEXIT
        } else {
            bpf::TRACE_FENTRY
        },
        six,
        comes,
    }
}

pub const WATCHES: [Watch; 4] = [
    watch("inet_register_protosw", false, true),
    watch("inet_unregister_protosw", false, false),
    watch("inet6_register_protosw", true, true),
    watch("inet6_unregister_protosw", true, false),
];

/// Notes in the state whether there is such a protocol.
pub fn watching(state: &OwnedFd, protocol: u16, w: &Watch, at: &Places) -> Option<Vec<u64>> {
    let mut c = Code::default();
    let out = c.label();
    // the function's argument: struct inet_protosw *
    c.load(R1, Size::U64, R1, 0);
    c.load(R2, Size::U16, R1, at.kind);
    c.jump_unless(R2, libc::SOCK_STREAM, out);
    c.load(R2, Size::U16, R1, at.protocol);
    c.jump_unless(R2, protocol.into(), out);
    c.value(R3, state);
    c.store(R3, THERE[usize::from(w.six)], w.comes.into());
    c.place(out);
    c.number(R0, 0);
    c.exit();
    c.finish()
}

/// Makes the map that the programs and `sdpctl` share.
pub fn state(state: &State) -> io::Result<OwnedFd> {
    let value = state.to_bytes();
    let map = bpf::create_map(bpf::Kind::Array, NAME, value.len() as u32, 1)?;
    bpf::update(&map, 0, &value)?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::super::code;
    use super::super::whose::Program;
    use super::*;

    /// What a program sees of the caller of socket(2).
    #[derive(Clone, Copy)]
    struct Caller {
        call: [i32; 3],
        uid: u32,
        comm: &'static str,
        /// Which cgroup of the map it is in.
        cgroup: Option<u64>,
    }

    const CALLER: Caller = Caller {
        call: [libc::AF_INET, libc::SOCK_STREAM, 0],
        uid: 1000,
        comm: "redis-server",
        cgroup: None,
    };
    const AT: Places = Places {
        group_leader: 8,
        comm: 16,
        kind: 16,
        protocol: 18,
    };
    // Where things are for the machine below.
    const CONTEXT: u64 = 0x1_0000;
    const TASK: u64 = 0x2_0000;
    const LEADER: u64 = 0x3_0000;
    const STATE: u64 = 0x4_0000;
    const PROTOSW: u64 = 0x5_0000;

    /// A machine that runs programs: the memory that they see, and what helpers answer.
    struct Machine {
        memory: Vec<(u64, Vec<u8>)>,
        caller: Caller,
    }

    impl Machine {
        fn new(caller: Caller, there: [u32; 2]) -> Self {
            let [family, kind, protocol] = caller.call.map(|n| u64::from(n as u32) | (7 << 40));
            let context = [family, kind, protocol].map(u64::to_ne_bytes).concat();
            let mut leader = [0; 32];
            leader[16..16 + caller.comm.len()].copy_from_slice(caller.comm.as_bytes());
            let task = [[0; 8], LEADER.to_ne_bytes()].concat();
            let mut state = State::new(257, "all".into()).to_bytes();
            for n in [0, 1] {
                let at = THERE[n] as usize;
                state[at..at + 4].copy_from_slice(&there[n].to_ne_bytes());
            }
            let memory = vec![
                (CONTEXT, context),
                (TASK, task),
                (LEADER, leader.to_vec()),
                (STATE, state),
            ];
            Machine { memory, caller }
        }

        fn bytes(&mut self, at: u64, size: usize) -> &mut [u8] {
            let found = self.memory.iter_mut().find(|(start, bytes)| {
                at >= *start && at + size as u64 <= start + bytes.len() as u64
            });
            let (start, bytes) = found.unwrap_or_else(|| panic!("{at:#x} is nothing's"));
            let from = (at - *start) as usize;
            &mut bytes[from..from + size]
        }

        fn state(&mut self) -> State {
            let size = State::SIZE;
            State::from_bytes(self.bytes(STATE, size)).unwrap()
        }

        fn run(&mut self, program: &[u64]) -> u64 {
            let mut r = [0u64; 10];
            r[1] = CONTEXT;
            let mut at = 0;
            loop {
                let [code, registers, a, b, n @ ..] = program[at].to_ne_bytes();
                let (dst, src) = (usize::from(registers & 15), usize::from(registers >> 4));
                let offset = i16::from_ne_bytes([a, b]);
                let number = i32::from_ne_bytes(n);
                let place = |r: u64| r.wrapping_add_signed(offset.into());
                let mut far = false;
                match code {
                    code::LOAD_64 if src == 0 => {
                        r[dst] = u64::from(number as u32) | program[at + 1];
                        at += 1;
                    }
                    code::LOAD_64 => {
                        r[dst] = STATE;
                        at += 1;
                    }
                    0x61 | 0x69 | 0x79 => {
                        let size = match code {
                            0x61 => 4,
                            0x69 => 2,
                            _ => 8,
                        };
                        let mut word = [0; 8];
                        word[..size].copy_from_slice(self.bytes(place(r[src]), size));
                        r[dst] = u64::from_ne_bytes(word);
                    }
                    code::STORE => self
                        .bytes(place(r[dst]), 4)
                        .copy_from_slice(&number.to_ne_bytes()),
                    code::ADD => {
                        let word = self.bytes(place(r[dst]), 8);
                        let old = u64::from_ne_bytes(word.try_into().unwrap());
                        word.copy_from_slice(&(old + r[src]).to_ne_bytes());
                    }
                    code::MOVE => r[dst] = r[src],
                    code::MOVE_NUMBER => r[dst] = i64::from(number) as u64,
                    code::AND => r[dst] &= r[src],
                    code::AND_NUMBER => r[dst] = u64::from(r[dst] as u32 & number as u32),
                    code::JUMP => far = true,
                    code::IF_NUMBER => far = r[dst] as u32 == number as u32,
                    code::UNLESS_NUMBER => far = r[dst] as u32 != number as u32,
                    code::UNLESS => far = r[dst] != r[src],
                    code::CALL => {
                        r[0] = match number {
                            15 => (77 << 32) | u64::from(self.caller.uid),
                            37 => u64::from(self.caller.cgroup == Some(r[2])),
                            158 => TASK,
                            other => panic!("helper {other}"),
                        };
                        // a call leaves nothing in them
                        r[1..6].fill(u64::MAX);
                    }
                    code::EXIT => return r[0],
                    other => panic!("instruction {other:#x}"),
                }
                at += 1 + if far { offset as usize } else { 0 };
            }
        }
    }

    /// Descriptors stand for maps; the machine does not look which.
    fn any_fd() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn runs(whose: &Whose, caller: Caller, there: [u32; 2]) -> u64 {
        let fd = any_fd();
        let cgroups = (!whose.cgroups.is_empty()).then_some(&fd);
        let program = mapping(&fd, 257, whose, cgroups, &AT).unwrap();
        let mut machine = Machine::new(caller, there);
        let protocol = machine.run(&program);
        assert_eq!(machine.state().mapped, u64::from(protocol != 0), "counted");
        protocol
    }

    fn programs(names: &[&str]) -> Whose {
        let programs = names.iter().map(|n| Program::parse(n).unwrap()).collect();
        Whose {
            programs,
            ..Whose::default()
        }
    }

    #[test]
    fn tcp_sockets_only() {
        let everyone = Whose::default();
        use libc::*;
        for (call, wanted) in [
            ([AF_INET, SOCK_STREAM, 0], 257),
            ([AF_INET, SOCK_STREAM, IPPROTO_TCP], 257),
            (
                [AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0],
                257,
            ),
            ([AF_INET6, SOCK_STREAM, IPPROTO_TCP], 257),
            ([AF_INET, SOCK_STREAM, IPPROTO_MPTCP], 257),
            ([AF_INET, SOCK_STREAM, 256], 0),
            ([AF_INET, SOCK_STREAM, 257], 0),
            ([AF_INET, SOCK_DGRAM, 0], 0),
            ([AF_INET, SOCK_SEQPACKET, 0], 0),
            ([AF_INET, SOCK_RAW, IPPROTO_TCP], 0),
            ([AF_UNIX, SOCK_STREAM, 0], 0),
            ([27, SOCK_STREAM, 0], 0),
        ] {
            let caller = Caller { call, ..CALLER };
            assert_eq!(runs(&everyone, caller, [1, 1]), wanted, "{call:?}");
        }
    }

    #[test]
    fn only_while_there_is_such_a_protocol() {
        let everyone = Whose::default();
        let six = Caller {
            call: [libc::AF_INET6, libc::SOCK_STREAM, 0],
            ..CALLER
        };
        assert_eq!(runs(&everyone, CALLER, [0, 1]), 0);
        assert_eq!(runs(&everyone, CALLER, [1, 0]), 257);
        assert_eq!(runs(&everyone, six, [0, 1]), 257);
        assert_eq!(runs(&everyone, six, [1, 0]), 0);
    }

    #[test]
    fn conditions() {
        let here = [1, 1];
        assert_eq!(runs(&programs(&["redis-server"]), CALLER, here), 257);
        assert_eq!(runs(&programs(&["redis"]), CALLER, here), 0);
        assert_eq!(runs(&programs(&["nginx", "redis-*"]), CALLER, here), 257);
        assert_eq!(runs(&programs(&["nginx", "redis"]), CALLER, here), 0);
        let mut whose = programs(&["redis-*"]);
        whose.users = vec![0, 1000];
        assert_eq!(runs(&whose, CALLER, here), 257);
        let other = Caller { uid: 1, ..CALLER };
        assert_eq!(runs(&whose, other, here), 0);
        whose.cgroups = vec![("a".into(), any_fd()), ("b".into(), any_fd())];
        for (cgroup, wanted) in [(None, 0), (Some(0), 257), (Some(1), 257), (Some(2), 0)] {
            let caller = Caller { cgroup, ..CALLER };
            assert_eq!(runs(&whose, caller, here), wanted, "in {cgroup:?}");
        }
    }

    #[test]
    fn many_conditions() {
        let names: Vec<_> = (0..300).map(|n| format!("program{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let last = Caller {
            comm: "program299",
            ..CALLER
        };
        assert_eq!(runs(&programs(&names), last, [1, 1]), 257);
        assert_eq!(runs(&programs(&names), CALLER, [1, 1]), 0);
        let too_many = vec!["program"; 10000];
        assert!(mapping(&any_fd(), 257, &programs(&too_many), None, &AT).is_none());
    }

    #[test]
    fn protocols_come_and_go() {
        for (n, w) in WATCHES.iter().enumerate() {
            let program = watching(&any_fd(), 257, w, &AT).unwrap();
            for (kind, protocol, ours) in [(1, 257, true), (1, 6, false), (2, 257, false)] {
                let before = u32::from(!w.comes);
                let mut machine = Machine::new(CALLER, [before; 2]);
                machine.memory[0].1 = PROTOSW.to_ne_bytes().to_vec();
                let mut protosw = vec![0; 16];
                protosw.extend([kind, protocol].map(u16::to_ne_bytes).concat());
                machine.memory.push((PROTOSW, protosw));
                machine.run(&program);
                let mut wanted = [before; 2];
                if ours {
                    wanted[n / 2] = u32::from(w.comes);
                }
                assert_eq!(
                    machine.state().there,
                    wanted,
                    "{} {kind} {protocol}",
                    w.function
                );
            }
        }
    }
}
