// SPDX-License-Identifier: GPL-2.0-only

//! `sdpctl enable` and `sdpctl disable`: a drop-in by which systemd maps the sockets of a service.

use crate::options::Units;
use crate::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

const UNITS: &str = "etc/systemd/system";

/// Name of a service, with the suffix.
struct Unit(String);

impl Unit {
    fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix(".service").unwrap_or(text);
        let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.@\\".contains(c);
        if name.is_empty() || name.starts_with('@') || !name.chars().all(allowed) {
            return Err(format!("{text:?} is no name of a service"));
        }
        for kind in ["socket", "target", "timer", "slice", "scope", "mount"] {
            if name.ends_with(&format!(".{kind}")) {
                return Err(format!("{text} has no processes: name its service"));
            }
        }
        Ok(Unit(format!("{name}.service")))
    }

    fn file(&self, root: &Path) -> PathBuf {
        root.join(UNITS)
            .join(format!("{}.d", self.0))
            .join("sdp.conf")
    }

    /// Name of the mapping's pin, for a template without the instance.
    fn pin(&self) -> String {
        format!("unit-{}", self.0.trim_end_matches(".service"))
    }

    fn is_template(&self) -> bool {
        self.0.ends_with("@.service")
    }

    /// Returns true if the pin belongs to the service, or to an instance of the template.
    fn has(&self, pin: &str) -> bool {
        match self.is_template() {
            true => pin.starts_with(&self.pin()),
            false => pin == self.pin(),
        }
    }

    /// True if an earlier drop-in of the unit gave the pin another name than this sdpctl does.
    /// Instances of a template are not searched for: the old name of an instance may be the name of
    /// another unit.
    fn had(&self, drop_in: &str, pin: &str) -> bool {
        let mut words = drop_in.split_whitespace().skip_while(|w| *w != "--pin");
        let Some(old) = words.nth(1) else {
            return false;
        };
        pin == old.replace("\\\\", "\\") && !self.has(pin)
    }

    /// If the mapping fails the service starts by TCP, hence the `-`.
    fn drop_in(&self, sdpctl: &Path) -> String {
        let (sdpctl, instance) = (sdpctl.display(), if self.is_template() { "%i" } else { "" });
        // systemd interprets escapes in the line, but not in the replacement of %i
        let pin = self.pin().replace('\\', "\\\\");
        format!(
            "# Written by sdpctl enable, and removed by sdpctl disable.\n\
             [Service]\n\
             ExecStartPre=-+{sdpctl} map add --pin {pin}{instance} --own-cgroup\n\
             ExecStopPost=-+{sdpctl} map remove {pin}{instance}\n"
        )
    }
}

fn parsed(o: &Units) -> Result<Vec<Unit>, Error> {
    let units = o.units.iter().map(|text| Unit::parse(text));
    Ok(units.collect::<Result<_, _>>()?)
}

fn told(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

/// Runs systemctl.
fn systemctl(words: &[&str]) -> Result<(), String> {
    let done = process::Command::new("systemctl")
        .args(words)
        .output()
        .map_err(|e| format!("systemctl: {e}"))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            Err(format!("systemctl {}: {}", words.join(" "), said.trim()))
        }
    }
}

/// Writes the drop-ins.
pub fn enable(o: &Units, out: &mut impl Write) -> Result<(), Error> {
    let units = parsed(o)?;
    if o.root.is_none() {
        for unit in &units {
            systemctl(&["cat", &unit.0])?;
        }
    }
    let sdpctl = env::current_exe().map_err(|e| format!("sdpctl: {e}"))?;
    let (mut changed, mut pins) = (false, vec![]);
    for unit in &units {
        let path = unit.file(o.root.as_deref().unwrap_or(Path::new("/")));
        let directory = path.parent().unwrap_or(Path::new("/"));
        let text = unit.drop_in(&sdpctl);
        let old = fs::read_to_string(&path).unwrap_or_default();
        if old == text {
            writeln!(out, "{}: {} (unchanged)", unit.0, path.display())?;
            continue;
        }
        fs::create_dir_all(directory).map_err(told(directory))?;
        fs::write(&path, text).map_err(told(&path))?;
        writeln!(out, "{}: {}", unit.0, path.display())?;
        changed = true;
        let names = crate::map::pins().into_iter();
        pins.extend(names.filter(|name| unit.had(&old, name)));
    }
    if o.root.is_some() || !changed {
        return Ok(());
    }
    systemctl(&["daemon-reload"])?;
    writeln!(out, "Services that run need: systemctl restart UNIT")?;
    crate::map::remove_pinned(pins)
}

/// Removes the drop-ins, and the mappings of these services.
pub fn disable(o: &Units, out: &mut impl Write) -> Result<(), Error> {
    let mut pins = vec![];
    for unit in parsed(o)? {
        let path = unit.file(o.root.as_deref().unwrap_or(Path::new("/")));
        fs::remove_file(&path).map_err(told(&path))?;
        if let Some(directory) = path.parent() {
            // The directory stays if it has other drop-ins.
            let _ = fs::remove_dir(directory);
        }
        writeln!(out, "{}: removed", path.display())?;
        let names = crate::map::pins().into_iter();
        pins.extend(names.filter(|name| unit.has(name)));
    }
    if o.root.is_some() {
        return Ok(());
    }
    systemctl(&["daemon-reload"])?;
    crate::map::remove_pinned(pins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name = |text| Unit::parse(text).map(|u| (u.pin(), u.0)).ok();
        let of = |pin: &str, unit: &str| Some((pin.to_string(), unit.to_string()));
        assert_eq!(name("nginx"), of("unit-nginx", "nginx.service"));
        assert_eq!(name("a.b.service"), of("unit-a.b", "a.b.service"));
        assert_eq!(name("pg@"), of("unit-pg@", "pg@.service"));
        assert_eq!(
            name("pg@17-main"),
            of("unit-pg@17-main", "pg@17-main.service")
        );
        for bad in [
            "", ".service", "@x", "a/b", "a b", "../x", "x.socket", "x.timer",
        ] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn pins_of_instances() {
        let has = |unit, pin| Unit::parse(unit).unwrap().has(pin);
        assert!(has("pg@", "unit-pg@17-main") && has("pg@", "unit-pg@a.b"));
        assert!(has("a.b", "unit-a.b") && has(r"x@a\x2db", r"unit-x@a\x2db"));
        for (unit, pin) in [
            ("pg@", "unit-pg-x"),
            ("pg@", "unit-pg_x"),
            ("a-b", "unit-a.b"),
        ] {
            assert!(!has(unit, pin), "{unit} {pin}");
        }
        let had = |text: &str, pin| Unit::parse("pg@17-main").unwrap().had(text, pin);
        let old =
            "[Service]\nExecStartPre=-+/s/sdpctl map add --pin unit-pg_17_main --own-cgroup\n";
        assert!(had(old, "unit-pg_17_main"));
        assert!(!had(old, "unit-pg_17_mai") && !had("", "unit-pg_17_main"));
        assert!(!had(
            &old.replace("pg_17_main", "pg@17-main"),
            "unit-pg@17-main"
        ));
        let text = Unit::parse(r"x@a\x2db")
            .unwrap()
            .drop_in(Path::new("/s/sdpctl"));
        assert!(text.contains(r" --pin unit-x@a\\x2db "), "{text}");
    }

    #[test]
    fn drop_ins() {
        let text = |unit| Unit::parse(unit).unwrap().drop_in(Path::new("/s/sdpctl"));
        let one = text("redis-server");
        assert!(
            one.contains(
                "\nExecStartPre=-+/s/sdpctl map add --pin unit-redis-server --own-cgroup\n"
            ),
            "{one}"
        );
        assert!(
            one.ends_with("\nExecStopPost=-+/s/sdpctl map remove unit-redis-server\n"),
            "{one}"
        );
        assert!(text("pg@").ends_with(" map remove unit-pg@%i\n"));
    }
}
