/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Headers and C code for bindgen; bindgen_parameters lists the items to generate. bindgen reads the
 * module's own functions from their C definitions, like rust/helpers in the kernel.
 */

#include <linux/completion.h>
#include <asm/ioctls.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inetdevice.h>
#include <linux/ipv6.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/skbuff.h>
#include <linux/socket.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <net/inet_common.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/sock.h>
#include <net/tcp_states.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>

#include "net_helpers.h"
#include "sdp.h"
#include "sys/trace.h"

#ifdef __BINDGEN__
#include "helpers.c"
#include "net_address.c"
#include "net_helpers.c"
#include "net_message.c"
#include "net_namespace.c"
#include "net_options.c"
#include "net_wait.c"
#include "pin_helpers.c"
#include "protect_helpers.c"
#include "protect_pages.c"
#include "rdma_helpers.c"
#include "tcp_helpers.c"
#include "watch_helpers.c"
#endif

/*
 * bindgen cannot see macros with casts. The constant RUST_CONST_HELPER_NAME is generated as NAME.
 */
const __poll_t RUST_CONST_HELPER_EPOLLIN = EPOLLIN;
const __poll_t RUST_CONST_HELPER_EPOLLOUT = EPOLLOUT;
const __poll_t RUST_CONST_HELPER_EPOLLERR = EPOLLERR;
const __poll_t RUST_CONST_HELPER_EPOLLHUP = EPOLLHUP;
const __poll_t RUST_CONST_HELPER_EPOLLPRI = EPOLLPRI;
const __poll_t RUST_CONST_HELPER_EPOLLRDHUP = EPOLLRDHUP;
const __poll_t RUST_CONST_HELPER_EPOLLRDNORM = EPOLLRDNORM;
const __poll_t RUST_CONST_HELPER_EPOLLRDBAND = EPOLLRDBAND;
const __poll_t RUST_CONST_HELPER_EPOLLWRNORM = EPOLLWRNORM;
const __poll_t RUST_CONST_HELPER_EPOLLWRBAND = EPOLLWRBAND;
const gfp_t RUST_CONST_HELPER_GFP_KERNEL = GFP_KERNEL;
const gfp_t RUST_CONST_HELPER_GFP_ATOMIC = GFP_ATOMIC;
const unsigned long RUST_CONST_HELPER_HZ = HZ;
