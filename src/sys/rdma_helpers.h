/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_RDMA_HELPERS_H
#define SDP_RDMA_HELPERS_H

/*
 * Inline functions, macros and variadic functions of the kernel as plain functions, for
 * src/sys/rdma and src/sys/pages.rs.
 */

#include <linux/socket.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* pages.rs */
void *sdp_h_block_alloc(size_t size, bool atomic);
void sdp_h_block_free(void *block, size_t size);
/* Bytes of all blocks, without the unflushed per-CPU batches; and the exact sum. */
extern atomic_long_t sdp_h_block_bytes;
unsigned long sdp_h_all_block_bytes(void);

/* work.rs */
struct workqueue_struct *sdp_h_rdma_workqueue(void);
void sdp_h_module_get(void);
void sdp_h_module_put(void);

/* netns.rs */
int sdp_h_cm_request_net(const struct ib_cm_event *event, struct sockaddr_storage *local,
			 struct net **net, int *ifindex);
u8 sdp_h_service_level(const struct rdma_cm_id *id, int priority);
bool sdp_h_reverse_route(struct net *net, int ifindex, const struct sockaddr_storage *local,
			 const struct sockaddr_storage *remote);

/* device.rs, dma.rs */
void sdp_h_ib_warn_qp(const struct ib_device *dev, u32 number);
void sdp_h_ib_warn_removal(const struct ib_device *dev, unsigned int seconds);
void sdp_h_ib_warn_add(const struct ib_device *dev, int err);
int sdp_h_ib_map_error(struct ib_device *dev, u64 addr);
void sdp_h_ib_unmap(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);

/* endpoint.rs, cq.rs, receive.rs, send/queue.rs */
int sdp_h_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr);
int sdp_h_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr);
int sdp_h_ib_poll(struct ib_cq *cq, int n, struct ib_wc *wc);

/* route.rs */
int sdp_h_rdma_resolve(struct rdma_cm_id *id, int ifindex, struct sockaddr_storage *from,
		       const struct sockaddr_storage *to, unsigned long timeout_ms);
/* Returns 0 if an address is on an RDMA port of this host. */
int sdp_h_rdma_bind_test(struct net *net, struct sockaddr_storage *addr);

#endif
