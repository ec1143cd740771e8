# SPDX-License-Identifier: GPL-2.0-only
"""Verbs and calls of the connection manager fail: the first call of a function in the first
connection, the second call in the next connection, until a connection passes without a fault. Each
fault makes a call or the connection fail. No call waits for ever, no resource is left, and the next
connection works."""

import errno

from lib import faults
from lib.either import parameters
from lib.registry import case
from suites.faults.anywhere import HANGS, rest, session
from suites.faults.nth import echo, nothing_left
from suites.lifecycle.states import SOME
from suites.proc.module import refcount

MAKING = ("__rdma_create_kernel_id", "rdma_resolve_addr", "rdma_resolve_route", "ib_create_cm_id", "__ib_create_cq", "ib_create_qp_kernel",
          "ib_cm_init_qp_attr", "ib_modify_qp")
# (ib_send_cm_dreq is left out: a failing ib_send_cm_dreq reports the end of the connection itself.)
SAYING = ("ib_send_cm_req", "ib_send_cm_rep", "ib_send_cm_rtu", "ib_send_cm_drep")
POSTING = ("sdp_h_ib_post_send", "sdp_h_ib_post_recv")
MEMORY = ("ib_alloc_mr", "ib_map_mr_sg")
MAPPING = ("sdp_h_ib_map_error",)
# Later calls of the same function need no test: every message repeats the call.
MOST = 12


def refuse(e, names, *errors, most=MOST):
    """Faults before the listener's reply make the client repeat its request, so that no connect(2)
    is refused."""
    if not faults.verbs_possible():
        e.skip("verbs cannot fail in this build (scripts/test-module --debug)")
    listener = e.listen()
    references = refcount()
    e.equal(session(e, listener), "whole", "without a fault")
    for name in names:
        ends, number, hit = [], 0, True
        while hit and number < most:
            number += 1
            rest(e, references)
            with faults.verb(name, number, errors[number % len(errors)]) as was_hit:
                end = session(e, listener)
                rest(e, references)
                hit = was_hit()
            e.check(not any(wrong in end for wrong in (*HANGS, "ECONNREFUSED")), f"{name}, call {number}: {end}")
            ends.append(end)
            echo(e, *e.pair(listener))
        e.check(number > 1 or hit, f"{name} is never called")
        e.note(name, ends)
    listener.close()
    nothing_left(e)


@case(reference=False, families=SOME, timeout=600)
def making(e):
    with parameters(spare_queues=0):
        refuse(e, MAKING, errno.ENOMEM, errno.EINVAL)


@case(reference=False, families=SOME, timeout=600)
def making_of_kept(e):
    """Like `making`, but where one end uses the cached completion queues of a closed connection."""
    refuse(e, [name for name in MAKING if name != "__ib_create_cq"], errno.ENOMEM, errno.EINVAL)


@case(reference=False, families=SOME, timeout=600)
def never_refused(e):
    """The listener's end fails before its reply, repeatedly in each step. The client sees a failure
    of the listener's end as a lost request."""
    if not faults.verbs_possible():
        e.skip("verbs cannot fail in this build (scripts/test-module --debug)")
    listener = e.listen()
    references = refcount()
    with parameters(spare_queues=0):
        e.equal(session(e, listener), "whole", "without a fault")
        # For each function, the number of the passive end's first call.
        for name, number in (("__ib_create_cq", 3), ("ib_create_qp_kernel", 2), ("ib_cm_init_qp_attr", 1), ("ib_modify_qp", 2),
                             ("ib_modify_qp", 3), ("ib_send_cm_rep", 1), ("sdp_h_ib_post_recv", 2)):
            for _ in range(3):
                rest(e, references)
                with faults.verb(name, number, errno.ENOMEM) as was_hit:
                    end = session(e, listener)
                    hit = was_hit()
                e.check(hit and end == "whole", f"{name}, call {number}: {end}, {hit}")
    listener.close()
    nothing_left(e)


@case(reference=False, families=SOME, timeout=600)
def saying(e):
    refuse(e, SAYING, errno.ENOMEM, errno.EINVAL)


@case(reference=False, families=SOME, timeout=600)
def posting(e):
    refuse(e, POSTING, errno.ENOMEM, errno.EINVAL)


@case(reference=False, families=SOME, timeout=600)
def memory(e):
    refuse(e, MEMORY, errno.ENOMEM, errno.EINVAL)


@case(reference=False, families=SOME, timeout=600)
def mapping(e):
    """Mapping fails: of the first buffers of a connection, at either end, and of later send and
    receive buffers."""
    refuse(e, MAPPING, errno.ENOMEM, most=40)
