/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_ADVERSE_H
#define SDP_ADVERSE_H

#include <rdma/ib_verbs.h>

/* adverse.c: replaces operations of a device of rxe, once. */
void adverse_install(struct ib_device *device);
/* Returns true in `of_a_thousand` of a thousand calls, at random: the caller then fails. */
bool adverse_happens(unsigned int of_a_thousand);
/* Returns the n-th device; NULL if there are fewer. Devices are not removed during a test. */
struct ib_device *adverse_device(unsigned int n);

/* infiniband.c: returns the interface of a request, like IPoIB. */
struct net_device *infiniband_net_dev(struct ib_device *device, u32 port, u16 pkey, const union ib_gid *gid,
				      const struct sockaddr *addr, void *data);

/*
 * iommu.c: operations of the driver, called with addresses of bounce buffers if the device has its
 * own addresses. `real` points to the driver's operations.
 */
int iommu_post_send(const struct ib_device_ops *real, struct ib_qp *qp, const struct ib_send_wr *wr,
		    const struct ib_send_wr **bad);
int iommu_post_recv(const struct ib_device_ops *real, struct ib_qp *qp, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad);
int iommu_map_mr_sg(const struct ib_device_ops *real, struct ib_mr *mr, struct scatterlist *list,
		    int count, unsigned int *offset);
int iommu_start(void);

#endif
