// SPDX-License-Identifier: GPL-2.0-only

//! Writes each check to the terminal when it is made, and the whole report to a file. After an
//! interruption the file holds the checks made so far.

use crate::verdict::{without, Check, Verdict};
use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes text to the terminal. A closed pipe or a full disk does not stop the program.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

pub struct Report {
    file: File,
    path: PathBuf,
    /// Names and addresses that must not appear in the file.
    private: Vec<String>,
    counts: [usize; 3],
    /// The checks, if they are to be printed as JSON at the end.
    json: Option<Vec<Value>>,
    /// Reason why the file is incomplete.
    error: Option<io::Error>,
}

impl Report {
    /// # Errors
    ///
    /// Creates the file. An error is a sentence.
    pub fn create(path: &Path, json: bool) -> Result<Self, String> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            // no symbolic link of a user may redirect root
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(|e| format!("cannot write the report {}: {e}", path.display()))?;
        let mut report = Report {
            file,
            path: path.into(),
            private: vec![],
            counts: [0; 3],
            json: json.then(Vec::new),
            error: None,
        };
        report.text("Report of sdp-check, to be sent in with your description.\n");
        Ok(report)
    }

    /// Adds a name that must not appear in the file from now on.
    pub fn hide(&mut self, name: String) {
        // a longer name comes first, because it may contain a shorter one
        self.private.push(name);
        self.private.sort_by_key(|name| usize::MAX - name.len());
    }

    /// Writes text to the file alone.
    pub fn text(&mut self, text: &str) {
        let text = without(text, &self.private);
        if let Err(e) = self.file.write_all(text.as_bytes()) {
            self.error.get_or_insert(e);
        }
    }

    pub fn heading(&mut self, name: &str) {
        self.text(&format!("\n{name}\n\n"));
    }

    /// Writes a check to the file and the terminal.
    pub fn check(&mut self, check: &Check) {
        if let Some(count) = self.counts.get_mut(check.verdict as usize) {
            *count += 1;
        }
        self.text(&check.text());
        match &mut self.json {
            Some(all) => all.push(check.to_json()),
            None => print(&check.text()),
        }
    }

    pub fn checks(&mut self, of: &str, all: &[Check]) {
        for check in all {
            let name = format!("{of}, {}", check.name);
            self.check(&Check {
                name,
                ..check.clone()
            });
        }
    }

    /// Ends the report. Returns true if no check failed.
    ///
    /// # Errors
    ///
    /// The error is a sentence about a file that is incomplete.
    pub fn end(&mut self, how: &str) -> Result<bool, String> {
        let [pass, fail, skip] = self.counts;
        let line = format!("{pass} passed, {fail} failed, {skip} skipped{how}\n");
        self.text(&format!("\n{line}"));
        match self.json.take() {
            Some(checks) => {
                let all = json!({"checks": checks, "passed": pass, "failed": fail, "skipped": skip,
                    "complete": how.is_empty(), "report": self.path.display().to_string()});
                print(&format!("{all}\n"));
            }
            None => print(&line),
        }
        if let Err(e) = self.file.sync_all() {
            // a file that is not on a disk cannot be synced
            if !matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EROFS)) {
                self.error.get_or_insert(e);
            }
        }
        match self.error.take() {
            Some(e) => Err(format!(
                "the report {} is not whole: {e}",
                self.path.display()
            )),
            None => Ok(self.counts[Verdict::Fail as usize] == 0),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_written() {
        let path = std::env::temp_dir().join(format!("sdp-check-report-{}", std::process::id()));
        let mut r = Report::create(&path, false).unwrap();
        r.hide("node1".into());
        r.check(&Check::pass("a", "of node1"));
        r.checks("here", &[Check::fail("b", "x").because("c", "d")]);
        assert_eq!(r.end(""), Ok(false));
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("PASS  a: of (hidden)\nFAIL  here, b: x\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n1 passed, 1 failed, 0 skipped\n"),
            "{text}"
        );
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(Report::create(&path, false).is_err(), "a link was followed");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_disk() {
        let mut r = Report::create("/dev/full".as_ref(), false).unwrap();
        r.check(&Check::pass("a", "b"));
        let e = r.end("").unwrap_err();
        assert!(e.contains("/dev/full is not whole: No space left"), "{e}");
    }
}
