// SPDX-License-Identifier: GPL-2.0-only

//! Result of a check, in its form for users and for the control connection.

use serde_json::{json, Value};

/// Verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Pass,
    Fail,
    /// The check could not be made.
    Skip,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Skip => "SKIP",
        }
    }
}

/// One check in a line; a failed check may have a cause and a remedy, each in a line of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub verdict: Verdict,
    pub name: String,
    /// Result in words.
    pub found: String,
    pub cause: String,
    pub remedy: String,
}

impl Check {
    pub fn pass(name: impl Into<String>, found: impl Into<String>) -> Self {
        Check {
            verdict: Verdict::Pass,
            name: name.into(),
            found: found.into(),
            cause: String::new(),
            remedy: String::new(),
        }
    }

    pub fn skip(name: impl Into<String>, found: impl Into<String>) -> Self {
        Check {
            verdict: Verdict::Skip,
            ..Self::pass(name, found)
        }
    }

    pub fn fail(name: impl Into<String>, found: impl Into<String>) -> Self {
        Check {
            verdict: Verdict::Fail,
            ..Self::pass(name, found)
        }
    }

    pub fn because(mut self, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        (self.cause, self.remedy) = (cause.into(), remedy.into());
        self
    }

    pub fn text(&self) -> String {
        let mut all = format!("{}  {}: {}\n", self.verdict.name(), self.name, self.found);
        for (what, line) in [("cause", &self.cause), ("remedy", &self.remedy)] {
            if !line.is_empty() {
                all += &format!("      {what}: {line}\n");
            }
        }
        all
    }

    pub fn to_json(&self) -> Value {
        json!({"verdict": self.verdict.name(), "name": self.name, "found": self.found,
            "cause": self.cause, "remedy": self.remedy})
    }

    /// Formats the check for the control connection.
    pub fn to_line(&self) -> String {
        let parts = [
            self.verdict.name(),
            &self.name,
            &self.found,
            &self.cause,
            &self.remedy,
        ];
        parts.map(clean).join("\t")
    }

    pub fn from_line(line: &str) -> Option<Self> {
        let parts: Vec<_> = line.split('\t').collect();
        let [verdict, name, found, cause, remedy] = parts.try_into().ok()?;
        let all = [Verdict::Pass, Verdict::Fail, Verdict::Skip];
        let verdict = all.into_iter().find(|v| v.name() == verdict)?;
        Some(Check {
            verdict,
            name: clean(name),
            found: clean(found),
            cause: clean(cause),
            remedy: clean(remedy),
        })
    }
}

/// Returns the text of another host in one line, without control characters.
pub fn clean(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).take(1000).collect()
}

/// Returns the text without private names and addresses.
pub fn without(text: &str, private: &[String]) -> String {
    private
        .iter()
        .filter(|name| name.len() > 1)
        .fold(text.to_string(), |text, name| replace_word(&text, name))
}

/// Replaces a name where it is not part of a longer one.
fn replace_word(text: &str, name: &str) -> String {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        done += before;
        let part = inside(done.chars().last()) || inside(after.chars().next());
        done += if part { name } else { "(hidden)" };
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_each() {
        assert_eq!(Check::pass("a", "b").text(), "PASS  a: b\n");
        let fail = Check::fail("link", "down").because("no cable", "plug it in");
        assert_eq!(
            fail.text(),
            "FAIL  link: down\n      cause: no cable\n      remedy: plug it in\n"
        );
        assert_eq!(Check::skip("x", "no tool").text(), "SKIP  x: no tool\n");
    }

    #[test]
    fn over_the_wire() {
        let fail = Check::fail("link", "down").because("no cable", "plug it in");
        assert_eq!(Check::from_line(&fail.to_line()), Some(fail));
        for wrong in ["", "PASS", "MAYBE\ta\tb\tc\td", "PASS\ta\tb\tc\td\te"] {
            assert_eq!(Check::from_line(wrong), None, "{wrong}");
        }
        let escape = Check::pass("a\tb\n", "\x1b[2J").to_line();
        let read = Check::from_line(&escape).unwrap();
        assert_eq!((read.name.as_str(), read.found.as_str()), ("a b ", " [2J"));
        assert_eq!(clean(&"x".repeat(2000)).len(), 1000);
    }

    #[test]
    fn names_are_hidden() {
        let private = ["10.7.0.1".to_string(), "node1".into(), String::new()];
        assert_eq!(
            without(
                "from 10.7.0.1:99 (node1), not 10.7.0.12 or node11",
                &private
            ),
            "from (hidden):99 ((hidden)), not 10.7.0.12 or node11"
        );
    }
}
