// SPDX-License-Identifier: GPL-2.0-only
/*
 * Gives rxe devices DMA addresses that differ from memory addresses, and bounce buffers, like an
 * IOMMU for an untrusted device. Writes of the CPU reach the device, and writes of the device reach
 * the CPU, only through calls of the DMA API: a missing dma_sync_*() shows as wrong bytes. WARN()
 * reports misuse of the API.
 *
 * rxe uses DMA addresses as kernel addresses. So this module gives rxe a DMA device when it is
 * registered, and puts the addresses of bounce buffers into its work requests and regions.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/rbtree.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/stacktrace.h>
#include <linux/string.h>

#include "adverse.h"

#define ON 1
#define MERGES 2

static uint iommu;
module_param(iommu, uint, 0644);
MODULE_PARM_DESC(iommu, "DMA of devices registered from now on; 1: own addresses and bounce buffers, 2: also merge neighbouring segments of a list");

static uint fail_dma;
module_param(fail_dma, uint, 0644);
MODULE_PARM_DESC(fail_dma, "DMA mappings to fail (per thousand)");

static uint mapped;
module_param(mapped, uint, 0644);
MODULE_PARM_DESC(mapped, "DMA mappings since the last write to this parameter");

static uint merged;
module_param(merged, uint, 0644);
MODULE_PARM_DESC(merged, "Neighbouring segments merged since the last write to this parameter");

static bool iommu_possible;
module_param(iommu_possible, bool, 0444);
MODULE_PARM_DESC(iommu_possible, "True if this kernel lets a module set DMA operations");

static int windows;
module_param(windows, int, 0444);
MODULE_PARM_DESC(windows, "Current DMA mappings");

/* Maximum length of a mapping, as for the kernel's bounce buffers. */
#define LONGEST (256 << 10)
/* Content of a bounce buffer whose mapping has ended. */
#define ENDED 0x6b
/* Number of bytes of bounce buffers that are kept after their end, to detect writes to them. */
#define KEPT_BYTES (4 << 20)
/* First device address: above all memory of a guest, below all kernel addresses. */
#define FIRST (1ULL << 44)

struct piece {
	void *memory;
	size_t len;
};

/* A mapping: a range of device addresses. */
struct window {
	struct rb_node node;
	struct list_head ended;
	dma_addr_t at;
	size_t len;
	enum dma_data_direction dir;
	/*
	 * Pages of the bounce buffer. The data has the same offset in the first page as in the page
	 * of the memory.
	 */
	void *pages;
	size_t room;
	unsigned int count;
	struct piece pieces[] __counted_by(count);
};

/* Protects the tree, the list and the next address. */
static DEFINE_SPINLOCK(lock);
static struct rb_root tree = RB_ROOT;
static LIST_HEAD(ended);
static size_t ended_bytes;
static u64 next_page = FIRST >> PAGE_SHIFT;

static struct platform_device *bus;

static void *start(const struct window *w)
{
	return w->pages + offset_in_page(w->at);
}

/* Finds the window of an address; the lock is held. */
static struct window *find(dma_addr_t at)
{
	struct rb_node *n = tree.rb_node;

	while (n) {
		struct window *w = rb_entry(n, struct window, node);

		if (at >= w->at && at - w->at < w->len)
			return w;
		n = at < w->at ? n->rb_left : n->rb_right;
	}
	return NULL;
}

static void insert(struct window *w)
{
	struct rb_node **link = &tree.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		link = w->at < rb_entry(parent, struct window, node)->at ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&w->node, parent, link);
	rb_insert_color(&w->node, &tree);
}

/* Copies `len` bytes from `offset` on between memory and bounce buffer. */
static void bounce(const struct window *w, size_t offset, size_t len, bool to_device)
{
	void *there = start(w) + offset;
	unsigned int k;

	for (k = 0; k < w->count && len; k++) {
		const struct piece *p = &w->pieces[k];
		size_t part;

		if (offset >= p->len) {
			offset -= p->len;
			continue;
		}
		part = min(p->len - offset, len);
		if (to_device)
			memcpy(there, p->memory + offset, part);
		else
			memcpy(p->memory + offset, there, part);
		there += part;
		len -= part;
		offset = 0;
	}
}

static bool reads(enum dma_data_direction dir)
{
	return dir == DMA_TO_DEVICE || dir == DMA_BIDIRECTIONAL;
}

static bool writes(enum dma_data_direction dir)
{
	return dir == DMA_FROM_DEVICE || dir == DMA_BIDIRECTIONAL;
}

static void free_window(struct window *w)
{
	free_pages_exact(w->pages, w->room);
	kfree(w);
}

/* Returns true if ib_sdp has called the DMA API. */
static bool is_of_ib_sdp(void)
{
	unsigned long calls[16];
	char name[KSYM_SYMBOL_LEN];
	unsigned int k, n = stack_trace_save(calls, ARRAY_SIZE(calls), 1);

	for (k = 0; k < n; k++) {
		snprintf(name, sizeof(name), "%ps", (void *)calls[k]);
		/* a message of ib_cm: a built-in ib_core has no module name */
		if (strstarts(name, "ib_send_mad") || strstarts(name, "ib_post_send_mad"))
			return false;
		/* the first module except this one; the trace has no module name for the kernel */
		if (strchr(name, '[') && !strstr(name, "[sdp_adverse]"))
			return strstr(name, "[ib_sdp]");
	}
	return false;
}

/* Maps `count` adjacent segments as one, all within one buffer. */
static struct window *map_pieces(const struct piece *pieces, unsigned int count, enum dma_data_direction dir)
{
	bool may_sleep = in_task() && preemptible();
	gfp_t gfp = (may_sleep ? GFP_KERNEL : GFP_ATOMIC) | __GFP_NOWARN;
	struct window *w;
	unsigned long flags;
	unsigned int k;

	mapped++;
	/*
	 * An IOMMU may take long, or sleep. The kernel's own MADs are mapped under a lock, and are
	 * exempt.
	 */
	WARN(!may_sleep && is_of_ib_sdp(), "mapped where nobody may sleep");
	if (adverse_happens(fail_dma))
		return NULL;
	w = kzalloc(struct_size(w, pieces, count), gfp);
	if (!w)
		return NULL;
	w->count = count;
	w->dir = dir;
	for (k = 0; k < count; k++) {
		w->pieces[k] = pieces[k];
		w->len += pieces[k].len;
	}
	w->room = PAGE_ALIGN(offset_in_page(pieces->memory) + w->len);
	w->pages = w->len <= LONGEST ? alloc_pages_exact(w->room, gfp) : NULL;
	if (!w->pages) {
		kfree(w);
		return NULL;
	}
	spin_lock_irqsave(&lock, flags);
	w->at = (next_page << PAGE_SHIFT) + offset_in_page(pieces->memory);
	/* plus an unused page */
	next_page += (w->room >> PAGE_SHIFT) + 1;
	/*
	 * Copies also for memory that the device writes to: bytes that the device does not write
	 * must keep their value, as with the kernel's bounce buffers.
	 */
	bounce(w, 0, w->len, true);
	insert(w);
	windows++;
	spin_unlock_irqrestore(&lock, flags);
	return w;
}

/* Forbids further writes to the window's buffer. */
static void bury(struct window *w)
{
	memset(w->pages, ENDED, w->room);
	list_add_tail(&w->ended, &ended);
	ended_bytes += w->room;
	while (ended_bytes > KEPT_BYTES) {
		struct window *old = list_first_entry(&ended, struct window, ended);

		WARN(memchr_inv(old->pages, ENDED, old->room), "the device has written %zu bytes to memory whose mapping has ended", old->room);
		list_del(&old->ended);
		ended_bytes -= old->room;
		free_window(old);
	}
}

static size_t unmap(dma_addr_t at, size_t len, enum dma_data_direction dir, unsigned long attrs)
{
	struct window *w;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	w = find(at);
	if (WARN(!w, "%pad is not mapped", &at))
		goto out;
	WARN(w->at != at || w->dir != dir || (len && w->len != len), "%pad, %zu bytes, direction %d, is mapped otherwise", &at, len, dir);
	len = w->len;
	if (writes(w->dir) && !(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		bounce(w, 0, w->len, false);
	rb_erase(&w->node, &tree);
	windows--;
	bury(w);
out:
	spin_unlock_irqrestore(&lock, flags);
	return len;
}

/*
 * Syncs a bounce buffer with its memory. A `single` mapping consists of adjacent pages, as the
 * kernel's IOMMU drivers require.
 */
static void sync(dma_addr_t at, size_t len, enum dma_data_direction dir, bool to_device, bool single)
{
	struct window *w;
	unsigned long flags;

	if (!len)
		return;
	spin_lock_irqsave(&lock, flags);
	w = find(at);
	if (!WARN(!w || w->dir != dir || len > w->len - (at - w->at) || (single && w->count > 1), "%pad, %zu bytes, direction %d, is not mapped so", &at, len, dir) &&
	    (to_device ? reads(dir) : writes(dir)))
		bounce(w, at - w->at, len, to_device);
	spin_unlock_irqrestore(&lock, flags);
}

/* --- The DMA API ------------------------------------------------------------------------------ */

static dma_addr_t map_phys(struct device *dev, phys_addr_t phys, size_t len, enum dma_data_direction dir, unsigned long attrs)
{
	struct piece piece = { phys_to_virt(phys), len };
	struct window *w = map_pieces(&piece, 1, dir);

	return w ? w->at : DMA_MAPPING_ERROR;
}

static void unmap_phys(struct device *dev, dma_addr_t at, size_t len, enum dma_data_direction dir, unsigned long attrs)
{
	unmap(at, len, dir, attrs);
}

static void unmap_sg(struct device *dev, struct scatterlist *list, int count, enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	size_t rest = 0, k;

	for_each_sg(list, sg, count, k)
		rest += sg->length;
	/* Maps the list by as many windows as needed. */
	for (sg = list; rest; sg = sg_next(sg)) {
		size_t len = unmap(sg_dma_address(sg), sg_dma_len(sg), dir, attrs);

		if (!len)
			break;
		rest -= min(rest, len);
	}
}

/*
 * Returns the number of entries, beginning with this entry, that are adjacent for a device: whole
 * pages.
 */
static unsigned int neighbours(struct scatterlist *sg, unsigned int most)
{
	size_t len = sg->length;
	unsigned int n = 1;

	if (!(iommu & MERGES))
		return 1;
	for (; n < most; n++) {
		struct scatterlist *next = sg_next(sg);

		if (!next || offset_in_page(sg->offset + sg->length) || next->offset || len + next->length > LONGEST)
			break;
		len += next->length;
		sg = next;
	}
	return n;
}

static int map_sg(struct device *dev, struct scatterlist *list, int count, enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg = list, *out = list;
	struct piece *pieces;
	int left = count, n = 0;

	pieces = kcalloc(count, sizeof(*pieces), in_task() && preemptible() ? GFP_KERNEL : GFP_ATOMIC);
	if (!pieces)
		return -ENOMEM;
	while (left) {
		unsigned int k, together = neighbours(sg, left);
		struct window *w;

		for (k = 0; k < together; k++, sg = sg_next(sg))
			pieces[k] = (struct piece) { sg_virt(sg), sg->length };
		w = map_pieces(pieces, together, dir);
		if (!w)
			break;
		merged += together - 1;
		sg_dma_address(out) = w->at;
		sg_dma_len(out) = w->len;
		out = sg_next(out);
		left -= together;
		n++;
	}
	kfree(pieces);
	if (left) {
		for (sg = list; n; n--, sg = sg_next(sg))
			unmap(sg_dma_address(sg), sg_dma_len(sg), dir, DMA_ATTR_SKIP_CPU_SYNC);
		return -ENOMEM;
	}
	if (out)
		sg_dma_len(out) = 0;
	return n;
}

static void sync_single_for_cpu(struct device *dev, dma_addr_t at, size_t len, enum dma_data_direction dir)
{
	sync(at, len, dir, false, true);
}

static void sync_single_for_device(struct device *dev, dma_addr_t at, size_t len, enum dma_data_direction dir)
{
	sync(at, len, dir, true, true);
}

static void sync_sg_for_cpu(struct device *dev, struct scatterlist *list, int count, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int k;

	for_each_sg(list, sg, count, k)
		sync(sg_dma_address(sg), sg_dma_len(sg), dir, false, false);
}

static void sync_sg_for_device(struct device *dev, struct scatterlist *list, int count, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int k;

	for_each_sg(list, sg, count, k)
		sync(sg_dma_address(sg), sg_dma_len(sg), dir, true, false);
}

static size_t max_mapping_size(struct device *dev)
{
	return LONGEST;
}

static const struct dma_map_ops ops = {
	.map_phys = map_phys,
	.unmap_phys = unmap_phys,
	.map_sg = map_sg,
	.unmap_sg = unmap_sg,
	.sync_single_for_cpu = sync_single_for_cpu,
	.sync_single_for_device = sync_single_for_device,
	.sync_sg_for_cpu = sync_sg_for_cpu,
	.sync_sg_for_device = sync_sg_for_device,
	.max_mapping_size = max_mapping_size,
};

/* --- The verbs -------------------------------------------------------------------------------- */

static bool has_iommu(const struct ib_device *device)
{
	return device->dma_device == &bus->dev;
}

/* Returns the kernel address of a device address; 0 if the device must not access it. */
static u64 translate(u64 at, size_t len, bool written)
{
	struct window *w;
	unsigned long flags;
	u64 there = 0;

	spin_lock_irqsave(&lock, flags);
	w = find(at);
	if (!WARN(!w || len > w->len - (at - w->at) || !(written ? writes(w->dir) : reads(w->dir)),
		  "a device is to %s %zu bytes at %#llx, which is not mapped so", written ? "write" : "read", len, at))
		there = (u64)(uintptr_t)start(w) + (at - w->at);
	spin_unlock_irqrestore(&lock, flags);
	return there;
}

/* Replaces the addresses of a work request; the old ones are stored in `kept`. */
static bool replace(struct ib_sge *sges, int count, bool written, u64 *kept)
{
	bool good = true;
	int k;

	for (k = 0; k < count; k++) {
		kept[k] = sges[k].addr;
		if (sges[k].length)
			sges[k].addr = translate(kept[k], sges[k].length, written);
		good = good && (sges[k].addr || !sges[k].length);
	}
	return good;
}

static void put_back(struct ib_sge *sges, int count, const u64 *kept)
{
	int k;

	for (k = 0; k < count; k++)
		sges[k].addr = kept[k];
}

/* More than the maximum of any rxe device. */
#define MOST_SGES 64

/* Posts the requests one by one, each with its addresses replaced. Drivers keep no pointer to a
 * list.
 */
#define POST(post, type, qp, wr, bad, is_written, has_addresses) ({			\
	const type *w;									\
	int error = 0;									\
											\
	for (w = (wr); w && !error; w = w->next) {					\
		type *one = (type *)w, *next = w->next;					\
		int count = (has_addresses) ? w->num_sge : 0;				\
		const type *ignored;							\
		u64 kept[MOST_SGES];							\
											\
		if (count > MOST_SGES)							\
			error = -EINVAL;						\
		else if (!replace(w->sg_list, count, is_written, kept))			\
			error = -EFAULT;						\
		one->next = NULL;							\
		if (!error)								\
			error = (post)(qp, one, &ignored);				\
		one->next = next;							\
		if (count <= MOST_SGES)							\
			put_back(w->sg_list, count, kept);				\
		if (error)								\
			*(bad) = w;							\
	}										\
	error; })

int iommu_post_send(const struct ib_device_ops *real, struct ib_qp *qp, const struct ib_send_wr *wr,
		    const struct ib_send_wr **bad)
{
	if (!has_iommu(qp->device) || qp->uobject)
		return real->post_send(qp, wr, bad);
	return POST(real->post_send, struct ib_send_wr, qp, wr, bad, w->opcode == IB_WR_RDMA_READ, !(w->send_flags & IB_SEND_INLINE));
}

int iommu_post_recv(const struct ib_device_ops *real, struct ib_qp *qp, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad)
{
	if (!has_iommu(qp->device) || qp->uobject)
		return real->post_recv(qp, wr, bad);
	return POST(real->post_recv, struct ib_recv_wr, qp, wr, bad, true, true);
}

int iommu_map_mr_sg(const struct ib_device_ops *real, struct ib_mr *mr, struct scatterlist *list,
		    int count, unsigned int *offset)
{
	struct scatterlist *copy, *sg;
	u64 at = sg_dma_address(list) + (offset ? *offset : 0);
	int k, done;

	if (!has_iommu(mr->device))
		return real->map_mr_sg(mr, list, count, offset);
	copy = kcalloc(count, sizeof(*copy), GFP_ATOMIC);
	if (!copy)
		return -ENOMEM;
	sg_init_table(copy, count);
	for_each_sg(list, sg, count, k) {
		struct window *w;
		unsigned long flags;

		spin_lock_irqsave(&lock, flags);
		w = find(sg_dma_address(sg));
		if (!WARN(!w, "a region of what is not mapped"))
			sg_dma_address(&copy[k]) = (uintptr_t)start(w) + (sg_dma_address(sg) - w->at);
		spin_unlock_irqrestore(&lock, flags);
		sg_dma_len(&copy[k]) = w ? sg_dma_len(sg) : 0;
	}
	done = real->map_mr_sg(mr, copy, count, offset);
	mr->iova = at;
	kfree(copy);
	return done;
}

/* --- Registered devices ----------------------------------------------------------------------- */

#ifdef CONFIG_ARM64
#define THIRD_ARGUMENT(regs) ((regs)->regs[2])
#else
#define THIRD_ARGUMENT(regs) ((regs)->dx)
#endif

/* ib_register_device(device, name, dma_device) */
static int registered(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_device *device = (struct ib_device *)regs_get_kernel_argument(regs, 0);

	if (!(iommu & ON) || !iommu_possible || device->ops.driver_id != RDMA_DRIVER_RXE)
		return 0;
	THIRD_ARGUMENT(regs) = (unsigned long)&bus->dev;
	adverse_install(device);
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "ib_register_device",
	.pre_handler = registered,
};

int iommu_start(void)
{
	int error;

	bus = platform_device_register_simple("sdp_adverse", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(bus))
		return PTR_ERR(bus);
	set_dma_ops(&bus->dev, &ops);
	iommu_possible = get_dma_ops(&bus->dev) == &ops;
	dma_set_max_seg_size(&bus->dev, UINT_MAX);
	error = dma_coerce_mask_and_coherent(&bus->dev, DMA_BIT_MASK(64));
	if (!error)
		error = register_kprobe(&probe);
	if (error)
		platform_device_unregister(bus);
	return error;
}
