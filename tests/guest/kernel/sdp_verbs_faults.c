// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets /sys/kernel/debug/fail_function make verbs and the connection manager fail: while this
 * module is loaded, the functions listed here may return an error at once. The filter of
 * fail_function selects the affected tasks (see tests/guest/lib/faults.py).
 */
#include <linux/error-injection.h>
#include <linux/module.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* Functions that create the parts of a connection. Errors in pointers are errnos as well. */
ALLOW_ERROR_INJECTION(__rdma_create_kernel_id, ERRNO);
ALLOW_ERROR_INJECTION(rdma_resolve_addr, ERRNO);
ALLOW_ERROR_INJECTION(rdma_resolve_route, ERRNO);
ALLOW_ERROR_INJECTION(ib_find_cached_pkey, ERRNO);
ALLOW_ERROR_INJECTION(ib_create_cm_id, ERRNO);
ALLOW_ERROR_INJECTION(__ib_create_cq, ERRNO);
ALLOW_ERROR_INJECTION(ib_create_qp_kernel, ERRNO);
ALLOW_ERROR_INJECTION(ib_cm_init_qp_attr, ERRNO);
ALLOW_ERROR_INJECTION(ib_modify_qp, ERRNO);

/* Functions that listen, and that send connection-manager messages. */
ALLOW_ERROR_INJECTION(ib_cm_insert_listen, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_req, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_rep, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_rtu, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_rej, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_drep, ERRNO);

/* Registration of advertised memory. */
ALLOW_ERROR_INJECTION(ib_alloc_mr, ERRNO);
ALLOW_ERROR_INJECTION(ib_map_mr_sg, ERRNO);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Which verbs fail_function may have fail, for tests of ib_sdp");
