// SPDX-License-Identifier: GPL-2.0-only

/* RDMA and memory functions that Rust cannot call directly. */

#include <linux/error-injection.h>
#include <linux/inetdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu_counter.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/if_vlan.h>
#include <linux/slab.h>
#include <net/ip.h>
#include <net/ip_fib.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>

/* --- Memory -------------------------------------------------------------------------------- */

/* Batch size of the per-CPU counters. */
#define BLOCKS_AT_ONCE (64 << 10)

/* Bytes of all blocks, valid from sdp_h_start() on. */
struct percpu_counter sdp_h_block_bytes;

/* Counts like TCP's memory accounting: a CPU seldom writes to the shared counter. */
static void count_block(s64 bytes)
{
	percpu_counter_add_batch(&sdp_h_block_bytes, bytes, BLOCKS_AT_ONCE);
}

void *sdp_h_block_alloc(size_t size, bool atomic)
{
	gfp_t gfp = (atomic ? GFP_ATOMIC : GFP_KERNEL) | __GFP_NOWARN | __GFP_ACCOUNT | __GFP_ZERO;
	unsigned int order;
	struct page *page;
	void *block;

	if (size < PAGE_SIZE) {
		block = kmalloc(size, gfp);
		if (block)
			count_block(size);
		return block;
	}
	order = get_order(size);
	/* Large blocks are optional: the kernel must not compact the whole memory for them. */
	if (order)
		gfp |= __GFP_COMP | (order > PAGE_ALLOC_COSTLY_ORDER ? __GFP_NORETRY : 0);
	page = alloc_pages(gfp, order);
	if (!page)
		return NULL;
	count_block(size);
	return page_address(page);
}

void sdp_h_block_free(void *block, size_t size)
{
	count_block(-(s64)size);
	if (size < PAGE_SIZE)
		kfree(block);
	else
		__free_pages(virt_to_page(block), get_order(size));
}

/* Returns true while another user, such as a pipe, has pages of the block. */
bool sdp_h_block_is_shared(const void *block)
{
	/* orders the reads of other users, before put_page(), before writes to the block */
	return atomic_read_acquire(&virt_to_page(block)->_refcount) > 1;
}

/* --- Network namespaces -------------------------------------------------------------------- */

/*
 * Returns the network device that a connection request arrived on, with a reference; NULL if there
 * is none. Works like cma_get_net_dev() of rdma_cm.
 */
static struct net_device *request_dev(const struct ib_cm_event *event,
				      struct sockaddr_storage *local)
{
	const struct ib_cm_req_event_param *req = &event->param.req_rcvd;
	struct ib_device *dev = req->listen_id->device;
	struct net_device *ndev;

	if (!rdma_protocol_roce(dev, req->port))
		return ib_get_net_dev_by_params(dev, req->port,
						be16_to_cpu(req->primary_path->pkey),
						&req->primary_path->sgid,
						(struct sockaddr *)local);
	if (!req->ppath_sgid_attr)
		return NULL;
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(req->ppath_sgid_attr);
	if (IS_ERR(ndev))
		ndev = NULL;
	else
		dev_hold(ndev);
	rcu_read_unlock();
	return ndev;
}

/*
 * Returns the network namespace, with a reference, and the interface of a connection request. Fails
 * when the interface is down or the namespace may not use the RDMA device. Without an `ib_cm` event
 * the connection is an iWARP connection.
 */
int sdp_h_cm_request_net(struct ib_device *dev, const struct ib_cm_event *event,
			 struct sockaddr_storage *local, struct net **net, int *ifindex)
{
	struct net_device *ndev = event ? request_dev(event, local) : ib_device_get_netdev(dev, 1);
	struct net *n = NULL;

	if (!ndev)
		return -ENODEV;
	/*
	 * An interface changes its namespace only while down and after a grace period, so both
	 * results are consistent here. Takes no reference to a namespace that is being removed.
	 */
	rcu_read_lock();
	if (READ_ONCE(ndev->flags) & IFF_UP) {
		n = maybe_get_net(dev_net_rcu(ndev));
		*ifindex = READ_ONCE(ndev->ifindex);
	}
	rcu_read_unlock();
	dev_put(ndev);
	if (!n)
		return -EHOSTUNREACH;
	if (!rdma_dev_access_netns(dev, n)) {
		put_net(n);
		return -EHOSTUNREACH;
	}
	*net = n;
	return 0;
}

/* siw makes its sockets in the namespace of the current task: a worker, so the initial one. */
bool sdp_h_can_connect(struct ib_device *dev, u32 port, const struct net *net)
{
	return rdma_cap_ib_cm(dev, port) ||
	       (rdma_cap_iw_cm(dev, port) &&
		(dev->ops.driver_id != RDMA_DRIVER_SIW || net_eq(net, &init_net)));
}

static long iw_listen(void *id)
{
	return iw_cm_listen(id, 128);
}

/* A worker listens, because siw's socket is in the namespace of the task. */
int sdp_h_iw_listen(struct iw_cm_id *id)
{
	struct net_device *ndev = ib_device_get_netdev(id->device, 1);
	int err = -EAFNOSUPPORT;

	if (ndev && sdp_h_can_connect(id->device, 1, dev_net(ndev)))
		err = work_on_cpu(raw_smp_processor_id(), iw_listen, id);
	dev_put(ndev);
	if (err && err != -EAFNOSUPPORT)
		ibdev_warn_ratelimited(id->device, KBUILD_MODNAME ": cannot listen at %pISpc (%d), no SDP by iWARP there: another program may have that TCP port\n",
				       &id->local_addr, err);
	return err;
}

static bool reverse_route4(struct net_device *ndev, const struct sockaddr_in *local,
			   const struct sockaddr_in *remote)
{
	__be32 daddr = remote->sin_addr.s_addr, saddr = local->sin_addr.s_addr;
	struct flowi4 fl4 = {};
	struct fib_result res;

	if (ipv4_is_multicast(saddr) || ipv4_is_multicast(daddr) || ipv4_is_lbcast(saddr) ||
	    ipv4_is_lbcast(daddr) || ipv4_is_zeronet(saddr) || ipv4_is_zeronet(daddr) ||
	    ipv4_is_loopback(daddr) || ipv4_is_loopback(saddr))
		return false;
	fl4.flowi4_oif = ndev->ifindex;
	fl4.daddr = daddr;
	fl4.saddr = saddr;
	return !fib_lookup(dev_net_rcu(ndev), &fl4, &res, 0) && FIB_RES_DEV(res) == ndev;
}

static bool reverse_route6(struct net_device *ndev, const struct sockaddr_in6 *local,
			   const struct sockaddr_in6 *remote)
{
#if IS_ENABLED(CONFIG_IPV6)
	const int no_host = IPV6_ADDR_MULTICAST | IPV6_ADDR_LOOPBACK | IPV6_ADDR_MAPPED;
	int type = ipv6_addr_type(&remote->sin6_addr);
	struct rt6_info *rt;
	bool ret;

	/* Without IPv6 the kernel has no IPv6 routing tables to search. */
	if (!ipv6_mod_enabled())
		return false;
	/* A peer may claim any address: this function rejects addresses that no host can have. */
	if (type == IPV6_ADDR_ANY || ((type | ipv6_addr_type(&local->sin6_addr)) & no_host))
		return false;
	rt = rt6_lookup(dev_net_rcu(ndev), &remote->sin6_addr, &local->sin6_addr, ndev->ifindex,
			NULL, type & IPV6_ADDR_LINKLOCAL);
	if (!rt)
		return false;
	ret = rt->rt6i_idev && rt->rt6i_idev->dev == ndev;
	ip6_rt_put(rt);
	return ret;
#else
	return false;
#endif
}

/* Returns the traffic class of the network device for a priority, as rdma_cm does. */
static u8 traffic_class(struct net_device *dev, int priority)
{
	struct net_device *real = is_vlan_dev(dev) ? vlan_dev_real_dev(dev) : dev;

	if (real->num_tc)
		return netdev_get_prio_tc_map(real, priority);
	if (real == dev)
		return 0;
	return (vlan_dev_get_egress_qos_mask(dev, priority) & VLAN_PRIO_MASK) >> VLAN_PRIO_SHIFT;
}

/*
 * Returns the service level for SO_PRIORITY, if the route is known: on Ethernet the device maps the
 * priority. On InfiniBand the subnet manager sets the level: other levels may lose packets.
 */
u8 sdp_h_service_level(const struct rdma_cm_id *id, int priority)
{
	struct net_device *dev;
	u8 level = 0;

	if (!rdma_protocol_roce(id->device, id->port_num))
		return id->route.path_rec->sl;
	rcu_read_lock();
	dev = rdma_read_gid_attr_ndev_rcu(id->route.addr.dev_addr.sgid_attr);
	if (!IS_ERR(dev))
		level = traffic_class(dev, priority);
	rcu_read_unlock();
	return level;
}

/* Returns true if packets to the remote address leave through the interface. Works like rdma_cm's
 * validate_net_dev().
 */
bool sdp_h_reverse_route(struct net *net, int ifindex, const struct sockaddr_storage *local,
			 const struct sockaddr_storage *remote)
{
	struct net_device *ndev;
	bool ret = false;

	if (local->ss_family != remote->ss_family)
		return false;
	rcu_read_lock();
	ndev = dev_get_by_index_rcu(net, ifindex);
	if (ndev && local->ss_family == AF_INET)
		ret = reverse_route4(ndev, (const struct sockaddr_in *)local,
				     (const struct sockaddr_in *)remote);
	else if (ndev && local->ss_family == AF_INET6)
		ret = reverse_route6(ndev, (const struct sockaddr_in6 *)local,
				     (const struct sockaddr_in6 *)remote);
	rcu_read_unlock();
	return ret;
}

/* --- Devices and DMA ----------------------------------------------------------------------- */

void sdp_h_ib_warn_qp(const struct ib_device *dev, u32 number)
{
	ibdev_warn(dev, KBUILD_MODNAME ": cannot destroy QP %u, retrying; the device cannot be removed before that\n", number);
}

void sdp_h_ib_warn_removal(const struct ib_device *dev, unsigned int seconds)
{
	ibdev_warn(dev, KBUILD_MODNAME ": the removal of the device has waited %u seconds for what was made of it\n", seconds);
}

void sdp_h_ib_warn_add(const struct ib_device *dev, int err)
{
	ibdev_warn(dev, KBUILD_MODNAME ": cannot use the device (%d), no SDP over it: remove and add the device to retry\n", err);
}

int sdp_h_ib_map_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

/* The CPU sees bytes synced before the call, and bytes that it has written since. */
void sdp_h_ib_unmap(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	if (!ib_uses_virt_dma(dev))
		dma_unmap_single_attrs(dev->dma_device, addr, size, dir, DMA_ATTR_SKIP_CPU_SYNC);
}

/* --- Queues -------------------------------------------------------------------------------- */

int sdp_h_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	return ib_post_send(qp, wr, NULL);
}

int sdp_h_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	return ib_post_recv(qp, wr, NULL);
}

#ifdef CONFIG_FAIL_FUNCTION
/* Error injection in a debug kernel can make these functions fail. */
ALLOW_ERROR_INJECTION(sdp_h_ib_map_error, ERRNO);
ALLOW_ERROR_INJECTION(sdp_h_ib_post_send, ERRNO);
ALLOW_ERROR_INJECTION(sdp_h_ib_post_recv, ERRNO);
#endif

/* --- Addresses ----------------------------------------------------------------------------- */

static int no_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	return 0;
}

/*
 * rdma_cm gives each id a port of ip_local_port_range: each port once for one host, and never the
 * last one again. Ids of this module neither listen nor connect, and share a port if none is left.
 */
static void share_port(struct rdma_cm_id *id, struct sockaddr_storage *addr)
{
	int low, high;

	inet_get_local_port_range(id->route.addr.dev_addr.net, &low, &high);
	/* the port is at the same offset in both families */
	((struct sockaddr_in *)addr)->sin_port = htons(low);
}

/* Calls rdma_resolve_addr() with a source address, or without one if `from` has no family. */
int sdp_h_rdma_resolve(struct rdma_cm_id *id, int ifindex, struct sockaddr_storage *from,
		       const struct sockaddr_storage *to, unsigned long timeout_ms)
{
	struct sockaddr *source = from->ss_family ? (struct sockaddr *)from : NULL;
	int err;

	rdma_set_reuseaddr(id, 1);
	/* binds the id to the interface of the route of the socket's packets; lo allows any port */
	if (ifindex != LOOPBACK_IFINDEX)
		id->route.addr.dev_addr.bound_dev_if = ifindex;
	err = rdma_resolve_addr(id, source, (const struct sockaddr *)to, timeout_ms);
	if (err != -EADDRNOTAVAIL)
		return err;
	from->ss_family = to->ss_family;
	share_port(id, from);
	return rdma_resolve_addr(id, (struct sockaddr *)from, (const struct sockaddr *)to, timeout_ms);
}

/* Returns 0 if an address is on an RDMA port of this host. */
int sdp_h_rdma_bind_test(struct net *net, struct sockaddr_storage *addr)
{
	struct rdma_cm_id *id;
	int ret;

	id = rdma_create_id(net, no_event, NULL, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	rdma_set_reuseaddr(id, 1);
	ret = rdma_bind_addr(id, (struct sockaddr *)addr);
	if (ret == -EADDRNOTAVAIL) {
		share_port(id, addr);
		ret = rdma_bind_addr(id, (struct sockaddr *)addr);
	}
	if (!ret && id->device && !sdp_h_can_connect(id->device, id->port_num, net))
		ret = -EPROTONOSUPPORT;
	rdma_destroy_id(id);
	return ret;
}
