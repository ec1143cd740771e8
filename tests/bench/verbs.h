/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declarations from libibverbs that verbs.c needs, as in the library's binary interface
 * (IBVERBS_1.1). The toolchain lacks the headers of libibverbs, and this program alone does not
 * justify installing them. Unused fields only give the structure its size.
 */
#ifndef BENCH_VERBS_H
#define BENCH_VERBS_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#define IBV_QPT_RC 2
#define IBV_WR_SEND 2
#define IBV_SEND_SIGNALED 2
#define IBV_SEND_INLINE 8
#define IBV_ACCESS_LOCAL_WRITE 1
#define IBV_MTU_1024 3

enum { IBV_QPS_INIT = 1, IBV_QPS_RTR, IBV_QPS_RTS };

enum {
	IBV_QP_STATE = 1 << 0,
	IBV_QP_ACCESS_FLAGS = 1 << 3,
	IBV_QP_PKEY_INDEX = 1 << 4,
	IBV_QP_PORT = 1 << 5,
	IBV_QP_AV = 1 << 7,
	IBV_QP_PATH_MTU = 1 << 8,
	IBV_QP_TIMEOUT = 1 << 9,
	IBV_QP_RETRY_CNT = 1 << 10,
	IBV_QP_RNR_RETRY = 1 << 11,
	IBV_QP_RQ_PSN = 1 << 12,
	IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	IBV_QP_MIN_RNR_TIMER = 1 << 15,
	IBV_QP_SQ_PSN = 1 << 16,
	IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	IBV_QP_DEST_QPN = 1 << 20,
};

union ibv_gid {
	uint8_t raw[16];
	uint64_t aligned[2];
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge, opcode;
	unsigned int send_flags;
	uint32_t imm_data;
	uint64_t of_other_opcodes[11];
};

struct ibv_wc {
	uint64_t wr_id;
	int status, opcode;
	uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct ibv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	void *srq;
	struct ibv_qp_cap cap;
	int qp_type, sq_sig_all;
};

struct ibv_ah_attr {
	struct {
		union ibv_gid dgid;
		uint32_t flow_label;
		uint8_t sgid_index, hop_limit, traffic_class;
	} grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_qp_attr {
	int qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt;
	uint8_t rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

struct ibv_cq;
struct ibv_qp;

struct ibv_context {
	void *device;
	struct {
		void *unused1[11];
		int (*poll_cq)(struct ibv_cq *cq, int most, struct ibv_wc *wc);
		int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
		void *unused2[12];
		int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
		int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	} ops;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd;
};

struct ibv_mr {
	struct ibv_context *context;
	void *pd, *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context, *pd;
	struct ibv_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t handle, qp_num;
};

static struct {
	void **(*get_device_list)(int *count);
	const char *(*get_device_name)(void *device);
	struct ibv_context *(*open_device)(void *device);
	void *(*alloc_pd)(struct ibv_context *context);
	struct ibv_mr *(*reg_mr)(void *pd, void *memory, size_t length, int access);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *cq_context, struct ibv_comp_channel *channel, int vector);
	struct ibv_qp *(*create_qp)(void *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*query_gid)(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int count);
} ibv;

static void load_verbs(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);

	if (!library)
		fail("%s", dlerror());
#define LOAD(name)                                                \
	do {                                                      \
		*(void **)&ibv.name = dlsym(library, "ibv_" #name); \
		if (!ibv.name)                                    \
			fail("%s", dlerror());                    \
	} while (0)
	LOAD(get_device_list);
	LOAD(get_device_name);
	LOAD(open_device);
	LOAD(alloc_pd);
	LOAD(reg_mr);
	LOAD(create_comp_channel);
	LOAD(create_cq);
	LOAD(create_qp);
	LOAD(modify_qp);
	LOAD(query_gid);
	LOAD(get_cq_event);
	LOAD(ack_cq_events);
#undef LOAD
}

#endif
