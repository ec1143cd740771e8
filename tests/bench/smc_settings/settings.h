/* SPDX-License-Identifier: GPL-2.0-only */
/* SMC's fields of struct net, stored elsewhere because the stock kernel's struct lacks them. */
#ifndef BENCH_SMC_SETTINGS_H
#define BENCH_SMC_SETTINGS_H

#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/netns/smc.h>

extern unsigned int smc_settings_id;
/* Base of the offsets in the table of sysctls. */
extern struct netns_smc smc_no_settings;

static inline struct netns_smc *smc_of(const struct net *net)
{
	return net_generic(net, smc_settings_id);
}

int smc_settings_init(void);
void smc_settings_exit(void);

#endif
