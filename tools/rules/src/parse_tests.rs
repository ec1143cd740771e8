// SPDX-License-Identifier: GPL-2.0-only

use super::*;

fn one(line: &str) -> Rule {
    parse(line.as_bytes())
        .unwrap_or_else(|p| panic!("{line}: {p:?}"))
        .rules
        .remove(0)
}

#[test]
fn statements() {
    for (line, means) in [
        ("use both server * *:*", "use both server * *:*"),
        (
            "  USE\tsdp  listen ssh? 10.1.2.3 : 22 # x",
            "use sdp server ssh? 10.1.2.3/32:22",
        ),
        (
            "use tcp client * 192.168.0.0/16:1 - 1023\r",
            "use tcp client * 192.168.0.0/16:1-1023",
        ),
        ("use sdp connect a ::1:80", "use sdp client a ::1/128:80"),
        (
            "use sdp connect a fd77::/64:*",
            "use sdp client a fd77::/64:*",
        ),
        (
            "use sdp connect a :: / 0 : 0-65535",
            "use sdp client a ::/0:*",
        ),
        (
            "use sdp connect a ::ffff:1.2.3.4:9",
            "use sdp client a ::ffff:1.2.3.4/128:9",
        ),
    ] {
        assert_eq!(one(line).to_string(), means);
    }
}

#[test]
fn log_statements() {
    let r = parse(
        b"log destination syslog min-level 3\nlog min-level 9 destination file /var/log/x\nlog\n",
    );
    let log = r.unwrap().log;
    assert_eq!(log.min_level, Some(9));
    assert_eq!(
        log.destination,
        Some(Destination::File(b"/var/log/x".to_vec()))
    );
    assert_eq!(parse(b"# none\n").unwrap().log, Log::default());
}

/// Wrong lines, and the message about each, behind the column.
const PROBLEMS: &[(&str, &str)] = &[
    ("usx", "1: expected 'use' or 'log', found 'usx'"),
    (
        "use",
        "4: expected 'tcp', 'sdp' or 'both', but the line ends",
    ),
    (
        "  use udp",
        "7: expected 'tcp', 'sdp' or 'both', found 'udp'",
    ),
    (
        "use sdp peer * *:*",
        "9: expected 'server', 'listen', 'client' or 'connect', found 'peer'",
    ),
    (
        "use sdp server",
        "15: expected a program's name or '*', but the line ends",
    ),
    (
        "use sdp server x  # no",
        "19: expected an address or '*', but the line ends",
    ),
    (
        "use sdp server x 1.2.3.4",
        "25: expected ':' and ports after the address, but the line ends",
    ),
    (
        "use sdp server x 1.2.3:*",
        "18: expected an IPv4 or IPv6 address or '*', found '1.2.3'",
    ),
    (
        "use sdp server x host:1",
        "18: expected an IPv4 or IPv6 address or '*', found 'host'",
    ),
    (
        "use sdp server é 1.2.3.4/33:1",
        "26: expected a prefix length from 0 to 32, found '33'",
    ),
    (
        "use sdp server x ::/129:1",
        "21: expected a prefix length from 0 to 128, found '129'",
    ),
    (
        "use sdp server x *:99999",
        "20: expected a port from 0 to 65535, two with '-' between, or '*', found '99999'",
    ),
    (
        "use sdp server x *:1-",
        "22: expected a port from 0 to 65535, two with '-' between, or '*', found '1-'",
    ),
    (
        "use sdp server x *:9-8",
        "22: expected a last port that is not below the first, found '8'",
    ),
    (
        "use sdp server x *:1 y",
        "20: expected a port from 0 to 65535, two with '-' between, or '*', found '1 y'",
    ),
    (
        "log level 3",
        "5: expected 'destination' or 'min-level', found 'level'",
    ),
    ("log min-level high", "15: expected a number, found 'high'"),
    (
        "log destination",
        "16: expected 'stderr', 'syslog' or 'file', but the line ends",
    ),
    (
        "log destination file",
        "21: expected the name of a file, but the line ends",
    ),
    (
        "log destination file /tmp/..",
        "22: expected the name of a file, found '/tmp/..'",
    ),
];

#[test]
fn problems_tell_where_and_what() {
    for (line, wanted) in PROBLEMS {
        let text = format!("use both server * *:*\n{line}\n");
        let problems = parse(text.as_bytes()).expect_err(line);
        assert_eq!(problems.len(), 1, "{line}");
        assert_eq!(
            problems[0].to_string(),
            format!("line 2, column {wanted}"),
            "{line}"
        );
    }
}

#[test]
fn all_problems_of_a_file_but_not_without_end() {
    assert_eq!(
        parse(b"x\nuse both server * *:*\ny\n").unwrap_err().len(),
        2
    );
    assert_eq!(parse(&b"x\n".repeat(1000)).unwrap_err().len(), MAX_PROBLEMS);
}
