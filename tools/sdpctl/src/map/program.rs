// SPDX-License-Identifier: GPL-2.0-only

//! Loads and attaches the BPF programs of a mapping (bpf/map.bpf.c).

use super::selector::Selector;
use super::shared::Shared;
use super::{errno, refused, FUNCTION};
use libbpf_rs::btf::types::Func;
use libbpf_rs::{
    Btf, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
};
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;

pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/map.bpf.o"));
/// Name of the program in socket(2), by which `sdpctl` finds mappings again.
pub const NAME: &str = "sdp_map";
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Error messages of libbpf, with the verifier's log.
static LOG: Mutex<String> = Mutex::new(String::new());

fn log(_: PrintLevel, text: String) {
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&text);
    }
}

/// Makes libbpf store its messages instead of writing them to standard error.
pub fn keep_log() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, log)));
}

/// Links of a mapping, each with its kernel function; socket(2)'s is the last.
pub type Links = Vec<(String, Link)>;

/// Attaches the programs. The programs share the map with this process.
pub fn attach(shared: &Shared, selector: &Selector) -> Result<(MapHandle, Links), String> {
    if !Path::new(BTF).exists() {
        return Err(
            "this kernel does not describe itself (CONFIG_DEBUG_INFO_BTF is needed)".into(),
        );
    }
    let what = |e| refused("the programs of the mapping", errno(&e));
    let open = open(shared, selector).map_err(what)?;
    let functions: Vec<_> = open.progs().map(|p| function(p.section())).collect();
    let object = open
        .load()
        .map_err(|e| diagnosis(&functions).unwrap_or_else(|| what(e) + &verdict()))?;
    fill(&object, selector).map_err(what)?;
    let mut links = vec![];
    for program in object.progs_mut() {
        let function = function(program.section());
        let link = program
            .attach()
            .map_err(|e| refused(&format!("attaching a program to {function}"), errno(&e)))?;
        links.push((function, link));
    }
    links.sort_by_key(|(function, _)| function == FUNCTION);
    let map = object.maps().find(|m| m.name() == "sdp_map.bss");
    let map = MapHandle::try_from(&map.expect("struct shared is there")).map_err(what)?;
    Ok((map, links))
}

/// Returns the kernel function of a program: the part of its section's name behind the slash.
fn function(section: &OsStr) -> String {
    let section = section.to_string_lossy();
    let (_, function) = section.split_once('/').unwrap_or_default();
    function.into()
}

/// Opens the programs, and sets the constants that must be set before loading.
fn open(shared: &Shared, selector: &Selector) -> libbpf_rs::Result<OpenObject> {
    let users = selector.users.len() as u32;
    let programs = selector.programs.len() as u32;
    let cgroups = selector.cgroups.len() as u32;
    let settings = [shared.protocol, users, programs, cgroups];
    let mut open = ObjectBuilder::default().name(NAME)?.open_memory(OBJECT)?;
    for mut map in open.maps_mut() {
        match map.name().to_str() {
            Some("sdp_map.bss") => map.set_initial_value(&shared.to_bytes())?,
            Some("sdp_map.rodata") => {
                map.set_initial_value(&settings.map(u32::to_ne_bytes).concat())?
            }
            Some("sdp_map_users") => map.set_max_entries(users.max(1))?,
            Some("sdp_map_programs") => map.set_max_entries(programs.max(1))?,
            Some("sdp_map_cgroups") => map.set_max_entries(cgroups.max(1))?,
            other => unreachable!("a map {other:?}"),
        }
    }
    Ok(open)
}

/// Writes the selected programs to the maps.
fn fill(object: &Object, selector: &Selector) -> libbpf_rs::Result<()> {
    for map in object.maps() {
        let add = |key: &[u8], value: &[u8]| map.update(key, value, MapFlags::ANY);
        match map.name().to_str() {
            Some("sdp_map_users") => {
                for user in &selector.users {
                    add(&user.to_ne_bytes(), &[1])?;
                }
            }
            Some("sdp_map_programs") => {
                for program in &selector.programs {
                    let (name, length) = program.prefix();
                    let bits = 8 * length as u32;
                    add(&[&bits.to_ne_bytes(), &name[..]].concat(), &[1])?;
                }
            }
            Some("sdp_map_cgroups") => {
                for (n, (_, directory)) in (0u32..).zip(&selector.cgroups) {
                    add(&n.to_ne_bytes(), &directory.as_raw_fd().to_ne_bytes())?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the known reason why this kernel refuses the programs, if there is one.
fn diagnosis(functions: &[String]) -> Option<String> {
    let btf = match Btf::from_vmlinux() {
        Ok(btf) => btf,
        Err(e) => return Some(format!("{BTF}: {}", errno(&e))),
    };
    let missing = |f: &&String| btf.type_by_name::<Func<'_>>(f).is_none();
    if let Some(function) = functions.iter().find(missing) {
        return Some(format!("this kernel has no function {function}"));
    }
    LOG.lock()
        .ok()?
        .contains("is not modifiable")
        .then(|| format!("this kernel lets no program change {FUNCTION} (CONFIG_MPTCP is needed)"))
}

/// Returns the last lines of the verifier, if it ran.
fn verdict() -> String {
    let log = LOG.lock().map(|log| log.clone()).unwrap_or_default();
    let (_, log) = log.split_once("BEGIN PROG LOAD LOG --").unwrap_or_default();
    let (log, _) = log.split_once("-- END PROG LOAD LOG").unwrap_or_default();
    let last = log
        .trim()
        .lines()
        .rev()
        .find(|l| !l.starts_with("processed "));
    last.map_or(String::new(), |l| format!(" ({l})"))
}

#[cfg(test)]
mod tests {
    use super::super::shared;
    use super::*;
    use libbpf_rs::btf::types::{MemberAttr, Struct};
    use libbpf_rs::{Btf, HasSize};

    #[test]
    fn what_is_compiled() {
        let selector = Selector {
            users: vec![0, 1000],
            ..Selector::default()
        };
        let object = open(&Shared::new(257, selector.to_string()), &selector).unwrap();
        let programs = object
            .progs()
            .map(|p| (p.name().to_owned(), function(p.section())));
        let wanted = [
            (NAME, FUNCTION),
            ("sdp_map_comes4", "inet_register_protosw"),
            ("sdp_map_goes4", "inet_unregister_protosw"),
            ("sdp_map_comes6", "inet6_register_protosw"),
            ("sdp_map_goes6", "inet6_unregister_protosw"),
        ];
        assert_eq!(
            programs.collect::<Vec<_>>(),
            wanted.map(|(name, function)| (name.into(), function.into()))
        );
        let users = object.maps().find(|m| m.name() == "sdp_map_users");
        assert_eq!(users.unwrap().max_entries(), 2);
    }

    #[test]
    fn the_verifiers_last_words() {
        log(PrintLevel::Warn, "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n0: (b7) r0 = 0\nR1 is wrong\nprocessed 1 insns\n-- END PROG LOAD LOG --\n".into());
        assert_eq!(verdict(), " (R1 is wrong)");
    }

    #[test]
    fn the_shared_structure_is_as_c_has_it() {
        let btf = Btf::from_raw("map", OBJECT).unwrap().unwrap();
        let shared: Struct = btf.type_by_name("shared").unwrap();
        assert_eq!(shared.size(), Shared::SIZE);
        let members = shared.iter().map(|m| match m.attr {
            MemberAttr::Normal { offset } => (m.name.unwrap().to_str().unwrap(), offset / 8),
            MemberAttr::BitField { .. } => panic!("a bit field"),
        });
        let wanted = [
            ("form", 0),
            ("protocol", 4),
            ("there", shared::THERE[0] as u32),
            ("mapped", shared::MAPPED as u32),
            ("selector", shared::SELECTOR as u32),
        ];
        assert_eq!(members.collect::<Vec<_>>(), wanted);
    }
}
