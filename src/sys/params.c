// SPDX-License-Identifier: GPL-2.0-only
/* The module's parameters, with the bounds of a write. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sysfs.h>
#include "net_helpers.h"

MODULE_VERSION(SDP_VERSION);

struct sdp_h_params sdp_h_params = {
#define P(name, value, least, most, mode, text) .name = (value),
#include "params.def"
#undef P
};

unsigned int sdp_h_forgotten;

struct bounded {
	int *value, least, most;
};

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
		 * A line of modprobe.d must not keep the module out: each
		 * socket() of anybody would run modprobe again. A number that
		 * names something (ipproto, read only) has no neighbours.
		 */
		if (THIS_MODULE->state == MODULE_STATE_LIVE ||
		    !(param->perm & 0200))
			return -EINVAL;
		pr_warn("%s=%s is out of bounds, using %lld\n", param->name,
			text, value);
	}
	WRITE_ONCE(*b->value, value);
	/* the kernel's lock of parameters is held */
	if (b->value == &sdp_h_params.ipproto_memory && !value)
		WRITE_ONCE(sdp_h_forgotten, sdp_h_forgotten + 1);
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

#define P(name, value, least, most, mode, text)				\
	static struct bounded name##_bounded = {			\
		&sdp_h_params.name, least, most				\
	};								\
	module_param_cb(name, &bounded_ops, &name##_bounded, mode);	\
	__MODULE_PARM_TYPE(name, "int");				\
	MODULE_PARM_DESC(name, text);
#include "params.def"
#undef P
