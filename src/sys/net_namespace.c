// SPDX-License-Identifier: GPL-2.0-only
/* Network namespaces and their files in /proc. */
#include <linux/proc_fs.h>
#include <net/netns/generic.h>
#include "net_helpers.h"

unsigned int sdp_h_netns_id;
static struct pernet_operations *sdp_h_netns_ops;

int sdp_h_netns_start(size_t size, int (*init)(struct net *), void (*exit)(struct net *))
{
	/* id and size are const members, so only an initialiser can set them */
	struct pernet_operations ops = {
		.init = init,
		.exit = exit,
		.id = &sdp_h_netns_id,
		.size = size,
	};
	int err;

	sdp_h_netns_ops = kmemdup(&ops, sizeof(ops), GFP_KERNEL);
	if (!sdp_h_netns_ops)
		return -ENOMEM;
	err = register_pernet_subsys(sdp_h_netns_ops);
	if (err)
		kfree(sdp_h_netns_ops);
	return err;
}

void sdp_h_netns_stop(void)
{
	unregister_pernet_subsys(sdp_h_netns_ops);
	kfree(sdp_h_netns_ops);
}

struct proc_dir_entry *sdp_h_proc_text(struct net *net, const char *name,
				       int (*show)(struct seq_file *, void *),
				       int (*write)(struct file *, char *, size_t), void *data)
{
	return proc_create_net_single_write(name, 0644, net->proc_net, show, write, data);
}

struct proc_dir_entry *sdp_h_proc_rows(struct net *net, const char *name,
				       const struct seq_operations *ops, void *data)
{
	return proc_create_net_data(name, 0444, net->proc_net, ops, sizeof(struct sdp_h_rows), data);
}

void sdp_h_proc_remove(struct net *net, const char *name)
{
	remove_proc_entry(name, net->proc_net);
}
