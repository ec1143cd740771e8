/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints below /sys/kernel/tracing/events/sdp, called by trace.rs.
 *
 * Each event contains the socket's address (hashed like all kernel pointers, but the same in all
 * events of a socket) and both ends of the connection.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sdp

#if !defined(SDP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SDP_TRACE_H

#include <linux/in6.h>
#include <linux/socket.h>
#include <linux/tracepoint.h>
#include <linux/unaligned.h>
#include <net/sock.h>

#ifndef SDP_TRACE_ONCE
#define SDP_TRACE_ONCE
/* The ends of a connection as struct sockaddr_in or sockaddr_in6. */
void sdp_trace_ends(const struct sock *sk, struct sockaddr_in6 *local, struct sockaddr_in6 *remote);
#endif

#define sdp_trace_state(state)			\
	__print_symbolic(state,			\
		{ 1, "ESTABLISHED" },		\
		{ 2, "SYN_SENT" },		\
		{ 3, "SYN_RECV" },		\
		{ 4, "FIN_WAIT1" },		\
		{ 5, "FIN_WAIT2" },		\
		{ 6, "TIME_WAIT" },		\
		{ 7, "CLOSE" },			\
		{ 8, "CLOSE_WAIT" },		\
		{ 9, "LAST_ACK" },		\
		{ 10, "LISTEN" },		\
		{ 11, "CLOSING" })

#define sdp_trace_mid(mid)			\
	__print_symbolic(mid,			\
		{ 0x00, "Hello" },		\
		{ 0x01, "HelloAck" },		\
		{ 0x02, "DisConn" },		\
		{ 0x03, "AbortConn" },		\
		{ 0x04, "SendSm" },		\
		{ 0x05, "RdmaWrCompl" },	\
		{ 0x06, "RdmaRdCompl" },	\
		{ 0x07, "ModeChange" },		\
		{ 0x08, "SrcAvailCancel" },	\
		{ 0x09, "SinkAvailCancel" },	\
		{ 0x0a, "SinkCancelAck" },	\
		{ 0x0b, "ChRcvBuf" },		\
		{ 0x0c, "ChRcvBufAck" },	\
		{ 0x0d, "SuspComm" },		\
		{ 0x0e, "SuspCommAck" },	\
		{ 0xfd, "SinkAvail" },		\
		{ 0xfe, "SrcAvail" },		\
		{ 0xff, "Data" })

#define sdp_trace_flags(flags)			\
	__print_flags(flags, "|",		\
		{ 1, "OOB_PRES" },		\
		{ 2, "OOB_PEND" },		\
		{ 4, "REQ_PIPE" })

/* A connection begins or ends: the socket's state, and the error that the program will get. */
DECLARE_EVENT_CLASS(sdp_connection,
	TP_PROTO(const struct sock *sk),
	TP_ARGS(sk),
	TP_STRUCT__entry(
		__field(const void *, skaddr)
		__array(__u8, local, sizeof(struct sockaddr_in6))
		__array(__u8, remote, sizeof(struct sockaddr_in6))
		__field(int, state)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->skaddr = sk;
		sdp_trace_ends(sk, (struct sockaddr_in6 *)__entry->local,
			       (struct sockaddr_in6 *)__entry->remote);
		__entry->state = READ_ONCE(sk->sk_state);
		__entry->error = READ_ONCE(sk->sk_err);
	),
	TP_printk("skaddr=%p local=%pISpc remote=%pISpc state=%s error=%d",
		__entry->skaddr, __entry->local, __entry->remote,
		sdp_trace_state(__entry->state), __entry->error)
);

/* An attempt to connect or accept has succeeded (ESTABLISHED) or failed. */
DEFINE_EVENT(sdp_connection, sdp_connect,
	TP_PROTO(const struct sock *sk),
	TP_ARGS(sk)
);

/*
 * A connection ends. Without an error, FIN_WAIT2, CLOSING and LAST_ACK mean that both streams have
 * ended; any other state means that this end has reset the connection.
 */
DEFINE_EVENT(sdp_connection, sdp_close,
	TP_PROTO(const struct sock *sk),
	TP_ARGS(sk)
);

/* A message: its base header, and the number of messages that the local end may still send. */
DECLARE_EVENT_CLASS(sdp_message,
	TP_PROTO(const struct sock *sk, const u8 *header, u16 credits),
	TP_ARGS(sk, header, credits),
	TP_STRUCT__entry(
		__field(const void *, skaddr)
		__array(__u8, local, sizeof(struct sockaddr_in6))
		__array(__u8, remote, sizeof(struct sockaddr_in6))
		__field(__u8, mid)
		__field(__u8, flags)
		__field(__u16, bufs)
		__field(__u32, len)
		__field(__u32, mseq)
		__field(__u32, mseq_ack)
		__field(__u16, credits)
	),
	TP_fast_assign(
		__entry->skaddr = sk;
		sdp_trace_ends(sk, (struct sockaddr_in6 *)__entry->local,
			       (struct sockaddr_in6 *)__entry->remote);
		__entry->mid = header[0];
		__entry->flags = header[1];
		__entry->bufs = get_unaligned_be16(header + 2);
		__entry->len = get_unaligned_be32(header + 4);
		__entry->mseq = get_unaligned_be32(header + 8);
		__entry->mseq_ack = get_unaligned_be32(header + 12);
		__entry->credits = credits;
	),
	TP_printk("skaddr=%p local=%pISpc remote=%pISpc mid=%s flags=%s bufs=%u len=%u mseq=%u mseq_ack=%u credits=%u",
		__entry->skaddr, __entry->local, __entry->remote,
		sdp_trace_mid(__entry->mid), sdp_trace_flags(__entry->flags),
		__entry->bufs, __entry->len, __entry->mseq, __entry->mseq_ack,
		__entry->credits)
);

/* A message was posted. */
DEFINE_EVENT(sdp_message, sdp_send,
	TP_PROTO(const struct sock *sk, const u8 *header, u16 credits),
	TP_ARGS(sk, header, credits)
);

/* A message has arrived, but was not validated yet. */
DEFINE_EVENT(sdp_message, sdp_receive,
	TP_PROTO(const struct sock *sk, const u8 *header, u16 credits),
	TP_ARGS(sk, header, credits)
);

/* Bytes begin to wait for credits. */
TRACE_EVENT(sdp_credit_stall,
	TP_PROTO(const struct sock *sk, u16 credits, u32 unsent),
	TP_ARGS(sk, credits, unsent),
	TP_STRUCT__entry(
		__field(const void *, skaddr)
		__array(__u8, local, sizeof(struct sockaddr_in6))
		__array(__u8, remote, sizeof(struct sockaddr_in6))
		__field(__u16, credits)
		__field(__u32, unsent)
	),
	TP_fast_assign(
		__entry->skaddr = sk;
		sdp_trace_ends(sk, (struct sockaddr_in6 *)__entry->local,
			       (struct sockaddr_in6 *)__entry->remote);
		__entry->credits = credits;
		__entry->unsent = unsent;
	),
	TP_printk("skaddr=%p local=%pISpc remote=%pISpc credits=%u unsent=%u",
		__entry->skaddr, __entry->local, __entry->remote,
		__entry->credits, __entry->unsent)
);

/* Direction of a zero-copy transfer; see ZeroCopy in trace.rs. */
#define sdp_trace_way(way)			\
	__print_symbolic(way,			\
		{ 0, "read_by_peer" },		\
		{ 1, "written" },		\
		{ 2, "read" },			\
		{ 3, "written_by_peer" })

/*
 * An advert or a transfer has ended: the length of the call's memory, and the number of bytes that
 * were transferred without a copy.
 */
TRACE_EVENT(sdp_zero_copy,
	TP_PROTO(const struct sock *sk, u8 way, u32 len, u32 done),
	TP_ARGS(sk, way, len, done),
	TP_STRUCT__entry(
		__field(const void *, skaddr)
		__array(__u8, local, sizeof(struct sockaddr_in6))
		__array(__u8, remote, sizeof(struct sockaddr_in6))
		__field(__u8, way)
		__field(__u32, len)
		__field(__u32, done)
	),
	TP_fast_assign(
		__entry->skaddr = sk;
		sdp_trace_ends(sk, (struct sockaddr_in6 *)__entry->local,
			       (struct sockaddr_in6 *)__entry->remote);
		__entry->way = way;
		__entry->len = len;
		__entry->done = done;
	),
	TP_printk("skaddr=%p local=%pISpc remote=%pISpc way=%s len=%u done=%u",
		__entry->skaddr, __entry->local, __entry->remote,
		sdp_trace_way(__entry->way), __entry->len, __entry->done)
);

#endif /* SDP_TRACE_H */

/* Path relative to src, which is in the include path. */
#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH sys
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
