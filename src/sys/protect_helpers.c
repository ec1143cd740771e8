// SPDX-License-Identifier: GPL-2.0-only

/* Write protection of a process's memory by userfaultfd(2). */

#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/hugetlb.h>
#include <linux/kthread.h>
#include <linux/major.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>
#include <linux/userfaultfd_k.h>

#include "net_helpers.h"
#include "protect_helpers.h"

#define SLOT_SIZE	64
#define SLOTS		BITS_PER_LONG

/* --- The file ------------------------------------------------------------------------------ */

/*
 * Executes an ioctl whose arguments are in a slot. Fails instead of faulting if the program has
 * unmapped the pinned page: a page that it has mapped there instead could block this task.
 */
static long do_ioctl(struct sdp_h_protect *p, unsigned int cmd, unsigned int slot)
{
	long ret;

	pagefault_disable();
	ret = p->file->f_op->unlocked_ioctl(p->file, cmd, p->args + slot * SLOT_SIZE);
	pagefault_enable();
	return ret;
}

static void *slot_address(struct sdp_h_protect *p, unsigned int slot)
{
	return kmap_local_page(p->page) + slot * SLOT_SIZE;
}

void sdp_h_protect_kick(struct sdp_h_protect *p)
{
	queue_work(sdp_h_protect_wq, &p->work);
}

/* Wakeup function of the userfaultfd's wait queue, called with the queue's lock held. */
static int events_pending(wait_queue_entry_t *wait, unsigned int mode, int sync, void *key)
{
	sdp_h_protect_kick(container_of(wait, struct sdp_h_protect, wait));
	return 0;
}

static void queue_found(struct file *file, wait_queue_head_t *head, poll_table *table)
{
	struct sdp_h_protect *p = container_of(table, struct sdp_h_protect, table);

	p->head = head;
	add_wait_queue(head, &p->wait);
}

/* Opens the device that creates userfaultfds, if the device exists. */
static struct file *open_device(void)
{
	struct file_system_type *type = get_fs_type("devtmpfs");
	struct vfsmount *mnt = type ? kern_mount(type) : ERR_PTR(-ENODEV);
	struct file *dev;

	if (IS_ERR(mnt))
		return ERR_CAST(mnt);
	dev = file_open_root_mnt(mnt, "userfaultfd", O_RDWR, 0);
	kern_unmount(mnt);
	return dev;
}

/*
 * A kernel thread creates the file, because the program could use a descriptor in its own table,
 * even without the right to handle kernel faults.
 */
static struct file *make_file(void)
{
	struct file *dev = open_device(), *file = NULL;
	long fd = -ENODEV;

	if (IS_ERR(dev))
		return dev;
	if (S_ISCHR(file_inode(dev)->i_mode) && imajor(file_inode(dev)) == MISC_MAJOR &&
	    dev->f_op->unlocked_ioctl)
		fd = dev->f_op->unlocked_ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0) {
		file = fget(fd);
		close_fd(fd);
		fd = -EBADF;
	}
	fput(dev);
	return file ?: ERR_PTR(fd);
}

/* Maps a page into the process; child processes do not inherit the page. */
static int make_args(struct sdp_h_protect *p)
{
	struct vm_area_struct *vma;
	unsigned long args;
	bool own;

	args = vm_mmap(NULL, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	if (IS_ERR_VALUE(args))
		return (int)args;
	mmap_write_lock(p->mm);
	/* The program may have replaced the mapping by memory whose faults it handles itself. */
	vma = vma_lookup(p->mm, args);
	own = vma && vma_is_anonymous(vma) && !userfaultfd_armed(vma);
	if (own && vma->vm_start == args && vma->vm_end == args + PAGE_SIZE)
		vm_flags_set(vma, VM_DONTCOPY | VM_DONTDUMP);
	mmap_write_downgrade(p->mm);
	if (!own || pin_user_pages(args, 1, FOLL_WRITE | FOLL_LONGTERM, &p->page) != 1)
		p->page = NULL;
	mmap_read_unlock(p->mm);
	if (!p->page) {
		vm_munmap(args, PAGE_SIZE);
		return -EFAULT;
	}
	p->args = args;
	return 0;
}

/* UFFD_FEATURE_EVENT_REMAP keeps moved memory protected. */
#define FEATURES (UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP)

/* Returns true if the userfaultfd has the requested features; the program may change them. */
static bool is_as_asked(const struct sdp_h_protect *p)
{
	const struct userfaultfd_ctx *ctx = p->file->private_data;

	return (READ_ONCE(ctx->features) & UFFD_API_FEATURES) == FEATURES;
}

static int begin_events(struct sdp_h_protect *p)
{
	struct uffdio_api *api = slot_address(p, 0);
	long ret;

	*api = (struct uffdio_api) { .api = UFFD_API, .features = FEATURES };
	kunmap_local(api);
	ret = do_ioctl(p, UFFDIO_API, 0);
	if (ret)
		return ret;
	if (!is_as_asked(p))
		return -EPERM;
	init_waitqueue_func_entry(&p->wait, events_pending);
	init_poll_funcptr(&p->table, queue_found);
	vfs_poll(p->file, &p->table);
	return p->head ? 0 : -EIO;
}

static int make(struct sdp_h_protect *p)
{
	struct file *file = make_file();
	int ret;

	if (IS_ERR(file))
		return PTR_ERR(file);
	p->file = file;
	ret = make_args(p);
	return ret ?: begin_events(p);
}

static void work(struct work_struct *work)
{
	struct sdp_h_protect *p = container_of(work, struct sdp_h_protect, work);
	bool alive = mmget_not_zero(p->mm);

	if (alive)
		kthread_use_mm(p->mm);
	if (!completion_done(&p->made)) {
		p->error = alive ? make(p) : -ESRCH;
		complete_all(&p->made);
	}
	if (alive) {
		if (!p->error)
			p->run(p);
		kthread_unuse_mm(p->mm);
		mmput(p->mm);
	}
}

static void rest(struct work_struct *work)
{
	struct sdp_h_protect *p = container_of(to_delayed_work(work), struct sdp_h_protect, idle);

	p->rest(p);
}

/* Prepares the protector for the calling process. A worker calls `run` and `rest_fn`. */
int sdp_h_protect_init(struct sdp_h_protect *p, void (*run)(struct sdp_h_protect *p),
		       void (*rest_fn)(struct sdp_h_protect *p))
{
	if (!current->mm || (current->flags & PF_KTHREAD))
		return -EINVAL;
	p->mm = current->mm;
	mmgrab(p->mm);
	p->slots = 1;
	init_rwsem(&p->open);
	p->run = run;
	p->rest = rest_fn;
	init_completion(&p->made);
	INIT_WORK(&p->work, work);
	INIT_DELAYED_WORK(&p->idle, rest);
	return 0;
}

/* Waits until the file exists. Returns an error if the userfaultfd could not be created. */
int sdp_h_protect_wait(struct sdp_h_protect *p)
{
	if (!completion_done(&p->made) && wait_for_completion_killable(&p->made))
		return -EINTR;
	return p->error;
}

/* Unmaps the page of arguments, in the workqueue's thread. */
static void give_args_back(struct sdp_h_protect *p)
{
	struct page *page;

	if (!p->page)
		return;
	if (mmget_not_zero(p->mm)) {
		kthread_use_mm(p->mm);
		/* Do not wait for other memory that the program has mapped here. */
		if (get_user_pages_fast_only(p->args, 1, 0, &page) == 1) {
			if (page == p->page)
				vm_munmap(p->args, PAGE_SIZE);
			put_page(page);
		}
		kthread_unuse_mm(p->mm);
		mmput(p->mm);
	}
	unpin_user_page(p->page);
}

/* Closes the file, which removes all protection; `rest` calls this last. */
void sdp_h_protect_close(struct sdp_h_protect *p)
{
	struct file *file;

	disable_delayed_work(&p->idle);
	disable_work_sync(&p->work);
	if (p->head)
		remove_wait_queue(p->head, &p->wait);
	down_write(&p->open);
	file = p->file;
	p->file = NULL;
	up_write(&p->open);
	give_args_back(p);
	/* Frees the userfaultfd at once if possible, and thus unregisters its mappings. */
	if (file)
		__fput_sync(file);
	mmdrop(p->mm);
}

/* Queues `rest` after a delay, replacing an earlier delay. */
void sdp_h_protect_rest(struct sdp_h_protect *p, unsigned int ms)
{
	mod_delayed_work(sdp_h_protect_wq, &p->idle, msecs_to_jiffies(ms));
}

/* --- Ranges of memory ---------------------------------------------------------------------- */

/* Returns true if a mapping is registered with this userfaultfd. */
static bool is_own(const struct sdp_h_protect *p, const struct vm_area_struct *vma)
{
#ifdef CONFIG_USERFAULTFD
	return vma->vm_userfaultfd_ctx.ctx == p->file->private_data;
#else
	return false;
#endif
}

static enum sdp_h_protectable check_vma(const struct sdp_h_protect *p,
					struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_SHARED)
		return SDP_H_PROTECT_SHARED;
	if (is_vm_hugetlb_page(vma))
		return SDP_H_PROTECT_HUGE;
	if (!vma_is_anonymous(vma) || (vma->vm_flags & VM_SPECIAL))
		return SDP_H_PROTECT_FILE;
	if (vma->vm_flags & VM_GROWSDOWN)
		return SDP_H_PROTECT_STACK;
	if (is_own(p, vma))
		return SDP_H_PROTECTABLE;
	return userfaultfd_armed(vma) ? SDP_H_PROTECT_OTHER : SDP_H_PROTECTABLE_FIRST;
}

/* Checks that the whole range can be protected. Returns in `whole` the range of its mappings. */
static enum sdp_h_protectable check(const struct sdp_h_protect *p, unsigned long start,
				    unsigned long end, struct uffdio_range *whole)
{
	enum sdp_h_protectable ret = SDP_H_PROTECTABLE, one;
	struct vm_area_struct *vma;
	unsigned long at = start;

	mmap_read_lock(p->mm);
	while (at < end && ret <= SDP_H_PROTECTABLE_FIRST) {
		vma = find_vma(p->mm, at);
		one = vma && vma->vm_start <= at ? check_vma(p, vma) : SDP_H_PROTECT_HOLE;
		ret = max(ret, one);
		if (one == SDP_H_PROTECT_HOLE)
			break;
		if (at == start)
			whole->start = vma->vm_start;
		whole->len = vma->vm_end - whole->start;
		at = vma->vm_end;
	}
	mmap_read_unlock(p->mm);
	return ret;
}

/* Returns true if the program has made the userfaultfd handle other faults than writes. */
static bool catches_more(const struct sdp_h_protect *p)
{
	struct vm_area_struct *vma;
	bool more = false;

	VMA_ITERATOR(vmi, p->mm, 0);

	mmap_read_lock(p->mm);
	for_each_vma(vmi, vma)
		more |= is_own(p, vma) && (vma->vm_flags & __VM_UFFD_FLAGS & ~VM_UFFD_WP);
	mmap_read_unlock(p->mm);
	return more;
}

/* Executes an ioctl for the calling process. */
static long own_ioctl(struct sdp_h_protect *p, unsigned int cmd, const void *args, size_t size)
{
	unsigned long slot;
	void *at;
	long ret;

	do {
		slot = find_first_zero_bit(&p->slots, SLOTS);
		if (slot >= SLOTS)
			return -EAGAIN;
	} while (test_and_set_bit(slot, &p->slots));
	at = slot_address(p, slot);
	memcpy(at, args, size);
	kunmap_local(at);
	ret = do_ioctl(p, cmd, slot);
	clear_bit_unlock(slot, &p->slots);
	return ret;
}

static int set(struct sdp_h_protect *p, unsigned long start, unsigned long end)
{
	struct uffdio_register whole = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect args = {
		.range = { .start = start, .len = end - start },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int ret;

	BUILD_BUG_ON(sizeof(whole) > SLOT_SIZE || sizeof(args) > SLOT_SIZE);
	ret = check(p, start, end, &whole.range);
	/* Register whole mappings, so that no mapping is split. */
	if (ret == SDP_H_PROTECTABLE_FIRST) {
		ret = own_ioctl(p, UFFDIO_REGISTER, &whole, sizeof(whole));
		if (catches_more(p))
			return SDP_H_PROTECT_MISUSED;
	}
	return ret ?: own_ioctl(p, UFFDIO_WRITEPROTECT, &args, sizeof(args));
}

/*
 * Protects memory of the calling process. Returns the reason why memory cannot be protected (enum
 * sdp_h_protectable), or an error. After an error a part of the memory may be protected.
 */
int sdp_h_protect_set(struct sdp_h_protect *p, unsigned long start, unsigned long end)
{
	int ret = -EBADF;

	down_read(&p->open);
	if (p->file && p->mm == current->mm)
		ret = set(p, start, end);
	up_read(&p->open);
	return ret;
}

static long worker_ioctl(struct sdp_h_protect *p, unsigned int cmd, unsigned long start,
			 unsigned long end)
{
	unsigned int tries = 0;

	for (;;) {
		/* UFFDIO_WAKE uses the range only. */
		struct uffdio_writeprotect *args = slot_address(p, 0);
		long ret;

		*args = (struct uffdio_writeprotect) { .range = { .start = start, .len = end - start } };
		kunmap_local(args);
		ret = do_ioctl(p, cmd, 0);
		if (ret != -EFAULT || tries++ == 1000)
			return ret;
		/* The page is unreadable for microseconds while the kernel migrates it. */
		fsleep(USEC_PER_MSEC);
	}
}

/* Finds the first mapping at or after `start` that this userfaultfd protects, cut at `end`. */
static bool next_own(struct sdp_h_protect *p, unsigned long start, unsigned long end,
		     unsigned long *from, unsigned long *to)
{
	struct vm_area_struct *vma;
	bool found = false;

	mmap_read_lock(p->mm);
	while (!found && start < end) {
		vma = find_vma(p->mm, start);
		if (!vma || vma->vm_start >= end)
			break;
		*from = max(start, vma->vm_start);
		*to = min(end, vma->vm_end);
		found = is_own(p, vma);
		start = vma->vm_end;
	}
	mmap_read_unlock(p->mm);
	return found;
}

/*
 * Removes write protection from the mappings of the range that this userfaultfd protects, and wakes
 * faulting threads; called by `run`. Keeps the protection by any other userfaultfd. Wakes threads
 * elsewhere in the range, too, which then fault again. -EAGAIN: a mapping change is in progress,
 * and an event may be pending.
 */
int sdp_h_protect_clear(struct sdp_h_protect *p, unsigned long start, unsigned long end)
{
	unsigned long at = start, from, to;
	bool whole = false;
	long ret = 0;

	while (!ret && next_own(p, at, end, &from, &to)) {
		ret = worker_ioctl(p, UFFDIO_WRITEPROTECT, from, to);
		whole = !ret && from == start && to == end;
		if (ret == -ENOENT)
			ret = 0;	/* the mapping was removed meanwhile */
		at = to;
	}
	if (!whole && (!ret || ret == -EAGAIN))
		ret = worker_ioctl(p, UFFDIO_WAKE, start, end) ?: ret;
	return ret == -ESRCH ? 0 : (int)ret;
}

/* Reads an event; called by `run`. Returns false if no event is pending. */
bool sdp_h_protect_read(struct sdp_h_protect *p, struct sdp_h_protect_event *event)
{
	struct uffd_msg msg;
	loff_t pos = 0;

	while (kernel_read(p->file, &msg, sizeof(msg), &pos) == sizeof(msg)) {
		if (msg.event == UFFD_EVENT_REMAP)
			*event = (struct sdp_h_protect_event) { true, msg.arg.remap.from, msg.arg.remap.len };
		else if (msg.event == UFFD_EVENT_PAGEFAULT)
			*event = (struct sdp_h_protect_event) { false, msg.arg.pagefault.address & PAGE_MASK, PAGE_SIZE };
		else
			continue;
		return true;
	}
	return false;
}
