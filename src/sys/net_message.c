// SPDX-License-Identifier: GPL-2.0-only
/* Control messages and memory of sendmsg and recvmsg, and the pipe of splice. No policy. */
#include <linux/errqueue.h>
#include <linux/pipe_fs_i.h>
#include <linux/splice.h>
#include <net/tcp.h>
#include <net/transp_v6.h>
#include "net_helpers.h"

/* Returns the number of unread bytes to the caller, as tcp_recvmsg() does. */
void sdp_h_give_inq(struct msghdr *msg, int inq, bool control)
{
	msg->msg_inq = inq;
	if (control)
		put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(inq), &inq);
}

/*
 * Returns the completion of a call with MSG_ZEROCOPY, as TCP does; NULL for none. `given`: set if a
 * kernel user such as io_uring has passed the completion. Context: socket lock held.
 */
int sdp_h_notice_begin(struct sock *sk, struct msghdr *msg, struct ubuf_info **notice, bool *given)
{
	size_t size = msg_data_left(msg);

	*notice = NULL;
	*given = msg->msg_ubuf;
	if (!(msg->msg_flags & MSG_ZEROCOPY) || !size)
		return 0;
	if (msg->msg_ubuf) {
		*notice = msg->msg_ubuf;
		net_zcopy_get(*notice);
		return 0;
	}
	if (!sock_flag(sk, SOCK_ZEROCOPY))
		return 0;
	*notice = msg_zerocopy_realloc(sk, size, NULL, false);
	return *notice ? 0 : -ENOBUFS;
}

/* io_uring accepts the report "not copied" only with an skb, whose content it does not read. */
static struct sk_buff none;

/* Drops a reference, in any context, and reports copied bytes. */
void sdp_h_notice_end(struct ubuf_info *notice, bool direct)
{
	notice->ops->complete(direct ? &none : NULL, notice, direct);
}

/* Reads the error queue like ip_recv_error(), which is not exported. */
static int recv_error(struct sock *sk, struct msghdr *msg)
{
	struct {
		struct sock_extended_err ee;
		struct sockaddr_in offender;
	} header = {};
	struct sk_buff *skb = sock_dequeue_err_skb(sk);

	if (!skb)
		return -EAGAIN;
	sock_recv_timestamp(msg, sk, skb);
	header.ee = SKB_EXT_ERR(skb)->ee;
	put_cmsg(msg, SOL_IP, IP_RECVERR, sizeof(header), &header);
	msg->msg_flags |= MSG_ERRQUEUE;
	consume_skb(skb);
	return 0;
}

/* Implements recvmsg(2) with MSG_ERRQUEUE. */
int sdp_h_recv_error(struct sock *sk, struct msghdr *msg, int len)
{
	if (sk->sk_family == AF_INET || sk->sk_family == AF_INET6)
		return inet_recv_error(sk, msg, len);
	return sdp_h_is_v6(sk) ? ipv6_recv_error(sk, msg, len) : recv_error(sk, msg);
}

/* Adds bytes of a block of whole pages to a pipe, as one buffer. Returns 0 if the pipe is full. */
size_t sdp_h_pipe_give(struct pipe_inode_info *pipe, const void *block, size_t offset, size_t len)
{
	struct pipe_buffer buf = { virt_to_page(block), offset, len, &nosteal_pipe_buf_ops };

	get_page(buf.page);
	return max_t(ssize_t, add_to_pipe(pipe, &buf), 0);
}
