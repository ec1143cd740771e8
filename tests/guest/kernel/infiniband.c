// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes ib_sdp take the links of rxe for InfiniBand, in four queries: the path to an address, the
 * protocol of a port, the service level of a path, and the interface that a request arrived on.
 *
 * Paths are like those of a subnet manager behind rdma_resolve_route(): with LIDs and without GRH,
 * with its choice of P_Key and service level. The simulated subnet manager may reply late or not at
 * all. The connection request must contain exactly that path. This module then replaces that path
 * by rxe's, because rxe has no LIDs.
 */
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

#include "adverse.h"

static uint sm_late;
module_param(sm_late, uint, 0644);
MODULE_PARM_DESC(sm_late, "Delay of each reply of the subnet manager (ms)");

static bool sm_silent;
module_param(sm_silent, bool, 0644);
MODULE_PARM_DESC(sm_silent, "Subnet manager never replies");

static uint sm_level;
module_param(sm_level, uint, 0644);
MODULE_PARM_DESC(sm_level, "Service level of the paths of the subnet manager");

static uint sm_pkey;
module_param(sm_pkey, uint, 0644);
MODULE_PARM_DESC(sm_pkey, "P_Key of the paths of the subnet manager, 0 for the default P_Key");

static uint sm_paths;
module_param(sm_paths, uint, 0644);
MODULE_PARM_DESC(sm_paths, "Requests that carried an unmodified path of the subnet manager");

static bool infiniband;
static int set_infiniband(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops infiniband_ops = { .set = set_infiniband, .get = param_get_bool };
module_param_cb(infiniband, &infiniband_ops, &infiniband, 0644);
MODULE_PARM_DESC(infiniband, "Report rxe devices to ib_sdp as InfiniBand");

static bool no_cm;
static int set_no_cm(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops no_cm_ops = { .set = set_no_cm, .get = param_get_bool };
module_param_cb(no_cm, &no_cm_ops, &no_cm, 0644);
MODULE_PARM_DESC(no_cm, "Report rxe devices as served by neither ib_cm nor iw_cm");

#define FIRST_LID 0x100
#define PATHS 64

/* Protects the paths, and lets only one call at a time pass through to the replaced function.
 */
static DEFINE_MUTEX(lock);
static struct task_struct *passes;

/* Paths of rxe, found by the LIDs of the invented paths, and the invented paths. */
static struct {
	struct sa_path_rec rxe, ours;
} paths[PATHS];
static unsigned int next_path;

/* Writes the subnet manager's path instead of rxe's. */
static void invent(struct sa_path_rec *path)
{
	unsigned int k = next_path++ % PATHS;

	paths[k].rxe = *path;
	path->rec_type = SA_PATH_REC_TYPE_IB;
	memset(&path->opa, 0, sizeof(path->opa));
	path->ib.slid = cpu_to_be16(FIRST_LID + k);
	path->ib.dlid = cpu_to_be16(FIRST_LID + PATHS + k);
	path->hop_limit = 0;
	path->traffic_class = 0;
	path->flow_label = 0;
	path->sl = sm_level;
	if (sm_pkey)
		path->pkey = cpu_to_be16(sm_pkey);
	paths[k].ours = *path;
}

/* The user of rdma_cm calls this in its callback, with the id's handlers locked. */
static int resolve_route(struct rdma_cm_id *id, unsigned long timeout_ms)
{
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_ROUTE_ERROR, .status = -ETIMEDOUT };
	int error;

	msleep(min(sm_silent ? timeout_ms : sm_late, timeout_ms));
	if (sm_silent || sm_late > timeout_ms) {
		id->event_handler(id, &event);
		return 0;
	}
	mutex_lock(&lock);
	WRITE_ONCE(passes, current);
	error = rdma_resolve_route(id, timeout_ms);
	WRITE_ONCE(passes, NULL);
	if (!error)
		invent(id->route.path_rec);
	mutex_unlock(&lock);
	return error;
}

static int send_req(struct ib_cm_id *id, struct ib_cm_req_param *param)
{
	struct sa_path_rec *path = param->primary_path;
	unsigned int k = path->rec_type == SA_PATH_REC_TYPE_IB ? be16_to_cpu(path->ib.slid) - FIRST_LID : PATHS;
	int error;

	mutex_lock(&lock);
	if (!WARN(k >= PATHS || memcmp(path, &paths[k].ours, sizeof(*path)), "a request by another path than the subnet manager's")) {
		sm_paths++;
		*path = paths[k].rxe;
	}
	WRITE_ONCE(passes, current);
	error = ib_send_cm_req(id, param);
	WRITE_ONCE(passes, NULL);
	mutex_unlock(&lock);
	return error;
}

/* --- Replaced functions ----------------------------------------------------------------------- */

static bool is_replaced(void)
{
	return READ_ONCE(passes) != current;
}

static int at_resolve_route(struct kprobe *probe, struct pt_regs *regs)
{
	if (!is_replaced())
		return 0;
	instruction_pointer_set(regs, (unsigned long)resolve_route);
	return 1;
}

static int at_send_req(struct kprobe *probe, struct pt_regs *regs)
{
	if (!is_replaced())
		return 0;
	instruction_pointer_set(regs, (unsigned long)send_req);
	return 1;
}

/*
 * Without a post handler, kprobes would optimize the probe to a jump, which cannot change the
 * instruction pointer.
 */
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probes[] = {
	{ .symbol_name = "rdma_resolve_route", .pre_handler = at_resolve_route, .post_handler = after },
	{ .symbol_name = "ib_send_cm_req", .pre_handler = at_send_req, .post_handler = after },
};

/* Number of calls in progress that have to see InfiniBand; under flags_lock. */
static int looking;
static u32 ethernet;

static void protocol(u32 flags)
{
	struct ib_device *device;
	int k;

	for (k = 0; (device = adverse_device(k)); k++)
		WRITE_ONCE(device->port_data[1].immutable.core_cap_flags, flags);
}

/*
 * A probe may run like an NMI, in which lockdep allows no spinlock_t that is also taken elsewhere.
 * lockdep does not track this lock. No probed function runs while this lock is held.
 */
static arch_spinlock_t flags_lock = __ARCH_SPIN_LOCK_UNLOCKED;

static int look(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	unsigned long flags;

	local_irq_save(flags);
	arch_spin_lock(&flags_lock);
	if (++looking == 1)
		protocol((ethernet & ~(RDMA_CORE_CAP_PROT_ROCE | RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP)) | RDMA_CORE_CAP_PROT_IB);
	arch_spin_unlock(&flags_lock);
	local_irq_restore(flags);
	return 0;
}

static int looked(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	unsigned long flags;

	local_irq_save(flags);
	arch_spin_lock(&flags_lock);
	if (--looking == 0)
		protocol(ethernet);
	arch_spin_unlock(&flags_lock);
	local_irq_restore(flags);
	return 0;
}

static struct kretprobe questions[] = {
	{ .kp.symbol_name = "ib_sdp:rdma_protocol_ib__extern", .entry_handler = look, .handler = looked, .maxactive = 32 },
	{ .kp.symbol_name = "ib_sdp:sdp_h_service_level", .entry_handler = look, .handler = looked, .maxactive = 32 },
	{ .kp.symbol_name = "ib_sdp:sdp_h_cm_request_net", .entry_handler = look, .handler = looked, .maxactive = 32 },
};

/* Selects the interface of a request, like IPoIB. */
struct net_device *infiniband_net_dev(struct ib_device *device, u32 port, u16 pkey, const union ib_gid *gid,
				      const struct sockaddr *addr, void *data)
{
	return infiniband ? ib_device_get_netdev(device, port) : NULL;
}

static void stop(int probed, int asked)
{
	while (probed--)
		unregister_kprobe(&probes[probed]);
	while (asked--)
		unregister_kretprobe(&questions[asked]);
}

static int begin(void)
{
	struct ib_device *device = adverse_device(0);
	int p, q, error = 0;

	if (!device)
		return -ENODEV;
	ethernet = device->port_data[1].immutable.core_cap_flags;
	for (p = 0; p < ARRAY_SIZE(probes) && !error; p += !error) {
		/* resets the probe, which register_kprobe() has changed */
		probes[p] = (struct kprobe) {
			.symbol_name = probes[p].symbol_name, .pre_handler = probes[p].pre_handler, .post_handler = after,
		};
		error = register_kprobe(&probes[p]);
	}
	for (q = 0; q < ARRAY_SIZE(questions) && !error; q += !error) {
		questions[q] = (struct kretprobe) {
			.kp.symbol_name = questions[q].kp.symbol_name, .entry_handler = look, .handler = looked, .maxactive = 32,
		};
		error = register_kretprobe(&questions[q]);
	}
	if (error)
		stop(p, q);
	return error;
}

static int set_infiniband(const char *value, const struct kernel_param *param)
{
	bool before = infiniband;
	int error = param_set_bool(value, param);

	if (error || infiniband == before)
		return error;
	if (!infiniband) {
		stop(ARRAY_SIZE(probes), ARRAY_SIZE(questions));
		return 0;
	}
	error = begin();
	infiniband = !error;
	return error;
}

/* ib_cm has to find the flag again when a device is removed. */
static int set_no_cm(const char *value, const struct kernel_param *param)
{
	int error = param_set_bool(value, param);
	struct ib_device *device;
	int k;

	for (k = 0; !error && (device = adverse_device(k)); k++) {
		u32 *flags = &device->port_data[1].immutable.core_cap_flags;

		WRITE_ONCE(*flags, no_cm ? *flags & ~RDMA_CORE_CAP_IB_CM : *flags | RDMA_CORE_CAP_IB_CM);
	}
	return error;
}
