// SPDX-License-Identifier: GPL-2.0-only
/*
 * The BPF programs of a mapping. One program runs in each socket(2) and replaces the protocol, when
 * the kernel calls update_socket_protocol(). The four others run when a protocol is registered or
 * unregistered: while there is no IPPROTO_SDP, nothing is mapped, and a mapped program's socket(2)
 * makes a TCP socket.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* The constants below are not in the headers for user space. */
enum { AF_INET = 2, AF_INET6 = 10, SOCK_STREAM = 1, SOCK_TYPE_MASK = 0xf, COMM = 16 };

/* Fields of kernel structures that the programs read. libbpf finds their offsets in the kernel's
 * BTF. */
struct task_struct {
	struct task_struct *group_leader;
	char comm[COMM];
} __attribute__((preserve_access_index));

struct inet_protosw {
	unsigned short type;
	unsigned short protocol;
} __attribute__((preserve_access_index));

/*
 * Same layout as in shared.rs. `sdpctl map list` and `remove` may read a mapping that another
 * version of sdpctl has pinned, so each change of the layout needs a new `form`.
 */
struct shared {
	__u32 form;
	__u32 protocol;
	__u32 there[2]; /* for IPv4 and IPv6 */
	__u64 mapped;
	char selector[4072];
} shared;

/*
 * Same layout as in program.rs. The verifier treats the values as constants: it removes unused
 * checks and finds the bound of the loop.
 */
const volatile struct settings {
	__u32 protocol;
	/* Number of entries in each of the maps below; an empty map matches everything. */
	__u32 users;
	__u32 programs;
	__u32 cgroups;
} settings;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} sdp_map_users SEC(".maps");

/* A full name ends with a zero, the beginning of a name does not; either is compared as a prefix.
 */
struct program {
	__u32 bits;
	char comm[COMM];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct program);
	__type(value, __u8);
} sdp_map_programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sdp_map_cgroups SEC(".maps");

static bool user_is_selected(void)
{
	__u32 user = bpf_get_current_uid_gid();

	return bpf_map_lookup_elem(&sdp_map_users, &user);
}

static bool program_is_selected(void)
{
	/* uses the name of the process, not the names of its threads */
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	struct program program = { .bits = 8 * COMM };

	__builtin_memcpy(program.comm, leader->comm, COMM);
	return bpf_map_lookup_elem(&sdp_map_programs, &program);
}

static bool cgroup_is_selected(void)
{
	for (__u32 n = 0; n < settings.cgroups; n++)
		if (bpf_current_task_under_cgroup(&sdp_map_cgroups, n) == 1)
			return true;
	return false;
}

/* Returning 0 lets the kernel continue as without this program. */
SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(sdp_map, int family, int type, int protocol)
{
	if (family != AF_INET && family != AF_INET6)
		return 0;
	if ((type & SOCK_TYPE_MASK) != SOCK_STREAM)
		return 0;
	/* MPTCP listeners accept TCP as well, and Go creates such listeners */
	if (protocol && protocol != IPPROTO_TCP && protocol != IPPROTO_MPTCP)
		return 0;
	if (!shared.there[family == AF_INET6])
		return 0;
	if (settings.users && !user_is_selected())
		return 0;
	if (settings.programs && !program_is_selected())
		return 0;
	if (settings.cgroups && !cgroup_is_selected())
		return 0;
	__sync_fetch_and_add(&shared.mapped, 1);
	return settings.protocol;
}

static int note(const struct inet_protosw *registered, bool six, bool there)
{
	if (registered->type == SOCK_STREAM && registered->protocol == settings.protocol)
		shared.there[six] = there;
	return 0;
}

/* After register IPPROTO_SDP exists; from the beginning of unregister IPPROTO_SDP counts as
 * removed. */
SEC("fexit/inet_register_protosw")
int BPF_PROG(sdp_map_comes4, struct inet_protosw *registered)
{
	return note(registered, false, true);
}

SEC("fentry/inet_unregister_protosw")
int BPF_PROG(sdp_map_goes4, struct inet_protosw *registered)
{
	return note(registered, false, false);
}

SEC("fexit/inet6_register_protosw")
int BPF_PROG(sdp_map_comes6, struct inet_protosw *registered)
{
	return note(registered, true, true);
}

SEC("fentry/inet6_unregister_protosw")
int BPF_PROG(sdp_map_goes6, struct inet_protosw *registered)
{
	return note(registered, true, false);
}
