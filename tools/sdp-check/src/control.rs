// SPDX-License-Identifier: GPL-2.0-only

//! Control connection over TCP between two `sdp-check`. Both ends use the same protocol of single
//! lines. The other end is not trusted: line length, number of lines and time are bounded.

use crate::numbers::Numbers;
use crate::verdict::clean;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Greeting of this version of the control protocol. The number changes with the protocol.
pub const GREETING: &str = "sdp-check 2";
/// Maximum bytes of a line.
const LONGEST: u64 = 4000;

pub struct Control {
    reader: BufReader<TcpStream>,
    /// Deadline for lines of the other end.
    until: Instant,
    /// Last error line of the other end, received while another line was expected.
    failure: Option<String>,
}

/// Result of a step of the control protocol; the error describes the fault of the other end.
pub type Result<T> = std::result::Result<T, String>;

impl Control {
    /// Both ends begin with a greeting line.
    ///
    /// # Errors
    ///
    /// The other end may be any other service.
    pub fn new(stream: TcpStream, until: Instant) -> Result<Self> {
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut control = Control {
            reader: BufReader::new(stream),
            until,
            failure: None,
        };
        control.say(GREETING)?;
        let said = control.line(Duration::from_secs(10)).map_err(|e| {
            format!(
                "the port does not reply as sdp-check --serve does ({e}); does another program listen there?"
            )
        })?;
        match said.as_str() {
            GREETING => Ok(control),
            "sdp-check busy" => Err("the server serves another client; try again later".into()),
            other if other.starts_with("sdp-check ") => Err(format!(
                "the sdp-check there has another version ({other}, this one {GREETING}); install the same on both hosts"
            )),
            other => Err(format!("the port replied {other:?}, unlike sdp-check --serve")),
        }
    }

    pub fn local(&self) -> io::Result<SocketAddr> {
        self.reader.get_ref().local_addr()
    }

    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.reader.get_ref().peer_addr()
    }

    pub fn say(&mut self, line: &str) -> Result<()> {
        let stream = self.reader.get_mut();
        stream
            .set_write_timeout(Some(Duration::from_secs(30)))
            .and_then(|()| stream.write_all(format!("{line}\n").as_bytes()))
            .map_err(|e| gone(&e))
    }

    /// Returns the next line, if it arrives within `time`.
    pub fn line(&mut self, time: Duration) -> Result<String> {
        let end = self.until.min(Instant::now() + time);
        let mut text = Vec::new();
        while text.last() != Some(&b'\n') {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the other end does not reply any more".into());
            }
            self.reader
                .get_ref()
                .set_read_timeout(Some(left))
                .map_err(|e| gone(&e))?;
            let room = LONGEST - text.len() as u64;
            if room == 0 {
                return Err("a line without end".into());
            }
            match self.reader.by_ref().take(room).read_until(b'\n', &mut text) {
                Ok(0) => return Err("the other end has closed the connection".into()),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(gone(&e)),
            }
        }
        text.pop();
        let line = String::from_utf8(text).map_err(|_| "a line that is no text".to_string())?;
        Ok(line)
    }

    /// Receives the next line, which must begin with `word`, and returns the rest of it. A line
    /// `failed` becomes an error with the text of the other end.
    pub fn expect(&mut self, word: &str, time: Duration) -> Result<String> {
        let line = self.line(time)?;
        let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match first {
            _ if first == word => Ok(rest.to_string()),
            "failed" => {
                self.failure = Some(clean(rest));
                Err(clean(rest))
            }
            _ => Err(format!(
                "the other end sent {:?} instead of {word:?}",
                clean(&line)
            )),
        }
    }

    /// Clears the error of an earlier trial.
    pub fn begin(&mut self) {
        self.failure = None;
    }

    /// Sends the result of a trial of this end, and receives the result of the other end.
    pub fn end(&mut self, mine: &Result<Numbers>, time: Duration) -> Result<Numbers> {
        match mine {
            Ok(numbers) => self.say(&format!("done {}", numbers.to_line()))?,
            Err(why) => self.say(&format!("failed {}", clean(why)))?,
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let end = Instant::now() + time;
        loop {
            let line = self.line(end.saturating_duration_since(Instant::now()))?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("done", rest) => return Ok(Numbers::from_line(rest)),
                ("failed", rest) => return Err(clean(rest)),
                // lines that the other end sent before it received the error
                ("sent" | "read", _) => {}
                _ => return Err(format!("the other end sent {:?}", clean(&line))),
            }
        }
    }

    pub fn fd(&self) -> RawFd {
        self.reader.get_ref().as_raw_fd()
    }
}

fn gone(e: &io::Error) -> String {
    format!("the connection to the other end is lost: {e}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    const SOON: Duration = Duration::from_secs(20);

    /// Runs a client against a server that sends `said`.
    fn against(said: &'static [u8], then: impl Fn(Result<Control>)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(said).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // the client may have closed the connection before
            let _ = stream.read_to_end(&mut Vec::new());
        });
        then(Control::new(
            TcpStream::connect(at).unwrap(),
            Instant::now() + SOON,
        ));
        other.join().unwrap();
    }

    fn refused(said: &'static [u8], why: &str) {
        against(said, |c| {
            let e = c.err().expect(why);
            assert!(e.contains(why), "{e} should have {why}");
        });
    }

    #[test]
    fn who_is_there() {
        refused(b"sdp-check 1\n", "install the same");
        refused(b"sdp-check busy\n", "another client");
        refused(b"SSH-2.0-OpenSSH\r\n", "unlike sdp-check");
        refused(b"", "closed the connection");
        refused(b"\xff\xfe\n", "no text");
        refused(&[b'x'; 5000], "a line without end");
    }

    #[test]
    fn lines() {
        against(
            b"sdp-check 2\nport 5\nfailed disk\x1bfull\nwhat\nrest",
            |c| {
                let mut c = c.unwrap();
                assert_eq!(c.expect("port", SOON), Ok("5".into()));
                assert_eq!(c.expect("port", SOON), Err("disk full".into()));
                assert!(c.expect("port", SOON).unwrap_err().contains("instead of"));
                assert!(c.line(SOON).unwrap_err().contains("closed"), "half a line");
            },
        );
    }

    #[test]
    fn the_end_of_a_trial() {
        against(
            b"sdp-check 2\nsent 5\ndone bytes=5\nfailed disk\ndone",
            |c| {
                let mut c = c.unwrap();
                let mine = Ok(Numbers::new("bytes", 5));
                assert_eq!(c.end(&mine, SOON), mine);
                assert!(c.expect("sent", SOON).is_err(), "it failed meanwhile");
                assert_eq!(c.end(&mine, SOON), Err("disk".into()));
            },
        );
    }

    #[test]
    fn time_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut far = TcpStream::connect(at).unwrap();
        far.write_all(b"sdp-check 2\n").unwrap();
        let until = Instant::now() + Duration::from_secs(3600);
        let mut c = Control::new(listener.accept().unwrap().0, until).unwrap();
        let e = c.line(Duration::from_millis(50)).unwrap_err();
        assert!(e.contains("does not reply"), "{e}");
        c.until = Instant::now();
        assert!(c.line(SOON).unwrap_err().contains("does not reply"));
    }
}
