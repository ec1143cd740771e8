// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures raw verbs with many connections in one thread: one completion queue for all receives,
 * and a completion channel watched by epoll(7). Messages of SIZE bytes are exchanged on one queue
 * pair after another, as in `many SYSTEM ... epoll`.
 *
 *	verbs DEVICE GID serve epoll ADDRESS PORT SIZE CONNECTIONS
 *	verbs DEVICE GID drive epoll ADDRESS PORT SIZE CONNECTIONS SECONDS
 *
 * A TCP connection to ADDRESS and PORT carries the numbers of the queue pairs. The server ends with
 * its setup connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "events.h"
#include "verbs.h"

#define RECEIVES 2
#define SENDS 64
#define BATCH 16

struct end {
	uint32_t qp;
	union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq *received, *sent;
static struct ibv_mr *memory;
static struct ibv_qp **qps;
static unsigned int *posted;
static int gid_index, connections, epoll, control;
static size_t size;

static void open_device(const char *name)
{
	int i, count;
	void **list, *pd;

	load_verbs();
	list = ibv.get_device_list(&count);
	for (i = 0; i < count && !context; i++)
		if (!strcmp(ibv.get_device_name(list[i]), name))
			context = ibv.open_device(list[i]);
	if (!context)
		fail("no device is called %s", name);
	pd = ibv.alloc_pd(context);
	channel = ibv.create_comp_channel(context);
	received = ibv.create_cq(context, connections * RECEIVES, NULL, channel, 0);
	sent = ibv.create_cq(context, connections * SENDS, NULL, NULL, 0);
	memory = ibv.reg_mr(pd, calloc(connections * RECEIVES + 1, size), (connections * RECEIVES + 1) * size, IBV_ACCESS_LOCAL_WRITE);
	qps = calloc(connections, sizeof(*qps));
	posted = calloc(connections, sizeof(*posted));
	if (!pd || !channel || !received || !sent || !memory || !qps || !posted)
		fail("no memory, or none that can be registered");
	for (i = 0; i < connections; i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC,
			.cap = { SENDS, RECEIVES, 1, 1, size <= 64 ? size : 0 },
		};

		qps[i] = ibv.create_qp(pd, &attr);
		if (!qps[i])
			fail("create_qp: %s", strerror(errno));
	}
	epoll = epoll_create1(0);
	if (epoll < 0)
		fail("epoll_create1: %s", strerror(errno));
}

static void watch(int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		fail("epoll_ctl: %s", strerror(errno));
}

/* The ID of a receive is its number: connection i has the IDs from i * RECEIVES on. */
static void post_receive(uint64_t which)
{
	struct ibv_sge sge = { (uintptr_t)memory->addr + which * size, size, memory->lkey };
	struct ibv_recv_wr wr = { .wr_id = which, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (context->ops.post_recv(qps[which / RECEIVES], &wr, &bad))
		fail("post_recv failed");
}

static void post_send(int i)
{
	struct ibv_sge sge = { (uintptr_t)memory->addr + (size_t)connections * RECEIVES * size, size, memory->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = size <= 64 ? IBV_SEND_INLINE : 0 }, *bad;
	struct ibv_wc wcs[BATCH];

	/* Each reply arrives before the next send, so one signaled completion in many suffices, and
	 * has arrived by the time when its slot is needed. */
	if (++posted[i] % (SENDS / 4) == 0) {
		wr.send_flags |= IBV_SEND_SIGNALED;
		while (context->ops.poll_cq(sent, BATCH, wcs) == BATCH)
			;
	}
	if (context->ops.post_send(qps[i], &wr, &bad))
		fail("post_send failed");
}

static void change(int i, struct ibv_qp_attr attr, int mask)
{
	int error = ibv.modify_qp(qps[i], &attr, mask | IBV_QP_STATE);

	if (error)
		fail("modify_qp to state %d: %s", attr.qp_state, strerror(error));
}

static void all_of(ssize_t (*call)(int, void *, size_t), void *data, size_t length)
{
	while (length) {
		ssize_t done = call(control, data, length);

		if (done <= 0)
			fail("the other side has ended");
		data = (char *)data + done;
		length -= done;
	}
}

static ssize_t write_some(int fd, void *data, size_t length)
{
	return write(fd, data, length);
}

static void connect_all(void)
{
	struct end *ours = calloc(connections, sizeof(*ours)), *theirs = calloc(connections, sizeof(*theirs));
	char ready = 'r';
	int i, k;

	for (i = 0; i < connections; i++) {
		ours[i].qp = qps[i]->qp_num;
		if (ibv.query_gid(context, 1, gid_index, &ours[i].gid))
			fail("query_gid: %s", strerror(errno));
	}
	all_of(write_some, ours, connections * sizeof(*ours));
	all_of(read, theirs, connections * sizeof(*theirs));
	for (i = 0; i < connections; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

		change(i, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
		for (k = 0; k < RECEIVES; k++)
			post_receive(i * RECEIVES + k);
		attr.qp_state = IBV_QPS_RTR;
		attr.path_mtu = IBV_MTU_1024;
		attr.dest_qp_num = theirs[i].qp;
		attr.min_rnr_timer = 12;
		attr.ah_attr.grh.dgid = theirs[i].gid;
		attr.ah_attr.grh.sgid_index = gid_index;
		attr.ah_attr.grh.hop_limit = 64;
		attr.ah_attr.is_global = 1;
		attr.ah_attr.port_num = 1;
		change(i, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
		attr.qp_state = IBV_QPS_RTS;
		attr.timeout = 14;
		attr.retry_cnt = 7;
		attr.rnr_retry = 7;
		change(i, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	}
	if (context->ops.req_notify_cq(received, 0))
		fail("req_notify_cq failed");
	watch(channel->fd);
	/* Both ends are ready to receive before either sends. */
	all_of(write_some, &ready, 1);
	all_of(read, &ready, 1);
	free(ours);
	free(theirs);
}

/* Waits for messages. Returns the number of messages and writes their connections to `from`; -1
 * when the other side has ended. */
static int wait_for_messages(int *from)
{
	struct epoll_event event;
	struct ibv_wc wcs[BATCH];
	struct ibv_cq *cq;
	void *unused;
	int i, count;

	do
		count = epoll_wait(epoll, &event, 1, -1);
	while (count < 0 && errno == EINTR);
	if (count != 1)
		fail("epoll_wait: %s", strerror(errno));
	if (event.data.fd == control)
		return -1;
	if (ibv.get_cq_event(channel, &cq, &unused))
		fail("get_cq_event: %s", strerror(errno));
	ibv.ack_cq_events(cq, 1);
	if (context->ops.req_notify_cq(received, 0))
		fail("req_notify_cq failed");
	events++;
	/* At most one message is in flight per connection. */
	count = context->ops.poll_cq(received, BATCH, wcs);
	empty += !count;
	for (i = 0; i < count; i++) {
		if (wcs[i].status)
			fail("a receive ended with status %d", wcs[i].status);
		post_receive(wcs[i].wr_id);
		from[i] = wcs[i].wr_id / RECEIVES;
	}
	return count;
}

static void serve(void)
{
	struct mark start = mark();
	int from[BATCH], i, count;

	watch(control);
	while ((count = wait_for_messages(from)) >= 0)
		for (i = 0; i < count; i++)
			post_send(from[i]);
	printf("{");
	print_events(start);
}

static void round_trip(int i)
{
	int from[BATCH], count;

	post_send(i);
	do
		count = wait_for_messages(from);
	while (!count);
	if (count != 1 || from[0] != i)
		fail("unexpected message");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int serving, listener, one = 1;

	if (argc < 9)
		fail("usage: verbs DEVICE GID serve|drive epoll ADDRESS PORT SIZE CONNECTIONS [SECONDS]");
	serving = !strcmp(argv[3], "serve");
	if (!serving && (strcmp(argv[3], "drive") || argc < 10))
		fail("serve, or drive with SECONDS");
	if (strcmp(argv[4], "epoll"))
		fail("no mode is called %s", argv[4]);
	gid_index = atoi(argv[2]);
	size = strtoul(argv[7], NULL, 10);
	connections = atoi(argv[8]);
	if (inet_pton(AF_INET, argv[5], &address.sin_addr) != 1 || !size || connections < 1)
		fail("ADDRESS is an IPv4 address, SIZE and CONNECTIONS are at least 1");
	address.sin_port = htons(atoi(argv[6]));
	open_device(argv[1]);
	control = socket(AF_INET, SOCK_STREAM, 0);
	if (!serving) {
		if (connect(control, (struct sockaddr *)&address, sizeof(address)))
			fail("connect: %s", strerror(errno));
		connect_all();
		measure_round_trips(connections, atof(argv[9]));
		return 0;
	}
	listener = control;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1))
		fail("bind or listen: %s", strerror(errno));
	puts("listening");
	fflush(stdout);
	control = accept(listener, NULL, NULL);
	if (control < 0)
		fail("accept: %s", strerror(errno));
	connect_all();
	serve();
	return 0;
}
