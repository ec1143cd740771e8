# SPDX-License-Identifier: GPL-2.0-only
"""Tests the targets of imports, circles, limits of size, and that debts only fall."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import layers  # noqa: E402

MODS = {
    "ib_sdp.rs": "mod memory; mod protocol; mod socket; mod sys; mod transport;",
    "memory/mod.rs": "",
    "protocol/mod.rs": "",
    "socket/mod.rs": "pub mod a; pub mod b;",
    "socket/a.rs": "pub struct A;",
    "socket/b.rs": "pub struct B;",
    "sys/mod.rs": "pub mod x; pub mod y;",
    "sys/x.rs": "pub struct X;",
    "sys/y.rs": "pub struct Y;",
    "transport/mod.rs": "",
}


class Made(unittest.TestCase):
    def complaints(self, debts="", **files):
        """Returns complaints about the tree above with other files, whose names are written
        `sys__x` for sys/x.rs."""
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            named = {(name.replace("__", "/") + ".rs" if "." not in name else name): text for name, text in files.items()}
            for name, text in {**MODS, **named}.items():
                path = root / (name if name.startswith(("tools/", "qemu/")) else "src/" + name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            (root / layers.DEBTS).parent.mkdir(parents=True)
            total = "" if "total" in debts else "total src 999\n"
            (root / layers.DEBTS).write_text("# a comment\n\n" + debts + total)
            return list(layers.complaints(root))

    def goes_up(self, line, target="src/socket/a.rs", **files):
        found = self.complaints(**files)
        self.assertEqual([text.partition(", which")[0] for text in found], [f"src/sys/x.rs:{line} imports {target}"], found)


class TestArrows(Made):
    def test_down_and_beside_in_a_room(self):
        self.assertEqual(self.complaints(socket__a="use crate::sys::x::X; use super::b::B;", sys__x="use super::y::Y;"), [])

    def test_up_by_use(self):
        self.goes_up(2, sys__x="\nuse crate::socket::a::A;")

    def test_up_by_a_path_in_code(self):
        self.goes_up(3, sys__x="fn f()\n{\n    crate::socket::a::go::<u8>(0) }")
        self.goes_up(1, sys__x="fn f() -> [u8; super::super::socket::a::LEN] { [0; 1] }")
        self.goes_up(1, sys__x="fn f() { for _ in 0..crate::socket::a::LEN {} }")

    def test_up_by_a_macro(self):
        self.goes_up(1, sys__x="macro_rules! m { () => { $crate::socket::a::go() }; }")

    def test_up_out_of_a_module_inside(self):
        self.goes_up(2, sys__x="mod inside {\n    use super::super::super::socket::a::A;\n}")
        self.assertEqual(self.complaints(sys__x="mod inside { use super::super::y::Y; use super::X; }\nstruct X;"), [])

    def test_braces_and_renames(self):
        self.goes_up(1, sys__x="use crate::{protocol, socket::{a::{self as other}}};")
        self.goes_up(2, sys__x="use crate::{socket::{self}};\nfn f() { socket::a::go() }")
        self.goes_up(1, sys__x="use crate::{sys::{y::{Y, Z}}, socket::{\n    a::{A as Renamed, C}}};")
        # the name of a module alone is no import; an item of it is
        self.assertEqual(self.complaints(sys__x="use crate::socket as above;"), [])
        self.goes_up(2, sys__x="use crate::socket as above;\nfn f() { above::a::go() }")

    def test_reexport(self):
        mods = "mod a; pub mod b; pub use a::A as Alias; pub use self::b::*;"
        self.goes_up(1, sys__x="use crate::socket::Alias;", **{"socket/mod.rs": mods})
        self.goes_up(1, "src/socket/b.rs", sys__x="use crate::socket::B;", **{"socket/mod.rs": mods})
        # a name defined below may be re-exported by a higher file and still is no import that goes
        # up
        self.assertEqual(self.complaints(sys__x="use crate::socket::Y;", **{"socket/mod.rs": "pub mod a; pub mod b; pub use crate::sys::y::Y;"}), [])
        # and a name from outside does not lead to the file that re-exports it
        self.assertEqual(self.complaints(sys__x="use crate::socket::Arc;", **{"socket/mod.rs": "pub mod a; pub mod b; pub use kernel::sync::Arc;"}), [])
        self.goes_up(1, "src/socket/mod.rs", sys__x="use crate::socket::Own;", **{"socket/mod.rs": "pub mod a; pub mod b; pub struct Own;"})

    def test_reexports_in_a_ring(self):
        self.assertEqual(self.complaints(sys__x="use super::y::N; use self::N as M;", sys__y="pub use super::x::M as N;")[1:], [])

    def test_comments_strings_visibility(self):
        self.assertEqual(
            self.complaints(
                sys__x="//! [`crate::socket::a`]\n/* crate::socket::a::A /* nested */ use crate::socket::a::A; */\n"
                'const S: &str = "crate::socket::a::A \\" use crate::socket::a::A;"; const R: &str = r#""use crate::socket::a::A;"#;\n'
                "const C: char = '\"'; fn f<'a>(_: &'a u8) {} // crate::socket::a::A\npub(in crate::socket::a) struct X;\n"
            ),
            [],
        )
        self.goes_up(2, sys__x="const C: char = '\\\"';\nuse crate::socket::a::A; // \"")
        self.goes_up(2, sys__x="const C: char = '\"'; fn f<'a>(_: &'a u8) {} /* */\nuse crate::socket::a::A; // \"")

    def test_names_of_other_crates(self):
        self.assertEqual(self.complaints(sys__x="use socket::a::A; use kernel::socket; fn f() { socket::a::go(); Vec::new() }"), [])

    def test_files_named_by_path_and_beside_a_file(self):
        found = self.complaints(
            sys__x='#[cfg(test)]\n#[path = "x_tests.rs"]\nmod tests; mod below; struct X;',
            sys__x_tests="use super::X;\nuse crate::socket::a::A;",
            sys__x__below="use super::super::y::Y;\nuse crate::socket::b::B;",
        )
        self.assertEqual([text.split(",")[0] for text in found], ["src/sys/x/below.rs:2 imports src/socket/b.rs", "src/sys/x_tests.rs:2 imports src/socket/a.rs"])

    def test_aside_in_a_row(self):
        found = self.complaints(**{"memory/mod.rs": "pub mod ring;", "memory/ring.rs": "pub struct Ring;", "protocol/mod.rs": "use crate::memory::ring::Ring;"})
        self.assertEqual(len(found), 1)
        self.assertIn("src/protocol/mod.rs:1 imports src/memory/ring.rs", found[0])

    def test_a_part_of_a_room_in_another_row(self):
        mods = {"memory/mod.rs": "pub mod ring; pub mod pinned;", "memory/pinned.rs": "use super::ring::Ring;"}
        self.assertEqual(self.complaints(sys__x="use crate::memory::ring::Ring;", **mods, **{"memory/ring.rs": "pub struct Ring;"}), [])
        found = self.complaints(**mods, **{"memory/ring.rs": "use crate::sys::x::X;"})
        self.assertIn("src/memory/ring.rs:1 imports src/sys/x.rs", "".join(found))

    def test_rooms_of_sys(self):
        """sys/net and sys/rdma import from sys/ itself, and not from one another; sys/ imports from
        neither."""
        mods = {"sys/mod.rs": "pub mod x; pub mod y; pub mod net; pub mod rdma;", "sys/net/mod.rs": "pub struct Address;", "sys/rdma/mod.rs": "pub struct Cq;"}
        self.assertEqual(self.complaints(**{**mods, "sys/net/mod.rs": "use crate::sys::x::X;", "sys/rdma/mod.rs": "use crate::sys::x::X;"}), [])
        found = self.complaints(**{**mods, "sys/rdma/mod.rs": "use crate::sys::net::Address;", "sys/x.rs": "use super::rdma::Cq;"})
        self.assertEqual([text.partition(", which")[0] for text in found],
                         ["src/sys/rdma/mod.rs:1 imports src/sys/net/mod.rs", "src/sys/x.rs:1 imports src/sys/rdma/mod.rs"])

    def test_includes(self):
        files = {"sys/helpers.h": "", "memory/trace.h": '#include "sys/helpers.h"\n'}
        self.assertEqual(self.complaints(**files, **{"sys/helpers.c": '#include <linux/in.h>\n#include "helpers.h"\n/*\n#include "memory/trace.h"\n*/\n'}), [])
        found = self.complaints(**files, **{"sys/helpers.c": '#include "helpers.h"\n#include "memory/trace.h"\n'})
        self.assertEqual([text.partition(", which")[0] for text in found], ["src/sys/helpers.c:2 imports src/memory/trace.h"])

    def test_no_room_and_no_mod(self):
        found = self.complaints(sys__z="", **{"attic/old.h": "", "sys/h.c": '#include "attic/old.h"\n'})
        self.assertEqual([text.partition(":")[0] for text in found], ["src/attic/old.h is in no layer", "src/sys/z.rs has no `mod` that names it"])


class TestCircles(Made):
    RING = {"socket__a": "use super::b::B; pub struct A;", "socket__b": "\nuse super::a::A; pub struct B;"}

    def test_two_files(self):
        found = self.complaints(**self.RING)
        self.assertEqual(len(found), 1)
        self.assertIn("src/socket/a.rs:1 -> src/socket/b.rs:2 -> src/socket/a.rs", found[0])

    def test_headers(self):
        found = self.complaints(**{"sys/h.h": '#include "i.h"\n', "sys/i.h": '#include "h.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("src/sys/h.h:1 -> src/sys/i.h:1 -> src/sys/h.h", found[0])

    def test_mod_with_children(self):
        """A mod.rs and its children may use each other, but the children not one another in a
        circle."""
        mod = "pub mod a; pub mod b; use a::A; pub struct Own; fn f() { b::go() }"
        self.assertEqual(self.complaints(socket__a="use super::Own;", socket__b="use super::Own;", **{"socket/mod.rs": mod}), [])
        found = self.complaints(**{name: text + "use super::Own;" for name, text in self.RING.items()}, **{"socket/mod.rs": mod})
        self.assertEqual(len(found), 1)
        self.assertIn("new for src/socket/a.rs, src/socket/b.rs:", found[0])

    def test_mod_with_a_stranger(self):
        files = {"socket/d/mod.rs": "mod e; use super::a::A; pub struct Own; fn f() { e::go() }", "socket/d/e.rs": "use super::Own;"}
        found = self.complaints(socket__a="use super::d::Own;", **files, **{"socket/mod.rs": "mod a; mod b; mod d;"})
        self.assertEqual(len(found), 1)
        self.assertIn("new for src/socket/a.rs, src/socket/d/e.rs, src/socket/d/mod.rs:", found[0])

    def test_through_several_rooms(self):
        """A circle of a mod.rs and its children needs an import that goes up, which has a complaint
        of its own."""
        found = self.complaints(socket__a="use crate::sys::x::X;", sys__x="use super::y::Y;", sys__y="use crate::socket::a::A;")
        self.assertEqual([text.partition(", which")[0] for text in found], ["src/sys/y.rs:1 imports src/socket/a.rs"])

    def test_listed(self):
        listed = "circle\n    src/socket/a.rs\n    src/socket/b.rs\n"
        self.assertEqual(self.complaints(listed, **self.RING), [])
        found = self.complaints(listed)
        self.assertEqual(found, [f"{layers.DEBTS}: src/socket/{name}.rs is not in that circle any more: delete this line" for name in "ab"])

    def test_another_than_listed(self):
        found = self.complaints("circle\n    src/socket/a.rs\n    src/socket/b.rs\n", sys__x="use super::y::Y;", sys__y="use super::x::X;", **self.RING)
        self.assertEqual(len(found), 1)
        self.assertIn("new for src/sys/x.rs, src/sys/y.rs:", found[0])

    def test_larger_than_listed(self):
        files = {**self.RING, "socket__b": "use super::{a::A, c::C};", "socket__c": "use super::a::A;", "socket/mod.rs": "mod a; mod b; mod c;"}
        found = self.complaints("circle\n    src/socket/a.rs\n    src/socket/b.rs\n", **files)
        self.assertEqual(len(found), 1)
        self.assertIn("src/socket/c.rs:1 -> src/socket/a.rs:1 -> src/socket/b.rs:1 -> src/socket/c.rs is a circle, new for src/socket/c.rs:", found[0])

    def test_smaller_than_listed(self):
        found = self.complaints("circle\n    src/socket/a.rs\n    src/socket/b.rs\n    src/socket/c.rs\n", **self.RING)
        self.assertEqual(found, [f"{layers.DEBTS}: src/socket/c.rs is not in that circle any more: delete this line"])

    def test_come_apart(self):
        files = {**self.RING, "sys__x": "use super::y::Y;", "sys__y": "use super::x::X;"}
        names = [f"    src/{name}.rs\n" for name in ("socket/a", "socket/b", "sys/x", "sys/y")]
        found = self.complaints("circle\n" + "".join(names), **files)
        self.assertEqual(len(found), 1)
        self.assertIn("come apart", found[0])
        self.assertEqual(self.complaints("".join(["circle\n", *names[:2], "circle\n", *names[2:]]), **files), [])

    def test_grown_together(self):
        """Two listed circles that become one are a new circle."""
        files = {
            **self.RING,
            "socket/mod.rs": "mod a; mod b; mod c; mod d;",
            "socket__b": "use super::a::A; use super::c::C;",
            "socket__c": "use super::d::D;",
            "socket__d": "use super::c::C;",
        }
        listed = "".join(f"circle\n    src/socket/{one}.rs\n    src/socket/{other}.rs\n" for one, other in ("ab", "cd"))
        self.assertEqual(self.complaints(listed, **files), [])
        found = self.complaints(listed, **{**files, "socket__d": "use super::c::C; use super::a::A;"})
        self.assertEqual(len(found), 1)
        self.assertIn("is a circle, new for src/socket/c.rs, src/socket/d.rs:", found[0])


class TestTools(Made):
    LIB = {"tools/rules/src/lib.rs": "mod parse; pub use parse::Rule;", "tools/rules/src/parse.rs": "pub struct Rule;"}

    def test_of_one_crate(self):
        files = {"tools/sdp-x/src/main.rs": "mod a; mod b; fn main() { a::A }", "tools/sdp-x/src/a.rs": "use crate::b::B; pub struct A;"}
        self.assertEqual(self.complaints(**files, **{"tools/sdp-x/src/b.rs": "use crate::main; pub struct B;"})[0], "tools/sdp-x/src/a.rs is in no layer: add its folder to scripts/lib/layers.py")
        files = {name.replace("sdp-x", "sdpctl"): text for name, text in files.items()}
        self.assertEqual(self.complaints(**files, **{"tools/sdpctl/src/b.rs": "pub struct B;"}), [])
        found = self.complaints(**files, **{"tools/sdpctl/src/b.rs": "\nuse crate::a::A; pub struct B;"})
        self.assertEqual(len(found), 1)
        self.assertIn("tools/sdpctl/src/a.rs:1 -> tools/sdpctl/src/b.rs:2 -> tools/sdpctl/src/a.rs is a circle", found[0])

    def test_the_first_file_is_like_a_mod(self):
        files = {"tools/sdpctl/src/main.rs": "mod a; struct Error; fn main() { a::go() }", "tools/sdpctl/src/a.rs": "use crate::Error;"}
        self.assertEqual(self.complaints(**files), [])

    def test_libraries(self):
        program = {"tools/sdpctl/src/main.rs": "use sdp_rules::Rule; fn main() {}"}
        self.assertEqual(self.complaints(**self.LIB, **program), [])
        # a name of the module's own that equals a library of the tools
        self.assertEqual(self.complaints(**self.LIB, sys__x="fn f() { sdp_rules::go() }"), [])
        above = {"tools/libsdp/src/lib.rs": "pub struct Log;", "tools/rules/src/parse.rs": "use sdp_libsdp::Log; pub struct Rule;"}
        found = self.complaints(**{**self.LIB, **above})
        self.assertEqual([text.partition(", which")[0] for text in found], ["tools/rules/src/parse.rs:1 imports tools/libsdp/src/lib.rs"])

    def test_files_of_another_crate(self):
        files = {"tools/sdpctl/src/main.rs": "mod options; fn main() {}", "tools/sdpctl/src/options.rs": ""}
        files["tools/completions/src/main.rs"] = '#[path = "../../sdpctl/src/options.rs"]\nmod options; fn main() { options::f() }'
        self.assertEqual(self.complaints(**files), [])
        files = {name.replace("completions", "info"): text for name, text in files.items()}
        self.assertEqual([text.partition(", which")[0] for text in self.complaints(**files)], ["tools/info/src/main.rs:2 imports tools/sdpctl/src/options.rs"])

    def test_no_mod(self):
        found = self.complaints(**{"tools/sdpctl/src/main.rs": "fn main() {}", "tools/sdpctl/src/lost.rs": "", "tools/sdpctl/build.rs": "", "tools/sdpctl/tests/t.rs": ""})
        self.assertEqual(found, ["tools/sdpctl/src/lost.rs has no `mod` that names it: add a `mod` or delete the file"])


class TestCalls(Made):
    """C: a function of another file is an import, though one header declares all."""

    def test_circle(self):
        here = "void here(void)\n{\n\tthere();\n}\n"
        found = self.complaints(**{"qemu/inside/a.c": here, "qemu/inside/b.c": "/* here() */\nvoid there(void)\n{\n\there();\n}\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("qemu/inside/a.c:3 -> qemu/inside/b.c:4 -> qemu/inside/a.c is a circle", found[0])
        for other in ("/* here() */\nvoid there(void)\n{\n}\n", "static void here(void)\n{\n}\n\nvoid there(void)\n{\n\tputs(\"here\");\n}\n"):
            self.assertEqual(self.complaints(**{"qemu/inside/a.c": here, "qemu/inside/b.c": other}), [])

    def test_of_another_folder(self):
        files = {"qemu/inside/a.c": "void f(void)\n{\n\tg();\n}\n", "qemu/inside/module/b.c": "void g(void)\n{\n\tf();\n}\n"}
        self.assertEqual(self.complaints(**files), [])


class TestPython(Made):
    def test_circle(self):
        files = {"qemu/host/a.py": "import os\nimport b\n"}
        self.assertEqual(self.complaints(**files, **{"qemu/host/b.py": "import json\n"}), [])
        found = self.complaints(**files, **{"qemu/host/b.py": "def f():\n    from a import A\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("qemu/host/a.py:2 -> qemu/host/b.py:2 -> qemu/host/a.py is a circle", found[0])

    def test_function(self):
        text = "def long():\n" + "    pass\n" * 70
        self.assertEqual(self.complaints(**{"qemu/host/a.py": text}), ["qemu/host/a.py:1: long() has 71 lines, and 70 are allowed: move a part of it to another function"])


class TestSizes(Made):
    LONG = "fn short() {}\n\nimpl X {\n    pub fn long(x: [u8; 3], f: impl Fn(u8))\n    {\n" + "        x();\n" * 68 + "    }\n}\n"

    def test_file(self):
        self.assertEqual(self.complaints(sys__x="//\n" * 500), [])
        self.assertEqual(self.complaints(sys__x="//\n" * 501), ["src/sys/x.rs has 501 lines, and 500 are allowed: split it by subject"])

    def test_function(self):
        found = self.complaints(sys__x=self.LONG)
        self.assertEqual(found, ["src/sys/x.rs:4: long() has 71 lines, and 70 are allowed: move a part of it to another function"])
        self.assertEqual(self.complaints(sys__x=self.LONG.replace("        x();\n", "", 1)), [])

    def test_braces_in_strings_and_declarations(self):
        text = 'trait T {\n    fn declared(x: [u8; 3]);\n}\nfn a() { "{"; \'{\'; /* { */ }\n' + "const A: u8 = 0;\n" * 100
        self.assertEqual(self.complaints(sys__x=text), [])

    def test_function_in_c(self):
        text = "struct s {\n" + "\tint a;\n" * 100 + "};\n\nstatic int __init long_one(int a,\n\t\t\t  int b)\n{\n" + "\tb();\n" * 67 + "}\n"
        self.assertEqual(self.complaints(**{"sys/h.c": text}), ["src/sys/h.c:104: long_one() has 71 lines, and 70 are allowed: move a part of it to another function"])
        self.assertEqual(self.complaints(**{"sys/h.c": text.replace("\tb();\n", "", 1)}), [])

    def test_listed(self):
        listed = "function src/sys/x.rs long {}  # it is one list\n"
        self.assertEqual(self.complaints(listed.format(71), sys__x=self.LONG), [])
        self.assertEqual(self.complaints("file src/sys/x.rs 600\n", sys__x="//\n" * 600), [])

    def test_a_size_only_shrinks(self):
        self.assertEqual(self.complaints("file src/sys/x.rs 600\n", sys__x="//\n" * 601), ["src/sys/x.rs has 601 lines, and 600 are allowed: split it by subject"])
        self.assertEqual(self.complaints("file src/sys/x.rs 600\n", sys__x="//\n" * 599), [f"{layers.DEBTS}:3: `file src/sys/x.rs` has got shorter: write 599 for 600"])
        self.assertEqual(self.complaints("file src/sys/x.rs 600\n", sys__x="//\n" * 500), [f"{layers.DEBTS}:3: `file src/sys/x.rs` is paid: delete this line"])

    def test_two_of_one_name(self):
        found = self.complaints("function src/sys/x.rs long 71\n", sys__x=self.LONG * 2)
        self.assertEqual(len(found), 1)
        self.assertIn("142 lines, and 71 are allowed", found[0])


class TestTotal(Made):
    def test_it_does_not_grow(self):
        lines = {"sys__x": "//\n" * 6, "sys/y.c": "\n" * 3, "sys/z.def": "\n"}
        self.assertEqual(self.complaints("total src 10\n", **lines), [])
        self.assertEqual(self.complaints("total src 9\n", **lines), ["src has 10 lines, and 9 are allowed: delete as many lines as you add"])

    def test_the_limit_follows(self):
        self.assertEqual(self.complaints("total src 1001\n", sys__x="//\n"), [])
        self.assertEqual(self.complaints("total src 1002\n", sys__x="//\n"), [f"{layers.DEBTS}:3: `total src` has got shorter: write 1 for 1002"])

    def test_there_is_a_limit(self):
        self.assertEqual(self.complaints("# total\n"), [f"{layers.DEBTS}: has no line `total src NUMBER`"])


class TestDebts(Made):
    UP = "up src/sys/x.rs src/socket/a.rs\n"

    def test_listed(self):
        self.assertEqual(self.complaints(self.UP, sys__x="use crate::socket::a::A;"), [])

    def test_paid(self):
        self.assertEqual(self.complaints(self.UP), [f"{layers.DEBTS}:3: `up src/sys/x.rs src/socket/a.rs` is paid: delete this line"])

    def test_of_another_file(self):
        self.assertEqual(len(self.complaints(self.UP, sys__y="use crate::socket::a::A;")), 2)
        self.assertEqual(len(self.complaints(self.UP, sys__x="use crate::socket::b::B;")), 2)


class TestThisTree(unittest.TestCase):
    def test_it_sees_the_tree(self):
        """Well-known imports."""
        arrows = layers.Tree(layers.PROJECT).arrows
        self.assertIn("src/sys/net/registration.rs", arrows["src/ib_sdp.rs"])
        self.assertIn("src/sys/net_helpers.h", arrows["src/sys/net_helpers.c"])
        self.assertIn("tools/rules/src/lib.rs", arrows["tools/libsdp/src/settings.rs"])
        self.assertIn("tools/sdpstat/src/options.rs", arrows["tools/completions/src/main.rs"])
        self.assertIn("qemu/inside/frame.c", arrows["qemu/inside/agent.c"])
        self.assertIn("src/sys/net_helpers.c", arrows["src/sys/tcp_helpers.c"])
        self.assertIn("qemu/host/machine.py", arrows["qemu/guest"])
        self.assertGreater(sum(map(len, arrows.values())), 1000)


if __name__ == "__main__":
    unittest.main()
