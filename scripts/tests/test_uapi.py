# SPDX-License-Identifier: GPL-2.0-only
"""Tests that include/uapi/sdp.h compiles as any C standard, and agrees with the module's sources.
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from cache import PROJECT, SCRIPTS  # noqa: E402

HEADER = "include/uapi/sdp.h"
PROGRAM = r"""
#include <stdio.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "sdp.h"
#include "sdp.h"

int main(void)
{
	int threshold = 65536, error = 0, route = SDP_ROUTE_BOTH;
	struct sdp_info info;
	socklen_t length = sizeof(error);
	int fd = socket(AF_INET_SDP, SOCK_STREAM, 0);

	if (fd >= 0) {
		setsockopt(fd, IPPROTO_TCP, SDP_ZCOPY_THRESH, &threshold, sizeof(threshold));
		getsockopt(fd, IPPROTO_TCP, SDP_LAST_BIND_ERR, &error, &length);
		setsockopt(fd, IPPROTO_TCP, SDP_ROUTE, &route, sizeof(route));
		length = sizeof(info);
		getsockopt(fd, IPPROTO_TCP, SDP_INFO, &info, &length);
	}
	printf("%d %d %d %d %d\n", PF_INET_SDP, PF_INET6_SDP, SDP_ZCOPY_THRESH, SDP_LAST_BIND_ERR, (int)sizeof(info));
	return 0;
}
"""


class Uapi(unittest.TestCase):
    def test_compiles_and_has_ofeds_numbers(self):
        subprocess.run([SCRIPTS / "prepare", "toolchain"], check=True)
        compile_and_run = 'cat >/tmp/p.c && for std in c89 c17; do gcc -std=$std -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -I include/uapi /tmp/p.c -o /tmp/p && /tmp/p || exit; done'
        done = subprocess.run(
            [SCRIPTS / "in-toolchain", "--dir", PROJECT, "--", "sh", "-c", compile_and_run],
            input=PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "27 28 80 81 144\n" * 2))

    def test_agrees_with_the_module(self):
        header = dict(re.findall(r"#define\s+(\w+)\s+(\d+)", (PROJECT / HEADER).read_text()))
        sources = [source.read_text() for source in (PROJECT / "src").rglob("*.rs")]
        # a parameter whose default is in the header
        self.assertIn(f"\nP(ipproto, {header.pop('IPPROTO_SDP')}, ", (PROJECT / "src/sys/params.def").read_text())
        for name, number in header.items():
            own = {value for text in sources for value in re.findall(rf"const {name}: u\d+ = (\d+);", text)}
            # constants that the module does not define come from this header
            taken = any(re.search(rf"\bc::{name}\b", text) for text in sources)
            self.assertTrue(own or taken, f"{name} is nowhere in src")
            self.assertLessEqual(own, {number}, name)


if __name__ == "__main__":
    unittest.main()
