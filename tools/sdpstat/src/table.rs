// SPDX-License-Identifier: GPL-2.0-only

//! Table of aligned columns.

use std::io::{self, Write};

/// Rows of cells, the first of them the heading.
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Lines to print below a row, by the row's number.
    below: Vec<(usize, String)>,
    /// Columns of numbers, which are aligned to the right.
    right: &'static [usize],
}

impl Table {
    pub fn new(heading: &[&str], right: &'static [usize]) -> Self {
        Table {
            rows: vec![heading.iter().map(|s| s.to_string()).collect()],
            below: vec![],
            right,
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Adds a line below the last row.
    pub fn below(&mut self, text: String) {
        self.below.push((self.rows.len() - 1, text));
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(c))
                .map(|s| s.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (c, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if c > 0 {
                    line.push_str("  ");
                }
                match self.right.contains(&c) {
                    true => line.push_str(&format!("{cell:>width$}")),
                    false => line.push_str(&format!("{cell:<width$}")),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
            for (_, text) in self.below.iter().filter(|(n, _)| *n == number) {
                writeln!(out, "    {text}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut t = Table::new(&["Name", "N"], &[1]);
        t.row(vec!["a".into(), "1".into()]);
        t.below("much of it".into());
        t.row(vec!["longer".into(), "123".into()]);
        let mut text = Vec::new();
        t.write(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "Name      N\na         1\n    much of it\nlonger  123\n"
        );
    }
}
