// SPDX-License-Identifier: GPL-2.0-only
/* The module's parameters, with the bounds of a write. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sysctl.h>
#include <linux/sysfs.h>
#include "net_helpers.h"

MODULE_VERSION(SDP_VERSION);

struct sdp_h_params sdp_h_params = {
#define P(name, value, least, most, mode, scope, text) .name = (value),
#include "params.def"
#undef P
};

struct bounded {
	int *value, least, most;
};

static int *of(struct sdp_h_params *params, const struct bounded *b)
{
	return (int *)params + (b->value - (int *)&sdp_h_params);
}

/* Sets a parameter of the module or of a namespace. */
static void set(struct sdp_h_params *params, const struct bounded *b, int value)
{
	WRITE_ONCE(*of(params, b), value);
	/* two concurrent writers may count as one; the counter wraps around */
	if (b->value == &sdp_h_params.ipproto_memory && !value)
		WRITE_ONCE(params->forgotten, (u32)params->forgotten + 1);
}

static int set_bounded(const char *text, const struct kernel_param *param)
{
	const struct bounded *b = param->arg;
	long long value, given;
	int err = kstrtoll(text, 0, &given);

	if (err)
		return err;
	value = clamp(given, b->least, b->most);
	if (value != given) {
		/*
		 * A wrong value must not prevent loading: otherwise each socket() would run
		 * modprobe. An invalid ipproto number has no nearest valid number.
		 */
		if (THIS_MODULE->state == MODULE_STATE_LIVE ||
		    !(param->perm & 0200))
			return -EINVAL;
		pr_warn("%s=%s is out of bounds, using %lld\n", param->name,
			text, value);
	}
	set(&sdp_h_params, b, value);
	return 0;
}

static int get_bounded(char *text, const struct kernel_param *param)
{
	const struct bounded *b = param->arg;

	return sysfs_emit(text, "%d\n", READ_ONCE(*b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = set_bounded,
	.get = get_bounded,
};

#define P(name, value, least, most, mode, scope, text)			\
	static struct bounded name##_bounded = {			\
		&sdp_h_params.name, least, most				\
	};								\
	module_param_cb(name, &bounded_ops, &name##_bounded, mode);	\
	__MODULE_PARM_TYPE(name, "int");				\
	MODULE_PARM_DESC(name, text);
#include "params.def"
#undef P

/* Handles a sysctl of net.sdp.* */
static int net_param(const struct ctl_table *ctl, int write, void *buffer, size_t *len, loff_t *pos)
{
	const struct bounded *b = ctl->extra1;
	int value = READ_ONCE(*of(ctl->data, b)), err;
	struct ctl_table bounds = {
		.procname = ctl->procname, .data = &value, .maxlen = sizeof(value),
		.extra1 = (void *)&b->least, .extra2 = (void *)&b->most,
	};

	if (value == INT_MIN)
		value = READ_ONCE(*b->value);
	err = proc_dointvec_minmax(&bounds, write, buffer, len, pos);
	if (!err && write)
		set(ctl->data, b, value);
	return err;
}

#define HOST(name)
#define NET(name)							\
	{								\
		.procname = #name, .mode = 0644,			\
		.proc_handler = net_param, .extra1 = &name##_bounded,	\
	},
static const struct ctl_table net_table[] = {
#define P(name, value, least, most, mode, scope, text) scope(name)
#include "params.def"
#undef P
};

struct ctl_table_header *sdp_h_sysctls_start(struct net *net, struct sdp_h_params *own)
{
	struct ctl_table *table = kmemdup(net_table, sizeof(net_table), GFP_KERNEL);
	struct ctl_table_header *sysctls;
	size_t i;

	if (!table)
		return NULL;
	for (i = 0; i < ARRAY_SIZE(net_table); i++)
		table[i].data = own;
	sysctls = register_net_sysctl_sz(net, "net/sdp", table, ARRAY_SIZE(net_table));
	if (!sysctls)
		kfree(table);
	return sysctls;
}

void sdp_h_sysctls_stop(struct ctl_table_header *sysctls)
{
	const struct ctl_table *table = sysctls->ctl_table_arg;

	unregister_net_sysctl_table(sysctls);
	kfree(table);
}
