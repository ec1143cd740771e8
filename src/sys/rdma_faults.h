/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_RDMA_FAULTS_H
#define SDP_RDMA_FAULTS_H

#include <rdma/ib_verbs.h>

#ifdef CONFIG_FAIL_FUNCTION
int sdp_h_faulty_post_send(struct ib_qp *qp, const struct ib_send_wr *wr);
int sdp_h_faulty_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr);
int sdp_h_faulty_poll(struct ib_cq *cq, int n, struct ib_wc *wc);
#else
#define sdp_h_faulty_post_send(qp, wr) ib_post_send(qp, wr, NULL)
#define sdp_h_faulty_post_recv(qp, wr) ib_post_recv(qp, wr, NULL)
#define sdp_h_faulty_poll(cq, n, wc) ib_poll_cq(cq, n, wc)
#endif

#endif
